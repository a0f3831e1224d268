"""Claims on models in one environment, run into the evidence past models that end the process."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.harness import __version__
from assay.harness.results.evidence import Evidence
from assay.harness.results.verdicts import Verdict
from assay.harness.runners import elsewhere
from assay.harness.runners.environments import Environment

PACKAGE = "transformers"

CRASHES = 8
"""Models that may take the process down before a version is given up."""

SETTLED = (0, 1)
NOTHING_SELECTED = 5


@dataclass(frozen=True)
class Settings:
    """What is run, and how: the options of claims by their names, None where theirs is to hold.

    ``claims`` are those of ``--claim``, ``keyword`` and ``marker`` pytest's ``-k`` and ``-m``;
    ``again`` runs what has been run to its end, too.
    """

    profile: str
    seed: int = 0
    claims: Sequence[str] = ()
    keyword: str = ""
    marker: str = "law"
    device: str | None = None
    dtype: str | None = None
    attention: str | None = None
    attends: str | None = None
    again: bool = False


@dataclass
class Row:
    """What came of one version: how many claims by verdict, or in one line why it has none."""

    version: str
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    why: str = ""
    notes: list[str] = field(default_factory=list)


class Matrix:
    """Runs the claims of one version into the evidence, past models that end the process."""

    def __init__(
        self,
        path: Path,
        specs: Sequence[str],
        settings: Settings,
        more: Sequence[str],
        run: Callable[[list[str]], int],
    ) -> None:
        self.path, self.specs, self.more = path, list(specs), list(more)
        self.settings, self.start = settings, run

    def fill(self, row: Row, environment: Environment) -> None:
        """Run what is missing; ``row`` is told what came of it."""
        left, again = list(self.specs), self.settings.again
        while again or not self.finished(environment):
            again, before = False, self._ends()
            try:
                code = self.start(elsewhere.command(environment, self._pytest(left)))
            except OSError as error:
                row.why = f"its Python does not run ({error})"
                break
            if code == NOTHING_SELECTED:
                row.why = "no claim was selected"
                break
            # A Python without pytest ends with 1, too.
            if code in SETTLED and self._ends() != before:
                break
            if code >= 0 or len(row.notes) >= CRASHES:
                row.why = f"its run did not come to its end ({elsewhere.died(code)})"
                break
            culprit = self.in_flight(environment, left)
            row.notes.append(f"{culprit}: the process died ({elsewhere.died(code)}); left out")
            left.remove(culprit)
            if not left:
                break
        row.counts = self.counts(environment)

    def _pytest(self, specs: Sequence[str]) -> list[str]:
        """Pytest's arguments; values in one piece, so that none is taken for a test's path."""
        models = [f"--model={os.path.abspath(s) if os.path.exists(s) else s}" for s in specs]
        asked = self.settings
        settings = {"profile": asked.profile, "seed": asked.seed, "evidence": self.path}
        for name in ("device", "dtype", "attention", "attends"):
            settings[name] = getattr(asked, name)
        given = [f"--{name}={value}" for name, value in settings.items() if value is not None]
        claims = [f"--claim={each}" for each in asked.claims]
        chosen = ["-m", asked.marker, "-k", asked.keyword]
        return [*chosen, *claims, *models, *given, "--absent-ok", "--resume", *self.more]

    def runs(self, environment: Environment | None = None) -> list[dict[str, Any]]:
        """The evidence's runs like this one, oldest first; of all versions unless one is named."""
        asked = self.settings
        like = {
            "suite": __version__,
            "profile": asked.profile,
            "seed": asked.seed,
            "dtype": asked.dtype or "float32",
            "attention": asked.attention,
        }
        selection = {
            "numbers": sorted(asked.claims),
            "keyword": asked.keyword,
            "marker": asked.marker,
        }
        with Evidence.open(self.path) as opened:
            runs = opened.runs()
        packages = (PACKAGE, "torch")
        return [
            run
            for run in runs
            if all(run[name] == value for name, value in like.items())
            and run.get("attends") == asked.attends
            and run["device"].split(" ")[0] == (asked.device or "cpu")
            and all(run.get("selection", {}).get(k) == value for k, value in selection.items())
            and (
                environment is None
                or all(run["versions"][p] == environment.versions[p] for p in packages)
            )
        ]

    def finished(self, environment: Environment) -> bool:
        """Whether a run like this one has come to its end, with every model in it."""
        return any(
            run["finished"] and set(self.specs) <= set(run["subjects"])
            for run in self.runs(environment)
        )

    def _ends(self) -> set[tuple[str, str]]:
        """The runs that have come to their end, and when."""
        with Evidence.open(self.path) as opened:
            return {(run["id"], run["finished"]) for run in opened.runs() if run["finished"]}

    def in_flight(self, environment: Environment, left: Sequence[str]) -> str:
        """The model that claims were run on when the process died.

        Models are run in order: it is the first that has not got all its results.
        """
        runs = self.runs(environment)
        if not runs or runs[-1]["finished"]:
            return left[0]
        with Evidence.open(self.path) as opened:
            results = opened.results(runs[-1]["id"])
        number = Counter(result.subject for result in results)
        short = [spec for spec in left if number[spec] < runs[-1].get("per_subject", 1)]
        return next(iter(short), left[-1])

    def counts(self, environment: Environment) -> dict[str, int]:
        """How many claims of the latest run came to what."""
        runs = self.runs(environment)
        if not runs:
            return {}
        with Evidence.open(self.path) as opened:
            results = opened.results(runs[-1]["id"])
        return {v.value: sum(r.verdict is v for r in results) for v in Verdict}
