// Makes one element equal to another and keeps equal parts, so that focus, selection, scroll
// positions and opened parts stay.

export function morph(here, there) {
  if (here.nodeType !== there.nodeType || here.nodeName !== there.nodeName) {
    here.replaceWith(there);
    return;
  }
  if (here.nodeType === Node.TEXT_NODE) {
    if (here.data !== there.data) here.data = there.data;
    return;
  }
  if (here.nodeType !== Node.ELEMENT_NODE) return;
  // "data-keep": a script has filled it in. Times update themselves.
  if (here.hasAttribute("data-keep") && there.hasAttribute("data-keep")) return;
  if (here.nodeName === "TIME" && here.dataset.ms === there.dataset.ms) return;
  if (here.isEqualNode(there)) return;
  attributes(here, there);
  children(here, there);
}

function attributes(here, there) {
  for (const { name } of [...here.attributes]) {
    const keeps = name === "open" || name === "data-drawn" || (name === "value" && isTyped(here));
    if (!there.hasAttribute(name) && !keeps) here.removeAttribute(name);
  }
  for (const { name, value } of there.attributes) {
    if (name === "open" || (name === "value" && isTyped(here))) continue;
    if (here.getAttribute(name) !== value) here.setAttribute(name, value);
  }
}

function isTyped(element) {
  return element.nodeName === "INPUT" && element === document.activeElement;
}

function children(here, there) {
  if (here.hasAttribute("data-drawn")) return;
  const known = new Map();
  for (const child of here.children) if (child.id) known.set(child.id, child);
  let at = here.firstChild;
  for (const wanted of [...there.childNodes]) {
    const same = wanted.id && known.get(wanted.id);
    if (same && same !== at) here.insertBefore(same, at);
    if (same) at = same;
    if (!at || (at.id && !same && [...there.children].some((one) => one.id === at.id))) {
      here.insertBefore(wanted, at);
      continue;
    }
    const next = at.nextSibling;
    morph(at, wanted);
    at = next;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}
