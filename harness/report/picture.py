"""The terminal pictures in the README, from real runs.

Arguments after the SVG's path go to pytest, or begin with a command of `assay`:
``python -m assay.harness.report.picture docs/invert.svg invert "The sky is blue."``.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 112
"""Width of the terminal in the picture."""

TERMINAL = (f"COLUMNS={COLUMNS}", "TERM=xterm-256color", "COLORTERM=truecolor")


def record(command: list[str]) -> str:
    """Run ``command`` in a terminal of its own; returns its output, with control sequences."""
    written = bytearray()

    def read(descriptor: int) -> bytes:
        piece = os.read(descriptor, 1 << 16)
        written.extend(piece)
        return piece

    pty.spawn(["env", *TERMINAL, *command], read)
    return written.decode(errors="replace")


def draw(command: str, written: str) -> str:
    """An SVG of a terminal in which ``command`` was typed and wrote ``written``.

    Lines that were overwritten or removed (the live one) are not shown.
    """
    written = re.sub(r"[^\n]*\n[^\n]*\x1b\[1A\x1b\[2K", "", written.replace("\r\n", "\n"))
    console = Console(
        emoji=False, record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True
    )
    console.print(Text.assemble(("$ ", "dim"), command))
    console.print(Text.from_ansi(written))
    svg = console.export_svg(title="", unique_id="terminal")
    # Fonts would be fetched from elsewhere; a reader's own monospace one serves as well.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main(path: str, *options: str) -> None:
    """Run pytest, or a command of `assay`, with ``options`` and draw its output to ``path``.

    Pytest's header is left out: it names folders of this machine.
    """
    if options[:1] == ("invert",):
        command, module = ["assay"], ["assay.harness.cli.main"]
    else:
        command, module = ["pytest"], ["pytest", "--no-header"]
    written = record([sys.executable, "-m", *module, *options])
    svg = draw(shlex.join([*command, *options]), written)
    Path(path).write_text(svg, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
