// Human-readable numbers, as in pages/figures.py.
function scaled(value, names, between = "") {
  let at = 0;
  while (Math.abs(value) >= 999.5 && at < names.length - 1) {
    value /= 1000;
    at += 1;
  }
  const text = Number(value.toPrecision(3)).toString();
  return `${text}${between}${names[at]}`;
}

export function rate(value) {
  return `${scaled(value, ["B", "kB", "MB", "GB", "TB"], " ")}/s`;
}

export function count(value) {
  return Math.abs(value) < 10000 ? Math.round(value).toLocaleString("en") : scaled(value, ["", "k", "M", "G", "T"]);
}

export function millis(value) {
  if (value < 1000) return `${Number(value.toPrecision(3))} ms`;
  if (value < 60000) return `${Number((value / 1000).toPrecision(3))} s`;
  return `${Number((value / 60000).toPrecision(3))} min`;
}
