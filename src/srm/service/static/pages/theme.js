// Chooses light or dark before the first paint: as in the surrounding page (Airflow), else as
// chosen here, else as set in the system.
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  function around() {
    try {
      const outer = window.parent !== window && window.parent.document.documentElement;
      return outer || null;
    } catch {
      return null; // framed by another origin: ignore its theme
    }
  }

  function themeOf(element) {
    if (element.classList.contains("dark") || element.dataset.theme === "dark") return "dark";
    if (element.classList.contains("light") || element.dataset.theme === "light") return "light";
    return "";
  }

  function show(theme) {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    document.dispatchEvent(new CustomEvent("srm:theme"));
  }

  const outer = around();
  if (outer) {
    root.classList.add("framed");
    show(themeOf(outer));
    new MutationObserver(() => show(themeOf(outer))).observe(outer, {
      attributeFilter: ["class", "data-theme"],
    });
  } else {
    try {
      show(localStorage.getItem("srm-theme") || "");
    } catch {
      show("");
    }
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    document.dispatchEvent(new CustomEvent("srm:theme")),
  );
  window.srmTheme = { show, framed: outer !== null };
})();
