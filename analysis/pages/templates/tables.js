"use strict";
// Filter and sort the rows of metric tables: each element with data-row is one metric.
for (const tools of document.querySelectorAll(".tools")) {
  const section = tools.closest("section");
  const rows = [...section.querySelectorAll("[data-row]")];
  const [text, order, told] = ["input", "select", "[role=status]"].map((one) => tools.querySelector(one));
  const folded = [...section.querySelectorAll("details")].filter((one) => !one.open);
  const key = {
    "": (row) => rows.indexOf(row),
    size: (row) => -Number(row.dataset.size),
    verdict: (row) => Number(row.dataset.verdict),
  };
  const show = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !words.every((word) => row.dataset.row.includes(word));
      shown += !row.hidden;
    }
    for (const one of folded) one.open = words.length > 0 && one.querySelector("[data-row]:not([hidden])") !== null;
    for (const row of [...rows].sort((a, b) => key[order.value](a) - key[order.value](b) || rows.indexOf(a) - rows.indexOf(b)))
      row.parentNode.append(row);
    told.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  };
  text.addEventListener("input", show);
  order.addEventListener("change", show);
  tools.hidden = false;
}
