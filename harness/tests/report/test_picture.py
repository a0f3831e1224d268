"""The README's terminal picture: what was on the screen, in a file that needs nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

from assay.harness.tests.support import picture

SAID = r"""
print('\x1b[32mgreen\x1b[0m & <plain>')
print('half way', end='\r')
print('finished')
print('on its way\n\r\x1b[1A\x1b[2K\rgone')
"""


def test_a_picture_shows_the_command_and_what_stood_there_last(tmp_path: Path) -> None:
    picture.main(str(tmp_path / "shown.svg"), sys.executable, "-c", SAID)
    svg = (tmp_path / "shown.svg").read_text()
    shown = " ".join("".join(ElementTree.fromstring(svg).itertext()).split())
    assert f"$ {sys.executable} -c" in shown
    assert shown.endswith("green & <plain> finished gone")
    assert "\x1b" not in svg
    assert "url(http" not in svg
    assert "@font-face" not in svg
    assert "monospace" in svg
