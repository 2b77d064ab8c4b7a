// The form of a move: shows the conf of the run, and starts it through Airflow's API as the
// signed-in user. Airflow checks the permission.
import { isInAirflow, openInAirflow } from "./airflow.js";

const form = document.getElementById("new-move");
const shown = document.getElementById("new-move-conf");
const said = document.getElementById("new-move-said");
const settings = form ? JSON.parse(form.dataset.settings) : [];

function read({ name, kind, default: usual }, data) {
  if (kind === "switch") return data.has(name);
  if (kind === "names") return data.getAll(name);
  if (kind === "seconds") return Number(data.get(name) || usual);
  if (kind === "list") return data.get(name).split(",").map((part) => part.trim()).filter(Boolean);
  return data.get(name);
}

// Empty values and default numbers are left out.
function conf() {
  const data = new FormData(form);
  const found = {};
  for (const one of settings) {
    const value = read(one, data);
    if (value.length !== 0 && value !== false && !(one.kind === "seconds" && value === one.default)) found[one.name] = value;
  }
  return found;
}

function quoted(value) {
  return /^[\w.:/-]+$/.test(value) ? value : `'${value.replaceAll("'", `'\\''`)}'`;
}

function command(found) {
  const parts = ["srm failover", found.dry_run ? "plan" : "run"];
  for (const { name, kind, option, default: usual } of settings) {
    if (!option || name === "dry_run" || !(name in found) || found[name] === usual) continue;
    if (kind === "switch") parts.push(option);
    else if (kind === "names") for (const value of found[name]) parts.push(option, quoted(value));
    else parts.push(option, quoted(String(found[name])));
  }
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
  said.textContent = "Starting the run in Airflow ...";
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
