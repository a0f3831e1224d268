"""Pages in headless Chromium: a script looks at each, and its answers are read from the DOM."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom")

LOOK = """<!doctype html><body><script>
(async () => {
  const answers = {};
  for (const [name, text] of Object.entries(PAGES)) {
    const frame = document.createElement("iframe");
    frame.style = "border: 0; height: 900px; width: WIDTHpx";
    frame.srcdoc = text;
    await new Promise((done) => { frame.onload = done; document.body.append(frame); });
    answers[name] = await (QUESTION)(frame.contentDocument, frame.contentWindow);
    frame.remove();
  }
  const answer = document.createElement("pre");
  answer.textContent = JSON.stringify(answers);
  document.body.append(answer);
})();
</script>"""

PROBLEMS = """(page, window) => {
  const style = (element) => window.getComputedStyle(element);
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map((part) => {
      const v = part / 255;
      return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = style(element).backgroundColor;
      if (!colour.startsWith("rgba")) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const problems = [];
  const wide = page.documentElement.scrollWidth - window.innerWidth;
  if (wide > 0) problems.push(`wider than its window by ${wide} pixels`);
  if (window.pwned) problems.push("runs a script from a name");
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
    const ink = element.closest("svg") ? style(element).fill : style(element).color;
    const [a, b] = [light(ink), light(ground(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) problems.push(`contrast ${contrast}: ${element.outerHTML.slice(0, 99)}`);
  }
  return problems;
}"""
"""What of a page does not fit its window, or can hardly be read."""


def ask(
    folder: Path, pages: Mapping[str, str], question: str, width: int = 1280
) -> tuple[dict[str, Any], list[str]]:
    """The answers of each page by name to ``question``, and what the browser complained of.

    The question is a function in JavaScript of a page's document and window.  Skips the test
    where there is no browser.
    """
    programs = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    if (program := next(filter(None, programs), None)) is None:
        pytest.skip("missing capability: chromium (Debian package chromium)")
    parts = {"PAGES": json.dumps(pages).replace("</", "<\\/"), "QUESTION": question}
    parts |= {"WIDTH": str(width)}
    text = re.sub("|".join(parts), lambda match: parts[match[0]], LOOK)
    (folder / "look.html").write_text(text, encoding="utf-8")
    command = [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=9999", (folder / "look.html").as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    answers = re.findall(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)
    assert answers, done.stderr
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(answers[-1])), complaints
