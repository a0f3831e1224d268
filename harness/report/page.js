// Filter and sort the tables of verdicts.  Without this script they are complete, in the
// catalogue's order.
"use strict";
(() => {
  const form = document.querySelector(".controls");
  const bodies = [...document.querySelectorAll(".verdicts tbody")];
  const all = bodies.flatMap((body) => [...body.rows]);
  if (!form || all.length < 2) return;
  const rows = all.map((row) => ({
    row,
    body: row.parentElement,
    keys: row.dataset.k.split("|").map((key) => (key === "" ? NaN : Number(key))),
    text: row.textContent.toLowerCase(),
    subject: row.querySelector(".of")?.textContent ?? "",
  }));
  const search = form.querySelector("input");
  const subject = form.querySelector("[data-pick=subject]");
  const order = form.querySelector("[data-pick=order]");
  const buttons = [...form.querySelectorAll("button")];
  const heads = [...document.querySelectorAll(".verdicts th[data-key]")];
  let verdict = "";
  let key = 0;
  let sign = 1;

  const show = () => {
    const wanted = search.value.trim().toLowerCase();
    let shown = 0;
    for (const each of rows) {
      const fits =
        (!verdict || each.row.classList.contains(verdict)) &&
        (!subject?.value || each.subject === subject.value) &&
        each.text.includes(wanted);
      each.row.hidden = !fits;
      shown += fits;
    }
    for (const body of bodies) {
      body.closest(".kind").hidden = [...body.rows].every((row) => row.hidden);
    }
    form.querySelector(".count").textContent = `${shown} of ${rows.length} shown`;
  };

  const sort = (by, direction) => {
    [key, sign] = [by, direction];
    const last = (value) => Number.isNaN(value);
    rows.sort((a, b) => {
      const [x, y] = [a.keys[key], b.keys[key]];
      if (last(x) || last(y)) return last(x) - last(y) || a.keys[0] - b.keys[0];
      return sign * (x - y) || a.keys[0] - b.keys[0];
    });
    for (const each of rows) each.body.append(each.row);
    for (const head of heads) {
      const ariaSort = sign > 0 ? "ascending" : "descending";
      if (Number(head.dataset.key) === key) head.setAttribute("aria-sort", ariaSort);
      else head.removeAttribute("aria-sort");
    }
    const option = [...order.options].find(
      ({ value }) => Math.abs(value) === key && (key === 0 || Number(value) < 0 === sign < 0),
    );
    order.selectedIndex = option ? option.index : -1;
  };

  for (const head of heads) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const by = Number(head.dataset.key);
      sort(by, by === key ? -sign : 1);
    });
  }
  for (const button of buttons) {
    button.addEventListener("click", () => {
      verdict = button.dataset.verdict;
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
      show();
    });
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  search.addEventListener("input", show);
  subject?.addEventListener("change", show);
  order.addEventListener("change", () => {
    const by = Number(order.value);
    sort(Math.abs(by), by < 0 ? -1 : 1);
  });
  // A link must reach its row even if the filter hides it.
  addEventListener("hashchange", () => {
    const row = document.getElementById(location.hash.slice(1));
    if (!row?.hidden || !bodies.includes(row.parentElement)) return;
    search.value = "";
    if (subject) subject.value = "";
    buttons[0].click();
    row.scrollIntoView();
  });
  form.hidden = false;
  sort(0, 1);
  show();
})();
