// Keeps the page fresh: requests it every few seconds and replaces changed parts.
// Pauses while the page is hidden, and shows a banner when the service does not answer.
import { morph } from "./morph.js";
import { duration, setServerTime, showTimes } from "./times.js";

const every = 4000;
const slowest = 30000;
const lostAfter = 15000;

const main = document.getElementById("main");
const sign = document.getElementById("live");
const text = sign.querySelector("[data-live-text]");
const word = sign.querySelector("[data-live-word]");
const lost = document.getElementById("lost");
const said = document.getElementById("said");

let etag = "";
let seen = Date.now();
let failures = 0;
let problem = "";
let timer;
let asking = null;
let state = "";

export function startLive() {
  sign.hidden = false;
  setInterval(tell, 1000);
  tell();
  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : look()));
  window.addEventListener("online", look);
  plan();
}

// Goes to another view of the same page.
export async function go(address, { replace = false, silent = false } = {}) {
  if (!silent) history[replace ? "replaceState" : "pushState"](null, "", address);
  etag = "";
  main.setAttribute("aria-busy", "true");
  await look();
  main.removeAttribute("aria-busy");
}

function plan() {
  clearTimeout(timer);
  if (document.hidden) return;
  timer = setTimeout(look, Math.min(slowest, every * 2 ** Math.min(failures, 3)));
}

function rest() {
  clearTimeout(timer);
}

async function look() {
  clearTimeout(timer);
  asking?.abort();
  const mine = (asking = new AbortController());
  const limit = setTimeout(() => mine.abort("slow"), 20000);
  try {
    const answer = await fetch(location.href, {
      headers: etag ? { "If-None-Match": etag } : {},
      cache: "no-store",
      signal: mine.signal,
    });
    const page = answer.headers.get("Content-Type")?.startsWith("text/html");
    if (answer.status === 401 || answer.status === 403) return signedOut(answer.status);
    if (answer.redirected && new URL(answer.url).pathname !== location.pathname) {
      if (answer.url.includes("/ui")) return location.replace(answer.url);
      return signedOut(401);
    }
    if (answer.status !== 304 && !page) throw new Error(`unexpected answer, status ${answer.status}`);
    if (answer.status !== 304) show(await answer.text());
    etag = answer.status === 304 ? etag : answer.headers.get("ETag") || "";
    seen = Date.now();
    failures = 0;
    problem = "";
  } catch (error) {
    if (mine.signal.aborted && mine.signal.reason !== "slow") return undefined;
    failures += 1;
    problem = error.message || "it does not answer";
  } finally {
    clearTimeout(limit);
    if (asking === mine) plan();
  }
  tell();
  return undefined;
}

function show(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  const next = fresh.getElementById("main");
  if (!next) throw new Error("unexpected answer");
  setServerTime(Number(next.dataset.now));
  document.title = fresh.title;
  showTimes(next);
  morph(main, document.importNode(next, true));
  document.dispatchEvent(new CustomEvent("srm:shown"));
}

function signedOut(status) {
  problem = status === 401 ? "you are no longer signed in: sign in again" : "you no longer have permission to view this";
  failures += 1;
  seen = 0;
  main.replaceChildren();
  tell();
}

function tell() {
  const age = Date.now() - seen;
  const next = failures && (age > lostAfter || !seen) ? "lost" : document.hidden ? "still" : "live";
  const ago = duration(age / 1000);
  word.textContent = next === "lost" ? (seen ? "no answer for " : "") : "live · ";
  text.textContent = next === "lost" ? (seen ? ago : "signed out") : `${ago} ago`;
  sign.dataset.state = next;
  if (next === state) return;
  lost.hidden = next !== "lost";
  if (next === "lost") {
    lost.textContent = seen
      ? `The SRM service does not answer (${problem}). This page shows old data and retries automatically.`
      : `Nothing is shown: ${problem}.`;
    said.textContent = lost.textContent;
  } else if (state === "lost") {
    said.textContent = "The SRM service answers again";
  }
  state = next;
}
