"""The result file of `assay gpu`: timings and verdicts of all steps, written as it goes.

It has the form of pytest-benchmark's JSON, which `assay compare` and `assay card` read: a step of
claims is a benchmark with one round.  Under ``assay_gpu`` stands the state of every step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.harness.models import runs
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import replace_file
from assay.harness.results.verdicts import Result, Verdict

FORM = 1
"""The version of what stands under ``assay_gpu``."""

DONE, CUT, FAILED, SKIPPED = "done", "cut", "failed", "skipped"
"""States of a step: it ended; its time was over; it did not end well; the machine has not what it
needs."""

GB = 1e9

SAME = ("device", "card", "driver", "rehearsal", "torch", "transformers", "assay")
"""Facts in which a resumed run must agree with its file."""


class ResultFile:
    """The file ``path``: ``steps`` by key, and ``entries`` as pytest-benchmark has them."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.steps: dict[str, dict[str, Any]] = {}
        self.entries: dict[str, dict[str, Any]] = {}
        self.started = runs.now()

    @classmethod
    def resumed(cls, path: Path, about: Mapping[str, Any]) -> ResultFile:
        """The unfinished results at ``path``; raises `BadInput` if they are of another kind."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            own, entries = content["assay_gpu"], content["benchmarks"]
            before, steps = dict(own["about"]), dict(own["steps"])
            found = {each["fullname"]: dict(each) for each in entries}
            started = str(own["started"])
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror or error}") from error
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise BadInput(f"{path}: is not a result of `assay gpu` ({error})") from error
        for name in SAME:
            if before.get(name) != about.get(name):
                raise BadInput(
                    f"{path}: cannot be resumed here, {name} was {before.get(name)} and is "
                    f"{about.get(name)}; give another --out"
                )
        result = cls(path, about)
        result.steps, result.entries, result.started = steps, found, started
        return result

    def write(self) -> None:
        """Replace the file."""
        content = {
            "machine_info": self.about,
            "commit_info": {},
            "benchmarks": list(self.entries.values()),
            "datetime": runs.now(),
            "version": "assay",
            "assay_gpu": {
                "form": FORM,
                "started": self.started,
                "about": self.about,
                "steps": self.steps,
            },
        }
        replace_file(self.path, json.dumps(content, indent=1) + "\n")

    def settle(self, key: str, state: str, why: str, seconds: float, **more: Any) -> None:
        """Note how a step ended, and write."""
        self.steps[key] = {"state": state, "why": why, "seconds": round(seconds, 1), **more}
        self.write()

    def is_done(self, key: str) -> bool:
        """Whether a step needs not be run again."""
        return self.steps.get(key, {}).get("state") in (DONE, SKIPPED)

    def take(self, entries: Sequence[Mapping[str, Any]]) -> bool:
        """Add benchmarks; whether any of them is new."""
        new = [dict(each) for each in entries if self.entries.get(each["fullname"]) != each]
        self.entries.update({each["fullname"]: each for each in new})
        return bool(new)


def figure(
    benchmark: str, what: str, value: float, goal: float | None = None, at_most: bool = True
) -> dict[str, Any]:
    """A figure of one round, as the benchmarks record theirs."""
    met = None if goal is None else (value <= goal if at_most else value >= goal)
    same = {"reached": value, "low": value, "high": value}
    return {"benchmark": benchmark, "what": what, **same, "goal": goal, "at_most": at_most} | {
        "met": met
    }


def of_claims(
    key: str,
    results: Sequence[Result],
    about: Mapping[str, Any],
    seconds: float,
    peaks: Mapping[str, Any],
    goals: Mapping[str, float],
) -> dict[str, Any]:
    """The entry of a step of claims: verdicts, time, and peak memory."""
    applied = [each for each in results if each.verdict is not Verdict.NOT_APPLICABLE]
    counts = {verdict: sum(each.verdict is verdict for each in applied) for verdict in Verdict}
    values: dict[str, float] = {
        "claims that applied": len(applied),
        "refuted": counts[Verdict.REFUTED],
        "inconclusive": counts[Verdict.INCONCLUSIVE],
        "seconds": seconds,
    }
    if peaks.get("peak"):
        values["GB on the GPU at the peak"] = peaks["peak"] / GB
    if peaks.get("resident"):
        values["GB resident at the peak"] = peaks["resident"] / GB
    for kernel, count in peaks.get("kernels", {}).items():
        values[f"attention calls: {kernel}"] = count
    figures = {name: figure(key, name, value, goals.get(name)) for name, value in values.items()}
    return {
        "name": key,
        "fullname": f"gpu/{key}",
        "stats": {"data": [max(seconds, 1e-9)]},
        "extra_info": {**about, **figures, "verdicts": verdicts(results)},
    }


def verdicts(results: Sequence[Result]) -> dict[str, str]:
    """The verdict of every claim, by its number, name and model."""
    return {f"{r.id} {r.name} on {r.subject}": r.verdict.value for r in results}
