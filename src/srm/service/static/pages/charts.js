// Charts by uPlot: average or sum as a line, between minimum and maximum a band, gaps where nothing was
// measured. Each reads its windows from the REST API, by ETag, and also has a table.
import { rate, count, millis } from "./units.js";
import { now } from "./times.js";

const every = 10000;
const formats = { rate, count, millis };
// Steps of an axis of durations, in milliseconds; no thirds of minutes and hours.
const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 30000];
steps.push(...[1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1440, 2880, 7200, 14400].map((minutes) => minutes * 60000));
// Steps of an axis of counts: whole numbers.
const wholes = [...Array(12).keys()].flatMap((power) => [1, 2, 5].map((one) => one * 10 ** power));
const drawn = new Map();

export function startCharts() {
  if (!document.querySelector("[data-charts]") && !window.uPlot) {
    document.addEventListener("srm:shown", start, { once: true });
    return;
  }
  start();
}

async function start() {
  const place = document.querySelector("[data-charts]");
  if (!place) return void document.addEventListener("srm:shown", start, { once: true });
  await load();
  if (!window.uPlot) return; // the small charts of the page stay
  await drawAll();
  document.addEventListener("srm:shown", drawAll);
  document.addEventListener("srm:theme", () => again());
  setInterval(() => document.hidden || fetchAll(), every);
  window.addEventListener("resize", sizeAll);
}

function load() {
  const base = new URL("../vendor/uplot/", import.meta.url);
  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = new URL("uPlot.min.css", base);
  document.head.append(style);
  return new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = new URL("uPlot.iife.min.js", base);
    script.onload = script.onerror = resolve;
    document.head.append(script);
  });
}

async function drawAll() {
  for (const figure of document.querySelectorAll("[data-chart]")) {
    if (!drawn.has(figure)) drawn.set(figure, { etag: "", windows: null, plot: null, key: "" });
  }
  for (const figure of drawn.keys()) if (!figure.isConnected) forget(figure);
  const wanting = [...drawn].filter(([figure, one]) => one.key !== keyOf(figure));
  if (wanting.length) await Promise.all(wanting.map(([figure, one]) => update(figure, one)));
}

function fetchAll() {
  return Promise.all([...drawn].map(([figure, one]) => update(figure, one)));
}

function again() {
  for (const [figure, one] of drawn) if (one.windows) draw(figure, one);
}

function forget(figure) {
  drawn.get(figure).plot?.destroy();
  drawn.delete(figure);
}

function keyOf(figure) {
  const place = figure.closest("[data-charts]");
  return [figure.dataset.chart, place.dataset.stat, place.dataset.span].join(" ");
}

async function update(figure, one) {
  one.key = keyOf(figure);
  try {
    const headers = one.etag && one.windows ? { "If-None-Match": one.etag } : {};
    const answer = await fetch(figure.dataset.chart, { headers, cache: "no-store" });
    if (answer.ok) {
      one.etag = answer.headers.get("ETag") || "";
      one.windows = (await answer.json()).windows;
    }
  } catch {
    // The page itself shows that the service does not answer.
  }
  if (one.windows && figure.isConnected) draw(figure, one);
}

// Windows to columns; a window that is empty or missing is a gap.
function columns(windows, from, whole) {
  const found = [[], [], [], []];
  let end = null;
  let longest = 0;
  for (const one of windows) longest = Math.max(longest, one.end_ms - one.start_ms);
  for (const one of windows) {
    const at = (one.start_ms + one.end_ms) / 2;
    if (one.end_ms < from) continue;
    if (end !== null && one.start_ms > end + longest / 2) {
      push(found, (end + one.start_ms) / 2000, null, whole);
    }
    push(found, at / 1000, one.count ? one : null, whole);
    end = Math.max(end ?? 0, one.end_ms);
  }
  return found;
}

function push(found, at, one, whole) {
  found[0].push(at);
  found[1].push(one ? one[whole] : null);
  found[2].push(one ? one.min : null);
  found[3].push(one ? one.max : null);
}

