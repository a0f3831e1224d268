"""Runs claims on many models into one evidence file, past models that crash the process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from assay.harness.results.evidence import Evidence
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Result, Verdict
from assay.harness.runners import runner
from assay.harness.runners.environments import Environment
from assay.harness.runners.runner import FAILED, Outcome, Request, Settings, Start

CRASHES = 8
"""How many models may crash the process before a run is abandoned."""

PACKAGE = "transformers"
"""The package whose versions the claims run on."""

PACKAGES = (PACKAGE, "torch")
"""Packages whose versions distinguish runs."""


@dataclass(frozen=True)
class Resumable:
    """Claims on ``models`` with ``settings``, to be run into the file ``evidence`` once.

    ``pytest_arguments`` are further arguments; its output goes to ``show``, or nowhere for None:
    then it has so many ``threads``.  ``start`` runs the process.
    """

    evidence: Path
    models: Sequence[str]
    settings: Settings
    pytest_arguments: Sequence[str] = ()
    show: IO[str] | None = None
    start: Start = runner.process
    threads: int = 1

    def run(self, environment: Environment, again: bool = False) -> Outcome:
        """Run the missing claims in an environment, or all of them ``again``.

        A model that crashes the process is left out with a line in the outcome's ``notes``.
        """
        left, notes, why, began = list(self.models), list[str](), "", time.monotonic()
        while again or not self.finished(environment):
            again = False
            outcome = runner.run(self._request(environment, left), self.start)
            if outcome.state != FAILED:
                break
            code = outcome.code
            if code is None or code >= 0 or len(notes) >= CRASHES:
                why = outcome.why
                break
            culprit = self.in_flight(environment, left)
            notes.append(f"{culprit}: the process died ({runner.died(code)}); left out")
            left.remove(culprit)
            if not left:
                break
        results = self.results(environment)
        verdicts = {v.value: sum(r.verdict is v for r in results) for v in Verdict}
        return Outcome(
            *(FAILED if why or notes else runner.HELD, why, None, time.monotonic() - began),
            *(verdicts if results else {}, results, notes),
        )

    def _request(self, environment: Environment, models: Sequence[str]) -> Request:
        return Request(
            python=environment.python,
            models=models,
            settings=self.settings,
            evidence=self.evidence,
            pytest_arguments=["-o", "absent_ok=true", "--resume", *self.pytest_arguments],
            variables={} if self.show else {"OMP_NUM_THREADS": str(self.threads)},
            show=self.show,
        )

    def runs(self, environment: Environment | None = None) -> list[RunRecord]:
        """The evidence's runs like this one, oldest first; of all versions unless one is given."""
        versions = environment.versions if environment else {}
        same = {name: versions[name] for name in PACKAGES if name in versions}
        with Evidence.open(self.evidence) as opened:
            return [run for run in opened.runs() if self.settings.match(run, same)]

    def finished(self, environment: Environment) -> bool:
        """Whether a run like this one has finished, with every model in it."""
        return any(
            run.finished and set(self.models) <= set(run.subjects)
            for run in self.runs(environment)
        )

    def in_flight(self, environment: Environment, left: Sequence[str]) -> str:
        """The model that claims were run on when the process died.

        Models are run in order: it is the first that does not have all its results.
        """
        runs = self.runs(environment)
        if not runs or runs[-1].finished:
            return left[0]
        number = Counter(result.subject for result in self._recorded(runs[-1]))
        each = runs[-1].per_subject
        short = [model for model in left if number[model] < (1 if each is None else each)]
        return next(iter(short), left[-1])

    def results(self, environment: Environment) -> list[Result]:
        """The results on these models of the latest run that has any of them."""
        models = set(self.models)
        similar = [run for run in self.runs(environment) if models & set(run.subjects)]
        recorded = self._recorded(similar[-1]) if similar else []
        return [result for result in recorded if result.subject in models]

    def _recorded(self, run: RunRecord) -> list[Result]:
        with Evidence.open(self.evidence) as opened:
            return opened.results(run.id)
