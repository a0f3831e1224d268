// Light, dark, or the system's theme; stored where the browser lets a page store anything.
"use strict";
(() => {
  const root = document.documentElement;
  const button = document.querySelector(".theme");
  const modes = ["auto", "light", "dark"];
  const put = (mode) => {
    if (mode === "auto") delete root.dataset.theme;
    else root.dataset.theme = mode;
    button.textContent = `theme: ${mode}`;
  };
  let mode = "auto";
  try {
    mode = localStorage.getItem("assay-theme") ?? "auto";
  } catch {}
  if (!modes.includes(mode)) mode = "auto";
  button.addEventListener("click", () => {
    mode = modes[(modes.indexOf(mode) + 1) % modes.length];
    put(mode);
    try {
      localStorage.setItem("assay-theme", mode);
    } catch {}
  });
  button.hidden = false;
  put(mode);
})();
