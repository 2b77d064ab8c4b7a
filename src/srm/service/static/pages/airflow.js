// Links into Airflow. Inside Airflow the page is framed and cannot leave its frame, so the link is
// opened in the document of Airflow's window.
export function isInAirflow() {
  return window.srmTheme.framed;
}

export function hasAirflow() {
  return isInAirflow() || document.body.dataset.airflow !== "";
}

export function openInAirflow(address) {
  if (!isInAirflow()) return void window.location.assign(address);
  const outer = window.parent.document;
  const link = outer.createElement("a");
  link.href = new URL(address.replace(/^\//, ""), outer.baseURI);
  outer.body.append(link);
  link.click();
  link.remove();
}

function reveal() {
  if (!hasAirflow()) return;
  for (const element of document.querySelectorAll("[data-airflow][hidden]")) {
    if (element.nodeName !== "BUTTON" || isInAirflow()) element.hidden = false;
  }
}

export function startAirflow() {
  reveal();
  document.addEventListener("srm:shown", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-airflow]");
    if (!link || !isInAirflow() || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    openInAirflow(link.getAttribute("href"));
  });
}
