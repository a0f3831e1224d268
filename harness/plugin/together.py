"""Schedules test files that share costly work next to each other, and early.

pytest's setting `together` has a line for each group of files, the most costly first.  One worker
process runs a group, as claims share results only within a process.  Groups come before
other findings: the other workers would wait for a group that comes last.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

SETTING = "together"


def add(parser: pytest.Parser) -> None:
    """Declare the setting."""
    says = "files whose claims share costly work, one group a line, the most costly first"
    parser.addini(SETTING, says, type="linelist", default=[])


def lines(config: pytest.Config) -> list[str]:
    """The groups."""
    return config.getini(SETTING)


def turn(nodeid: str, groups: Sequence[str]) -> int:
    """The index of the group that the file of a test is in; the number of groups if in none."""
    file = nodeid.partition("::")[0]
    mine = (number for number, group in enumerate(groups) if file in group.split())
    return next(mine, len(groups))
