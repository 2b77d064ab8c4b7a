// Relative times that update themselves; their title has the time in UTC.
const units = [
  [86400, "d", 3600, "h"],
  [3600, "h", 60, "min"],
  [60, "min", 1, "s"],
];

export function duration(seconds) {
  for (const [size, unit, part, lesser] of units) {
    if (seconds < size) continue;
    // From ten units on, the smaller unit is left out.
    const rest = seconds < 10 * size ? Math.floor((seconds % size) / part) : 0;
    return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${lesser}` : ""}`;
  }
  return `${Math.max(0, Math.floor(seconds))} s`;
}

// Browser clocks may be wrong: use the server's time plus the time passed since.
let skew = 0;

export function setServerTime(ms) {
  skew = ms - Date.now();
}

export function now() {
  return Date.now() + skew;
}

export function showTimes(root = document) {
  for (const element of root.querySelectorAll("time[data-ms]")) {
    const ms = Number(element.dataset.ms);
    const seconds = (now() - ms) / 1000;
    const lasts = "lasts" in element.dataset;
    const text = lasts ? duration(seconds) : seconds < 1 ? "now" : `${duration(seconds)} ago`;
    if (element.textContent !== text) element.textContent = text;
    if (!element.dataset.local) {
      element.dataset.local = "yes";
      element.title = `${new Date(ms).toLocaleString()} (${element.title})`;
    }
  }
}

export function keepTimes() {
  setServerTime(Number(document.getElementById("main").dataset.now));
  showTimes();
  setInterval(() => document.hidden || showTimes(), 1000);
}
