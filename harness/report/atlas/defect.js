// The script, into the clipboard.
(() => {
  const button = document.querySelector(".copy");
  const code = document.querySelector("pre code");
  button.hidden = false;
  button.addEventListener("click", async () => {
    let done = true;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      // A page from a file may be refused the clipboard; what is selected can always be copied.
      getSelection().selectAllChildren(code);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "copied" : "selected: press Ctrl+C";
    setTimeout(() => (button.textContent = "copy"), 2000);
  });
})();
