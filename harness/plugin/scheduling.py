"""Which tests one worker process of pytest-xdist runs, with ``--dist loadfile``.

Its hook `pytest_xdist_make_scheduler` is public; xdist's own schedulers by file and by group
override `LoadScopeScheduling._split_scope` alone, as this one does.  Its mark `xdist_group` would
do as well, but xdist up to 3.8 ignores it with pytest 9.2 (pytest-xdist #1386).
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from assay.harness.plugin import together
from assay.harness.plugin.request import RunRequest

MANY = 2
"""Models for each worker from which on one worker runs all claims of a model."""


class Grouped(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """xdist's schedule by groups of tests (`harness.plugin.together`), as they were collected."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # laws were collected first
        super().__init__(config, log)
        self._subjects = RunRequest.of(config).subjects
        self._lines, self._apart = together.lines(config), together.apart(config)
        models = len(RunRequest.of(config).models)
        self._by_model = models >= MANY * len(config.getoption("tx") or ())

    def _split_scope(self, nodeid: str) -> str:
        """The group of a test."""
        return together.group_of(nodeid, self._subjects, self._lines, self._by_model, self._apart)
