"""The README's terminal picture: what was on the screen, in a file that needs nothing else."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

from assay.harness.report import picture

SAID = r"""
print('\x1b[32mgreen\x1b[0m & <plain>')
print('half way', end='\r')
print('finished')
print('on its way\n\r\x1b[1A\x1b[2K\rgone')
"""


def words(svg: str) -> str:
    return " ".join("".join(ElementTree.fromstring(svg).itertext()).split())


def test_a_picture_shows_the_command_and_what_stood_there_last() -> None:
    written = picture.record([sys.executable, "-c", SAID])
    svg = picture.draw("pytest --model x", written)
    shown = words(svg)
    assert "$ pytest --model x" in shown
    assert "green & <plain>" in shown
    assert shown.endswith("finished gone")
    assert "half way" in written
    assert "half way" not in shown
    assert "on its way" in written
    assert "on its way" not in shown
    assert "\x1b" not in svg


def test_a_picture_fetches_nothing() -> None:
    svg = picture.draw("pytest", "done")
    assert "url(http" not in svg
    assert "@font-face" not in svg
    assert "monospace" in svg
