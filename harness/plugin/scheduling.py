"""Assigns claims to the worker processes of pytest-xdist, so that models are loaded seldom.

`--dist loadfile` keeps the claims of a file together, since they share what is costly, but hands
a worker all models of a file before the next file: each model is loaded again for every file.
Here a unit of work is a file on one model, and a worker stays with its model as long as there is
work on it: a model is loaded once by a worker at most, and by few workers where there are many
models.  What is left then goes to whoever is free.  Of a model's files those with laws come first,
as laws do within a file.

Files whose claims share what is costly, such as descents, are one unit
(`harness.plugin.together`).

xdist has no public way to say which unit a worker gets next: marks and `--dist loadgroup` only
name the units.  So `_split_scope`, which its documentation says to override, and
`_assign_work_unit`, which it does not, are overridden here; all else is the public `Scheduling`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from assay.harness.plugin import together, toy

BETWEEN = "\n"
"""Stands between files and model in the name of a unit; in neither of them."""


class BySubject(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """xdist's schedule by files, with a model to every unit."""

    def __init__(
        self,
        config: pytest.Config,
        log: Any,
        models: Sequence[str],
        groups: Sequence[str] = (),
    ) -> None:
        super().__init__(config, log)
        self.models = models
        self.groups = groups
        self._places: dict[str, int] = {}

    def _split_scope(self, nodeid: str) -> str:
        """The unit of a test: its files, and the model that it runs on if it is a claim."""
        file = super()._split_scope(nodeid)
        group = together.turn(nodeid, self.groups)
        files = self.groups[group] if group < len(self.groups) else file
        return f"{files}{BETWEEN}{toy.subject_of(nodeid, self.models)}"

    def _assign_work_unit(self, node: Any) -> None:
        """Give ``node`` a unit of the model it has, or else of the one with the fewest workers."""
        mine = self._has(node)
        busy = Counter(self._has(other) for other in self.assigned_work if other is not node)
        waiting = [_model(unit) for unit in self.workqueue]
        left = Counter(waiting)
        wanted = min(
            dict.fromkeys(waiting),
            key=lambda model: (model != mine, busy[model], -left[model]),
        )
        units = (unit for unit in self.workqueue if _model(unit) == wanted)
        unit = min(units, key=self._place)
        self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)

    def _place(self, unit: str) -> int:
        """Where the unit's first test stands in the collection, which has laws first."""
        if not self._places:
            self._places = {test: place for place, test in enumerate(self.collection)}
        return min(self._places[test] for test in self.workqueue[unit])

    def remove_node(self, node: Any) -> str | None:
        """Take the work of a worker that ended; the test that it crashed in is not run again.

        xdist would run it again, and have it kill one worker after another.
        """
        units = self.assigned_work[node]
        pending = [(unit, test) for unit in units.values() for test in unit if not unit[test]]
        if not pending:
            return super().remove_node(node)
        (unit, crashed), *_ = pending
        unit[crashed] = True
        # A worker that is given a unit without work would wait for ever.
        for name in [name for name, tests in units.items() if all(tests.values())]:
            del units[name]
        super().remove_node(node)
        return crashed

    def _has(self, node: Any) -> str | None:
        """The model of the unit that ``node`` was given last."""
        units = list(self.assigned_work.get(node, ()))
        return _model(units[-1]) if units else None


def _model(unit: str) -> str:
    return unit.partition(BETWEEN)[2]
