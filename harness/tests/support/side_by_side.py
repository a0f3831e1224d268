"""The tables of docs/real-models.md: verdicts on several models, from runs' JSON.

``python harness/tests/support/side_by_side.py docs/real-models.json docs/real-models.md`` writes
them from what is stored.  Further arguments ``NAME=RUN.json`` first add runs about the models of
these names; claims of the five documents are stored.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from assay.harness.report import texts
from assay.harness.report.intervals import together
from assay.harness.report.words import SYMBOLS
from assay.harness.results.verdicts import DECADES, Verdict

OF_DOCUMENTS = re.compile(r"\b00[0-4]\b")
"""In the source of a claim of the five documents."""

MARK = "<!-- Written by: python harness/tests/support/side_by_side.py -->\n"
"""The tables come after it; what is before it is written by hand."""

ORDER = ("refuted", "upheld", "inconclusive")
"""The verdict of a law with several variants is the first that one of them has."""

SAID = ("model_type", "parameters", "layers", "hidden", "vocabulary", "dtype")
"""What is kept of a model."""

REASON = 90
"""Letters of the reason for which a claim is not decided."""

DIFFER, AGREE = "Where the models differ", "Where they agree"
LONE = "Decided on one of them"
"""Titles of the tables.  A claim that no model decides, or that only the first has, has no row."""

Stored = dict[str, Any]

Row = tuple[str, dict[str, str], dict[str, str]]
"""A claim's sentence, and by model the verdict and the table's cell."""


def keep(stored: Stored, name: str, run: dict[str, Any]) -> None:
    """Add a run about one model, as `--json` wrote it, to what is ``stored`` under ``name``.

    A claim is replaced unless it is decided and the run did not decide it.  Claims about the
    networks that Assay makes itself, which run once beside the first model, are left out.
    """
    model, subject = next(iter(run["run"]["subjects"].items()))
    versions = {each: run["run"]["versions"][each] for each in ("torch", "transformers")}
    profiles = {*stored["models"].get(name, {}).get("profiles", ()), run["run"]["profile"]}
    described = {key: subject[key] for key in SAID} | {"profiles": sorted(profiles)}
    stored["models"][name] = described | versions
    for claim in run["claims"]:
        applies = claim["subject"] == model and claim["verdict"] != "not applicable"
        if not applies or not OF_DOCUMENTS.search(claim["source"]):
            continue
        kept = {key: claim[key] for key in ("verdict", "observed", "margin", "interval")}
        kept["reason"] = texts.clipped(claim["reason"], REASON)
        row = stored["claims"].setdefault(f"{claim['id']} {claim['name']}", {})
        row["kind"], models = claim["kind"], row.setdefault("models", {})
        if name not in models or claim["verdict"] != "inconclusive":
            models[name] = kept


def page(stored: Stored) -> str:
    """The tables in Markdown: models, where they differ, where they agree, and the rest."""
    models = list(stored["models"])
    lines = ["| model | type | parameters | blocks × width | tokens | dtype | profiles |"]
    lines.append("|---|---|---:|---:|---:|---|---|")
    for name, each in stored["models"].items():
        size = f"{each['layers']} × {each['hidden']}"
        numbers = texts.large(each["parameters"]), size, each["vocabulary"]
        said = name, each["model_type"], *numbers, each["dtype"], ", ".join(each["profiles"])
        lines.append(f"| {' | '.join(map(str, said))} |")
    parts: dict[str, list[Row]] = {DIFFER: [], AGREE: [], LONE: []}
    for row in _rows(stored):
        decided = [each for each in row[1].values() if each != "inconclusive"]
        if decided and row[1].keys() - {models[0]}:
            alike = DIFFER if len(set(decided)) > 1 else AGREE
            parts[alike if len(decided) > 1 else LONE].append(row)
    for title, chosen in parts.items():
        lines += ["", f"## {title}", "", f"| claim | {' | '.join(models)} |"]
        lines.append("|---|" + "---|" * len(models))
        for label, _, cells in chosen:
            lines.append(f"| {label} | {' | '.join(cells.get(each, '–') for each in models)} |")
    return "\n".join(lines) + "\n"


def _rows(stored: Stored) -> list[Row]:
    """The rows of all tables: a finding has one for each variant, and a law one for all."""
    grouped: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for label, row in stored["claims"].items():
        alike = label if row["kind"] == "finding" else re.sub(r" \[[^]]*\]$", "", label)
        for name, each in row["models"].items():
            grouped.setdefault(alike, {}).setdefault(name, []).append(each)
    rows = []
    for label in sorted(grouped, key=lambda each: (each[0], int(each[1:].split()[0]), each)):
        finding = stored["claims"].get(label, {}).get("kind") == "finding"
        worst = {name: _worst(every) for name, every in grouped[label].items()}
        cells = {}
        for name, each in worst.items():
            number = _statistic(each) if finding else _decades(each["margin"])
            undecided = sum(other["verdict"] == "inconclusive" for other in grouped[label][name])
            some = undecided and each["verdict"] != "inconclusive"
            more = f" ({undecided} of {len(grouped[label][name])} undecided)" if some else ""
            cells[name] = f"{SYMBOLS[Verdict(each['verdict'])]} {number}".strip() + more
        rows.append((label, {name: each["verdict"] for name, each in worst.items()}, cells))
    return rows


def _worst(every: list[dict[str, Any]]) -> dict[str, Any]:
    """The variant whose verdict comes first in `ORDER`, with the least margin."""

    def key(each: dict[str, Any]) -> tuple[int, float]:
        return ORDER.index(each["verdict"]), DECADES if each["margin"] is None else each["margin"]

    return min(every, key=key)


def _statistic(each: dict[str, Any]) -> str:
    """A finding's statistic with its interval; empty where none was measured."""
    return "" if each["observed"] is None else together(each["observed"], each["interval"])


def _decades(margin: float | None) -> str:
    """A law's margin in powers of ten; empty where there is none, or nothing rounds."""
    return "" if margin is None or abs(margin) >= DECADES else f"{margin:+.1f}"


def main(file: str, markdown: str, *runs: str) -> None:
    """Add the ``runs`` to the ``file`` and write the tables of the page ``markdown`` again."""
    path, target = Path(file), Path(markdown)
    stored = json.loads(path.read_text()) if path.exists() else {"models": {}, "claims": {}}
    for each in runs:
        name, _, run = each.partition("=")
        keep(stored, name, json.loads(Path(run).read_text()))
    lines = [f"{_json(label)}: {_json(row)}" for label, row in sorted(stored["claims"].items())]
    models, claims = _json(stored["models"]), ",\n".join(lines)
    path.write_text(f'{{"models": {models},\n"claims": {{\n{claims}\n}}}}\n')
    before = target.read_text().partition(MARK)[0] if target.exists() else ""
    target.write_text(before + MARK + "\n" + page(stored))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
