"""Assigns claims to the worker processes of pytest-xdist, so that models are seldom loaded.

`--dist loadfile` keeps the claims of a file together, since they share costly work, but hands
a worker all models of a file before the next file: each model is loaded again for every file.
Here a unit of work is a file on one model, and a worker stays with its model as long as there is
work for it: a worker loads a model at most once, and few workers load it where there are many
models.  The rest then goes to free workers.  Of a model's files those with laws come first,
as laws do within a file.

Files whose claims share costly work, such as descents, are one unit
(`harness.plugin.together`).

xdist has no public way to choose the unit that a worker gets next: marks and `--dist loadgroup`
only name the units.  So `_split_scope`, which its documentation says to override, and
`_assign_work_unit`, which it does not, are overridden here; the rest is the public `Scheduling`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from assay.harness.plugin import together, toy

BETWEEN = "\n"
"""Separates files and model in the name of a unit; occurs in neither of them."""


class BySubject(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """xdist's schedule by files, with one model for each unit."""

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
        """Assign ``node`` a unit of its model, or else of the model with the fewest workers."""
        mine = self._has(node)
        busy = Counter(self._has(other) for other in self.assigned_work if other is not node)
        waiting = [_model(unit) for unit in self.workqueue]
        left = Counter(waiting)
        chosen = min(
            dict.fromkeys(waiting),
            key=lambda model: (model != mine, busy[model], -left[model]),
        )
        units = (unit for unit in self.workqueue if _model(unit) == chosen)
        unit = min(units, key=self._place)
        self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)

    def _place(self, unit: str) -> int:
        """The position of the unit's first test in the collection, which has laws first."""
        if not self._places:
            self._places = {test: position for position, test in enumerate(self.collection)}
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
        # A worker with a unit without work would wait for ever.
        for name in [name for name, tests in units.items() if all(tests.values())]:
            del units[name]
        super().remove_node(node)
        return crashed

    def _has(self, node: Any) -> str | None:
        """The model of the last unit of ``node``."""
        units = list(self.assigned_work.get(node, ()))
        return _model(units[-1]) if units else None


def _model(unit: str) -> str:
    return unit.partition(BETWEEN)[2]
