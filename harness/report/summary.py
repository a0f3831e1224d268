"""A run in Markdown: for the summary that a CI job shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.harness.report import texts, words
from assay.harness.report.words import Judgements
from assay.harness.results.errors import BadInput
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Result, Verdict

LONGEST = 300
"""Characters of a cell."""


def markdown(run: RunRecord, results: Sequence[Result], judgements: Judgements) -> str:
    """Counts of verdicts by model, and a table of refuted and undecided claims."""
    title = ", ".join(words.by_subject(run, results)) or "no claims"
    lines = [f"### Assay: {_cell(title)}", ""]
    counts = words.tally(results)
    lines += [", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n) or "no results"]
    about = [f"profile {run.profile}", str(run.dtype), str(run.device)]
    lines += ["", _cell(", ".join([*about, *words.versions(run)]))]
    shown = [r for r in results if r.verdict in (Verdict.REFUTED, Verdict.INCONCLUSIVE)]
    if shown:
        lines += ["", "| claim | model | verdict | why |", "|---|---|---|---|"]
        for result in sorted(shown, key=lambda each: each.verdict is not Verdict.REFUTED):
            why = judgements.get((result.name, result.subject)) or result.reason
            cells = (f"{result.id} {result.name}", result.subject, result.verdict.value, why)
            lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    for result in shown:
        replay = result.counterexample and result.counterexample.replay
        if replay and result.verdict is Verdict.REFUTED:
            lines += ["", f"Replay {result.id} with", "", "```", replay.replace("`", "'"), "```"]
    return "\n".join(lines) + "\n\n"


def append(path: Path, text: str) -> None:
    """Append ``text`` to a file, which earlier steps may have written to; raises `BadInput`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadInput(f"--report {path}: cannot be written ({error.strerror})") from error


def _cell(text: str) -> str:
    """Text without syntax of Markdown or HTML."""
    plain = texts.visible(" ".join(text.split()))
    if len(plain) > LONGEST:
        plain = plain[: LONGEST - 1] + "…"
    for sign in "\\`*_[]<>|#":
        plain = plain.replace(sign, f"\\{sign}")
    return plain
