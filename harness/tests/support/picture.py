"""The terminal pictures in the README, from real runs.

``python harness/tests/support/picture.py docs/invert.svg assay invert "The sky is blue."``.
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

SETTINGS = (f"COLUMNS={COLUMNS}", "TERM=xterm-256color", "COLORTERM=truecolor")
PYTEST = "PYTEST_ADDOPTS=--no-header"
"""Pytest's header names folders of this machine."""


def main(path: str, *command: str) -> None:
    """Run ``command`` in a terminal of its own; draw it and what it wrote to the SVG ``path``.

    Lines that were overwritten or removed (the live one) are not shown.
    """
    written = bytearray()

    def read(descriptor: int) -> bytes:
        piece = os.read(descriptor, 1 << 16)
        written.extend(piece)
        return piece

    pty.spawn(["env", *SETTINGS, PYTEST, *command], read)
    shown = written.decode(errors="replace").replace("\r\n", "\n")
    shown = re.sub(r"[^\n]*\n[^\n]*\x1b\[1A\x1b\[2K", "", shown)
    console = Console(
        emoji=False, record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True
    )
    console.print(Text.assemble(("$ ", "dim"), shlex.join(command)))
    console.print(Text.from_ansi(shown))
    svg = console.export_svg(title="", unique_id="terminal")
    # Fonts would be fetched from elsewhere; a reader's own monospace one serves as well.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    Path(path).write_text(svg, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
