// Below the map: tables with a search, scripts to copy, defects that a link opens.
(() => {
  const finder = document.querySelector(".finder");
  if (finder) {
    const input = finder.querySelector("input");
    const rows = [...document.querySelectorAll(".searched tbody tr")];
    const texts = rows.map((row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase());
    const find = () => {
      const wanted = input.value.toLowerCase().split(/\s+/);
      let shown = 0;
      rows.forEach((row, i) => {
        row.hidden = !wanted.every((word) => texts[i].includes(word));
        shown += !row.hidden;
      });
      finder.querySelector("[role=status]").textContent = `${shown} of ${rows.length} rows`;
    };
    finder.hidden = false;
    finder.addEventListener("submit", (event) => event.preventDefault());
    input.addEventListener("input", find);
    find();
  }
  for (const button of document.querySelectorAll(".copy")) {
    const code = button.parentElement.querySelector("code");
    button.hidden = false;
    button.addEventListener("click", async () => {
      let done = true;
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        // A page from a file may lack access to the clipboard; a selection can always be copied.
        getSelection().selectAllChildren(code);
        done = document.execCommand("copy");
      }
      button.textContent = done ? "copied" : "selected: press Ctrl+C";
      setTimeout(() => (button.textContent = "copy"), 2000);
    });
  }
  const unfold = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target?.classList.contains("defect")) return;
    target.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
})();