function draw(figure, one) {
  const plot = figure.querySelector("[data-plot]");
  const place = figure.closest("[data-charts]");
  const end = now();
  const from = end - Number(place.dataset.span);
  const whole = figure.dataset.unit === "millis" ? "avg" : "sum";
  const data = columns(one.windows, from, whole);
  const isEmpty = !data[1].some((value) => value !== null);
  plot.classList.toggle("is-empty", isEmpty);
  one.plot?.destroy();
  one.plot = null;
  plot.dataset.drawn = "yes";
  plot.replaceChildren();
  if (isEmpty) return;
  const format = formats[figure.dataset.unit];
  const stat = place.dataset.stat;
  const incrs = { millis: { incrs: steps }, count: { incrs: wholes } }[figure.dataset.unit] || {};
  const options = optionsOf(plot, format, incrs, stat, whole, from / 1000, end / 1000);
  one.plot = new window.uPlot(options, data, plot);
}

function optionsOf(plot, format, incrs, stat, whole, from, end) {
  // Only a real property resolves light-dark().
  const colour = (name) => {
    plot.style.color = `var(${name})`;
    const resolved = getComputedStyle(plot).color;
    plot.style.color = "";
    return resolved;
  };
  const axis = {
    stroke: colour("--soft"),
    font: "11px system-ui, sans-serif",
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
  };
  const main = { stroke: colour("--series"), width: 1.75, points: { show: lonely } };
  const edge = { stroke: "transparent", width: 0, points: { show: false } };
  const which = { avg: 1, min: 2, max: 3 }[stat];
  const series = [{}, edge, edge, edge].map((one, at) => (at === which ? main : one));
  return {
    ...sizeOf(plot),
    padding: [6, 16, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: { range: () => [from, end] },
      y: { range: (_, low, high) => [0, Math.max(high * 1.08, 1)] },
    },
    bands: [{ series: [3, 2], fill: colour("--series-band") }],
    axes: [
      { ...axis, size: 24, space: 70, values: (_, ticks) => ticks.map(clock) },
      { ...axis, ...incrs, size: 62, space: 34, values: (_, ticks) => ticks.map((one) => format(one)) },
    ],
    series,
    plugins: [tip(format, whole)],
  };
}

// A value between two gaps is drawn as a dot, since it has no line.
function lonely(plot, at) {
  const values = plot.data[at];
  return values.some((value, n) => value !== null && values[n - 1] == null && values[n + 1] == null);
}

function clock(seconds) {
  const at = new Date(seconds * 1000);
  return at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
}

function tip(format, whole) {
  let box;
  return {
    hooks: {
      init: (plot) => {
        box = document.createElement("div");
        box.className = "chart-tip";
        box.hidden = true;
        plot.over.append(box);
        plot.over.addEventListener("mouseleave", () => (box.hidden = true));
      },
      setCursor: (plot) => {
        const at = plot.cursor.idx;
        const values = at == null ? [] : [1, 2, 3].map((n) => plot.data[n][at]);
        box.hidden = !values.length || values[0] == null;
        if (box.hidden) return;
        const moment = new Date(plot.data[0][at] * 1000);
        const strong = document.createElement("b");
        strong.textContent = `${format(values[0])} ${whole === "sum" ? "in total" : whole}`;
        const time = document.createElement("span");
        time.className = "soft";
        time.textContent = `${moment.toLocaleTimeString()} · min ${format(values[1])} · max ${format(values[2])}`;
        box.replaceChildren(strong, time);
        const left = plot.valToPos(plot.data[0][at], "x");
        box.style.top = "2px";
        box.style.left = left > plot.over.clientWidth / 2 ? "" : `${left + 10}px`;
        box.style.right = left > plot.over.clientWidth / 2 ? `${plot.over.clientWidth - left + 10}px` : "";
      },
    },
  };
}

function sizeOf(plot) {
  return { width: plot.clientWidth, height: plot.clientHeight };
}

function sizeAll() {
  for (const [figure, one] of drawn) one.plot?.setSize(sizeOf(figure.querySelector("[data-plot]")));
}
