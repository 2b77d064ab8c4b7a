// The form of a move: shows what the run will be asked, and starts it through Airflow's API as
// whoever is signed in there. Airflow decides whether they may.
import { isInAirflow, openInAirflow } from "./airflow.js";

const form = document.getElementById("new-move");
const shown = document.getElementById("new-move-conf");
const said = document.getElementById("new-move-said");
const defaults = { mode: "planned", operation: "failover", dry_run: false, ask_approval: false };

function conf() {
  const data = new FormData(form);
  const found = { operation: data.get("operation"), mode: data.get("mode"), source: data.get("source"), target: data.get("target") };
  for (const name of ["topics", "groups"]) if (data.getAll(name).length) found[name] = data.getAll(name);
  for (const name of ["dry_run", "ask_approval"]) if (data.has(name)) found[name] = true;
  return found;
}

function quoted(value) {
  return /^[\w.:/-]+$/.test(value) ? value : `'${value.replaceAll("'", `'\\''`)}'`;
}

function command(found) {
  const parts = ["srm failover", found.dry_run ? "plan" : "run", "--source", found.source, "--target", found.target];
  if (found.operation !== defaults.operation) parts.push("--operation", found.operation);
  if (found.mode !== defaults.mode) parts.push("--mode", found.mode);
  for (const topic of found.topics || []) parts.push("--topic", quoted(topic));
  for (const group of found.groups || []) parts.push("--group", quoted(group));
  return parts.join(" ");
}

function show() {
  const found = conf();
  shown.textContent = JSON.stringify(found, undefined, 2);
  form.querySelector("[data-start-text]").textContent = found.dry_run ? "Start the dry run" : "Start the move";
  const line = form.querySelector(".as-text .command");
  line.querySelector("code").textContent = command(found);
  line.querySelector("button").dataset.copy = command(found);
  line.querySelector("button").setAttribute("aria-label", `Copy: ${command(found)}`);
}

async function start(event) {
  event.preventDefault();
  if (!isInAirflow()) return;
  const button = form.querySelector("button[type=submit]");
  button.disabled = true;
  said.textContent = "Asking Airflow ...";
  try {
    const dag = form.dataset.dag;
    const base = new URL("api/v2/", window.parent.document.baseURI);
    const answer = await fetch(new URL(`dags/${encodeURIComponent(dag)}/dagRuns`, base), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ conf: conf(), logical_date: null }),
    });
    const found = await answer.json();
    if (!answer.ok) throw new Error(typeof found.detail === "string" ? found.detail : JSON.stringify(found.detail));
    openInAirflow(`/dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(found.dag_run_id)}`);
  } catch (error) {
    said.textContent = `Airflow did not start it: ${error.message}`;
    button.disabled = false;
  }
}

if (form) {
  if (isInAirflow()) said.textContent = "";
  form.addEventListener("input", show);
  form.addEventListener("submit", start);
  show();
}
