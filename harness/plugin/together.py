"""Groups of tests that one worker process of pytest-xdist runs.

Claims of a file share costly work, and every worker loads the models of its tests.  So a group
is a model's claims in one file; where models are many, it is all claims of a model, which one
worker then loads alone.

Files may share costly work, too: pytest's setting `together` has a line for each group of files,
the most costly first.  Groups come before other findings: the other workers would wait for a
group that comes last.  Claims in folders of the setting `apart` share nothing but models: a group
is one function of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import pytest

from assay.harness.plugin import toy

SETTING, APART = "together", "apart"


def add(parser: pytest.Parser) -> None:
    """Declare the setting."""
    says = "files whose claims share costly work, one group a line, the most costly first"
    parser.addini(SETTING, says, type="linelist", default=[])
    parser.addini(APART, "folders whose claims share no costly work", type="args", default=[])


def lines(config: pytest.Config) -> list[str]:
    """The groups."""
    return config.getini(SETTING)


def apart(config: pytest.Config) -> tuple[str, ...]:
    """The folders whose claims share no costly work."""
    return tuple(f"{folder}/" for folder in config.getini(APART))


def turn(nodeid: str, groups: Sequence[str]) -> int:
    """The index of the group that the file of a test is in; the number of groups if in none."""
    file = nodeid.partition("::")[0]
    mine = (number for number, group in enumerate(groups) if file in group.split())
    return next(mine, len(groups))


def group_of(
    nodeid: str,
    subjects: Sequence[str],
    groups: Sequence[str],
    by_model: bool,
    apart: tuple[str, ...] = (),
) -> str:
    """The group of a test: its files, and the number of its model among ``subjects``.

    With ``by_model`` the number alone, unless the test has no model.  In folders ``apart`` also
    the name of its function.
    """
    subject = toy.subject_of(nodeid, subjects)
    number = str(subjects.index(subject)) if subject else ""
    if number and by_model:
        return number
    index = turn(nodeid, groups)
    file, _, test = nodeid.removeprefix("::").partition("::")
    name = test.partition("[")[0] if any(folder in file for folder in apart) else ""
    file = groups[index].split()[0] if index < len(groups) else file
    return "-".join(filter(None, [PurePath(file).stem, name, number]))
