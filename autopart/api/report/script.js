"use strict";
// Tables over the data embedded in the page: filtered and paged, so that long ones cost nothing until they are looked at.
const data = JSON.parse(document.getElementById("data").textContent);
const PAGE = 20;

function table(node) {
  const { header, rows } = data[node.dataset.table];
  const controls = document.createElement("div");
  const filter = document.createElement("input");
  const back = document.createElement("button"), next = document.createElement("button");
  const place = document.createElement("span"), body = document.createElement("tbody");
  let first = 0, shown = rows;
  controls.className = "controls";
  filter.placeholder = "filter";
  filter.setAttribute("aria-label", "filter " + node.dataset.table);
  back.textContent = "previous";
  next.textContent = "next";
  controls.append(filter, back, next, place);

  function row(cells, tag) {
    const line = document.createElement("tr");
    for (const text of cells) {
      const cell = document.createElement(tag);
      cell.textContent = text;
      line.append(cell);
    }
    return line;
  }

  function draw() {
    const last = Math.min(first + PAGE, shown.length);
    body.replaceChildren(...shown.slice(first, last).map((cells) => row(cells, "td")));
    place.textContent = shown.length ? `${first + 1} to ${last} of ${shown.length}` : "none";
    back.disabled = first === 0;
    next.disabled = last >= shown.length;
  }

  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    shown = rows.filter((cells) => cells.some((text) => String(text).toLowerCase().includes(wanted)));
    first = 0;
    draw();
  });
  back.addEventListener("click", () => { first -= PAGE; draw(); });
  next.addEventListener("click", () => { first += PAGE; draw(); });

  const head = document.createElement("thead"), whole = document.createElement("table"), scroll = document.createElement("div");
  head.append(row(header, "th"));
  whole.append(head, body);
  whole.className = "text";
  scroll.className = "scroll";
  scroll.append(whole);
  node.replaceChildren(controls, scroll);
  draw();
}

for (const node of document.querySelectorAll("[data-table]")) table(node);
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "copied";
  });
}
