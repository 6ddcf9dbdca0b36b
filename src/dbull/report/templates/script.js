"use strict";
// The page is complete without this: it adds finding, ordering, and showing one cluster everywhere at once.
(() => {
  const cards = document.getElementById("cards");
  const tools = document.querySelector(".tools");
  const find = document.getElementById("find");
  const order = document.getElementById("order");
  const found = document.getElementById("found");
  const all = [...cards.children];
  const marks = [...document.querySelectorAll("[data-cluster]")];
  tools.hidden = all.length < 2;

  const show = () => {
    const asked = find.value.trim().toLowerCase();
    let n = 0;
    for (const card of all) {
      card.hidden = !card.dataset.label.includes(asked);
      n += card.hidden ? 0 : 1;
    }
    found.textContent = asked ? `${n} of ${all.length}` : "";
  };
  const by = {
    rows: (a, b) => b.dataset.rows - a.dataset.rows || a.dataset.cluster - b.dataset.cluster,
    id: (a, b) => a.dataset.cluster - b.dataset.cluster,
    new: (a, b) => b.dataset.cluster - a.dataset.cluster,
  };
  find.addEventListener("input", show);
  find.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { find.value = ""; show(); }
  });
  order.addEventListener("change", () => cards.append(...all.sort(by[order.value])));

  const light = (id) => {
    document.body.classList.toggle("lit", id !== null);
    for (const mark of marks) mark.classList.toggle("on", mark.dataset.cluster === id);
  };
  const over = (event) => {
    const mark = event.target.closest(".legend a, .map .centre, .map .cloud, .lanes .lane");
    light(mark ? mark.dataset.cluster : null);
  };
  for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, over);
  document.addEventListener("click", (event) => {
    const mark = event.target.closest(".map [data-cluster], .lanes [data-cluster]");
    if (mark && document.getElementById(`cluster-${mark.dataset.cluster}`)) location.hash = `cluster-${mark.dataset.cluster}`;
  });
  // A link to a card that is filtered away shows it again.
  addEventListener("hashchange", () => {
    const card = document.getElementById(location.hash.slice(1));
    if (card && card.hidden) { find.value = ""; show(); card.scrollIntoView(); }
  });
})();
