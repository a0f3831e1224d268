"""Schedules test files that share costly work next to each other, and early.

pytest's setting `together` has a line for each group of files, the dearest first.  One worker
process runs a group, as what claims share is kept by the process that made it.  Groups come before
other findings: were one left to the end, the other workers would wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

SETTING = "together"


def add(parser: pytest.Parser) -> None:
    """Declare the setting."""
    says = "files whose claims share what is costly, one group a line, the dearest first"
    parser.addini(SETTING, says, type="linelist", default=[])


def lines(config: pytest.Config) -> list[str]:
    """The groups."""
    return config.getini(SETTING)


def turn(nodeid: str, groups: Sequence[str]) -> int:
    """The number of the group that the file of a test is in; how many there are if in none."""
    file = nodeid.partition("::")[0]
    mine = (number for number, group in enumerate(groups) if file in group.split())
    return next(mine, len(groups))
