"""How claims are dealt to xdist's workers: where there are many models, model by model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness import options


def subject_of(nodeid: str, subjects: Sequence[str]) -> str | None:
    """The subject that a test's id names, which is the first of its parameters."""
    _, bracket, parameters = nodeid.partition("[")
    fitting = [s for s in subjects if bracket and parameters.startswith((f"{s}]", f"{s}-"))]
    return max(fitting, key=len, default=None)


class Dealer:
    """A plug-in of the controlling process.

    Dealt one by one or by file, every model would be loaded by every worker, and again for every
    file.  With many models all claims on one go to one worker.  With fewer than twice as many as
    there are workers the user's own ``--dist`` stands.
    """

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """The scheduler, or None for xdist's own."""
        from xdist.scheduler import LoadScopeScheduling

        subjects = options.models(config)
        dealt = config.getvalue("dist") in ("load", "loadfile", "loadscope", "worksteal")
        if not dealt or len(subjects) < 2 * len(config.getvalue("tx") or ()):
            return None

        class Scheduler(LoadScopeScheduling):
            def _split_scope(self, nodeid: str) -> str:
                return subject_of(nodeid, subjects) or super()._split_scope(nodeid)

        return Scheduler(config, log)
