// The answer to "why", requested from the REST API on demand, since it reads both clusters.
const marks = {
  yes: '<circle cx="8" cy="8" r="6.25"/><path d="m5.2 8.2 2 2 3.7-4.3"/>',
  no: '<path d="M5.3 1.6h5.4l3.7 3.7v5.4l-3.7 3.7H5.3l-3.7-3.7V5.3Z"/><path d="m5.7 5.7 4.6 4.6M10.3 5.7l-4.6 4.6"/>',
  warn: '<path d="M8 1.9 14.6 13.5H1.4Z"/><path d="M8 6.2v3.4M8 11.5v.2"/>',
  unknown:
    '<circle cx="8" cy="8" r="6.25"/><path d="M6.2 6.3a1.9 1.9 0 1 1 2.7 1.8c-.6.3-.9.7-.9 1.2M8 11.5v.2"/>',
  copy: '<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/><path d="M3.2 10.5c-.5-.2-.7-.5-.7-1V4c0-.8.7-1.5 1.5-1.5h5.5c.5 0 .8.2 1 .7"/>',
};
const words = { yes: "yes", no: "no", unknown: "not known" };

export function startWhy() {
  const place = document.querySelector("[data-why]");
  if (!place) return;
  const button = document.querySelector("[data-why-again]");
  button.hidden = false;
  button.addEventListener("click", () => ask(place));
  ask(place);
}

async function ask(place) {
  const hint = place.querySelector(".command")?.cloneNode(true) || place.hint;
  place.hint = hint;
  place.other = null;
  place.setAttribute("aria-busy", "true");
  place.replaceChildren(element("div", "loading", element("i"), element("i"), element("i")));
  try {
    const answer = await fetch(place.dataset.why, { cache: "no-store" });
    const found = await answer.json();
    if (answer.status === 404) await offerOther(place, found);
    if (!answer.ok) throw new Error(found.detail || `the service answered ${answer.status}`);
    if (!Array.isArray(found)) throw new Error("unexpected answer");
    place.replaceChildren(...found.map(one));
  } catch (error) {
    const told = text("p", "pad soft", `No answer: ${error.message}. The same on a command line:`);
    place.replaceChildren(...(place.other ? [place.other] : [told, element("p", "pad", hint)]));
  } finally {
    place.setAttribute("aria-busy", "false");
  }
}

// An unknown topic may be the name of a group, and vice versa.
async function offerOther(place, found) {
  const { whyOther, whyKind, whyPage, whyName } = place.dataset;
  const answer = await fetch(whyOther, { cache: "no-store" });
  if (!answer.ok) return;
  const link = text("a", "", `${whyKind} ${whyName}`);
  link.href = whyPage;
  place.other = element("p", "pad", text("span", "", `${found.detail}. Did you mean the `), link, "?");
}

function one(why) {
  const mark = nameOf(why.ok);
  const sign = mark === "no" ? "warn" : mark; // a wrong step need not block a move
  const verdict = element("p", `why-verdict ${sign}`, icon(sign, words[mark]), text("span", "", why.verdict));
  const head = element("div", "why-head", verdict);
  const flow = typeof why.flow === "string" ? why.flow.replace("->", " → ") : `${why.flow.source} → ${why.flow.target}`;
  head.append(text("span", "why-flow", `${flow}, ${why.kind} ${why.subject}`));
  if (why.action) head.append(todo(why.action));
  if (why.similar?.length) head.append(text("p", "soft", `Did you mean ${why.similar.join(", ")}?`));
  const chain = element("ol", "chain");
  const wrong = why.steps.findIndex((step) => step.ok === false);
  why.steps.forEach((step, at) => chain.append(stepOf(step, wrong >= 0 && at > wrong)));
  return element("div", "why-one", head, chain);
}

function stepOf(step, isAfter) {
  const mark = nameOf(step.ok);
  const told = element("div", "", text("span", "q", `${step.question} `), text("span", "a", step.answer));
  if (step.action) told.append(element("div", "", todo(step.action)));
  return element("li", `${mark}${isAfter && step.ok !== false ? " after" : ""}`, icon(mark, words[mark]), told);
}

function nameOf(ok) {
  return ok === true ? "yes" : ok === false ? "no" : "unknown";
}

function element(name, className = "", ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children.filter(Boolean));
  return made;
}

function text(name, className, content) {
  const made = element(name, className);
  made.textContent = content;
  return made;
}

function icon(name, label = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("viewBox", "0 0 16 16");
  made.setAttribute("class", "icon");
  if (label) {
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", label);
  } else made.setAttribute("aria-hidden", "true");
  made.innerHTML = marks[name];
  return made;
}

// A command gets a copy button; anything else is text, see srm.domain.text.amount.is_command.
function todo(action) {
  return /^srm(-control|-service)? /.test(action) ? command(action) : text("span", "todo", action);
}

function command(content) {
  const button = element("button", "copy", icon("copy"));
  button.type = "button";
  button.dataset.copy = content;
  button.setAttribute("aria-label", `Copy: ${content}`);
  return element("span", "command", text("code", "", content), button);
}
