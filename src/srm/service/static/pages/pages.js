// Common to all pages: refresh, relative times, copying of commands, answers to why, charts.
import { startCharts } from "./charts.js";
import { startLive, go } from "./live.js";
import { keepTimes } from "./times.js";
import { startWhy } from "./why.js";
import { startAirflow } from "./airflow.js";

function startTheme() {
  const button = document.getElementById("theme");
  if (window.srmTheme.framed) return;
  const order = ["", "light", "dark"];
  const name = { "": "as the system", light: "light", dark: "dark" };
  const label = () => {
    const now = document.documentElement.dataset.theme || "";
    button.setAttribute("aria-label", `Colours: ${name[now]}; change`);
    button.title = `Colours: ${name[now]}`;
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme || "";
    const next = order[(order.indexOf(now) + 1) % order.length];
    try {
      localStorage.setItem("srm-theme", next);
    } catch {
      // The choice then applies to this page only.
    }
    window.srmTheme.show(next);
    label();
  });
  label();
}

function startCopying() {
  const said = document.getElementById("said");
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const copied = await copy(button.dataset.copy);
    said.textContent = copied ? "Copied" : "Copying is not allowed here: select the text";
    button.classList.toggle("done", copied);
    setTimeout(() => button.classList.remove("done"), 1500);
  });
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS browsers can only copy a selection.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

// Links to another view of the same page, and searches, load no new page.
function startSoftLinks() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-soft]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(link.href);
  });
  let timer;
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-live-form]");
    if (!form) return;
    clearTimeout(timer);
    timer = setTimeout(() => go(addressOf(form), { replace: true }), 200);
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-live-form]")) return;
    event.preventDefault();
    go(addressOf(event.target));
  });
  window.addEventListener("popstate", () => go(location.href, { silent: true }));
}

function addressOf(form) {
  const query = new URLSearchParams(new FormData(form));
  for (const [name, value] of [...query]) if (!value) query.delete(name);
  return `${location.pathname}${query.size ? `?${query}` : ""}`;
}

startTheme();
startCopying();
startSoftLinks();
keepTimes();
startAirflow();
startWhy();
startCharts();
startLive();
