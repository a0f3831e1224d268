"""The sentences and the order of results that terminal and page share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from assay.harness.report.texts import clipped, counted, large
from assay.harness.results.records import RunRecord, SubjectRecord
from assay.harness.results.verdicts import Counterexample, Kind, Result, Verdict, number_order

Judgements = Mapping[tuple[str, str], str]
"""The judgement of a verdict in this run, by claim name and subject: ``expected: …``."""

SYMBOLS = {
    Verdict.UPHELD: "✓",
    Verdict.REFUTED: "✗",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NOT_APPLICABLE: "–",
}

MEANINGS = (
    (
        "Law or finding",
        "A law follows from the architecture and holds for every input; a finding says something"
        " about particular weights.",
    ),
    (
        "Upheld",
        "No input tried exceeded what is allowed; for a finding the whole 95\u00a0%"
        " interval is on the claimed side.",
    ),
    (
        "Refuted",
        "An input broke the law, and it is shown with the command that replays it; for a finding"
        " the whole interval is on the other side.",
    ),
    (
        "Inconclusive",
        "Not decided: the budget was too small, or the control did not show that the check"
        " can fail. It is never counted as a pass.",
    ),
    (
        "Not applicable",
        "The model lacks a capability that the claim requires; the reason names it.",
    ),
)
"""What the verdicts mean, in five lines."""

LONGEST_REASON = 120
"""Characters of the reason why claims were not examined."""

MOST_FIELDS = 5
"""Fields of config.json that are named, of those that a model does not honour."""

MOST_IDS = 12
"""The most ids of refuted findings in one sentence."""


def tally(results: Iterable[Result]) -> dict[Verdict, int]:
    """The number of results of every verdict, in the order of `Verdict`."""
    counts = Counter(result.verdict for result in results)
    return {verdict: counts[verdict] for verdict in Verdict}


def catalogue_order(result: Result) -> tuple[list[str | int], str]:
    """A sort key by which A2 comes before A10."""
    return number_order(result.id), result.name


def by_subject(run: RunRecord, results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results per subject, subjects in the run's order, claims in the catalogue's order."""
    groups: dict[str, list[Result]] = {name: [] for name in run.subjects}
    for result in results:
        groups.setdefault(result.subject, []).append(result)
    return {name: sorted(rows, key=catalogue_order) for name, rows in groups.items() if rows}


def meant(subject: SubjectRecord) -> str:
    """Whether a model is meant to be causal, and why; empty where the run does not say."""
    attends = subject.attends
    if not attends.why:
        return ""
    ways = {"causal": "meant to be causal", "both": "meant to attend both ways"}
    return f"{ways.get(str(attends.ways), 'neither causal nor bidirectional')}: {attends.why}"


def not_honoured(subject: SubjectRecord, all_of_them: bool = False) -> list[str]:
    """What config.json says and a model has not, a line for each field; the first few of many."""
    lines = subject.not_honoured
    more = 0 if all_of_them else len(lines) - MOST_FIELDS
    if more <= 0:
        return lines
    return [*lines[:MOST_FIELDS], f"and {counted(more, 'more field')} (--explain names them)"]


def by_kind(results: Iterable[Result]) -> tuple[list[Result], list[Result]]:
    """Laws and findings, separately."""
    kinds: dict[Kind, list[Result]] = {kind: [] for kind in Kind}
    for result in results:
        kinds[result.kind].append(result)
    return kinds[Kind.LAW], kinds[Kind.FINDING]


def none_examined(results: Sequence[Result]) -> bool:
    """Whether there are results, and none of the claims applies."""
    return bool(results) and all(r.verdict is Verdict.NOT_APPLICABLE for r in results)


def headline(results: Sequence[Result], run: RunRecord | None = None, missing: int = 0) -> str:
    """One sentence on how many laws hold, on which subject; without laws, on findings.

    And what was not examined: claims about capabilities that a subject is expected to have and
    lacks (``run`` says which), or that cannot be checked here.  ``missing`` claims of a run that
    was stopped have no verdict.
    """
    laws, findings = by_kind(results)
    stopped = f"Stopped: {counted(missing, 'claim')} without a verdict. " if missing else ""
    if not results:
        return f"{stopped}No claim was checked."
    subjects = list(dict.fromkeys(result.subject for result in results))
    where = subjects[0] if len(subjects) == 1 else f"{len(subjects)} subjects"
    kind, verb = (Kind.LAW, "hold") if laws else (Kind.FINDING, "are upheld")
    counts = tally(laws or findings)
    total = sum(counts.values()) - counts[Verdict.NOT_APPLICABLE]
    upheld = counts[Verdict.UPHELD]
    if unexamined := _unexamined(laws or findings, run):
        unexamined = f"; not examined: {unexamined}"
    if total == 0:
        return f"{stopped}No {kind} {'was examined' if unexamined else 'applies'} " + (
            f"on {where}{unexamined}." if unexamined else f"to {where}."
        )
    noun = f"{kind}s that apply" if len(subjects) == 1 else f"checks of {kind}s"
    one = {"hold": "holds", "are upheld": "is upheld"}[verb]
    broken = "broken" if laws else "refuted"
    if unexamined:
        noun = f"examined {noun.removesuffix(' that apply')}"
    elif total == 1 and len(subjects) == 1:
        fate = one if upheld else f"is {broken}" if counts[Verdict.REFUTED] else "is not decided"
        return f"{stopped}The one {kind} that applies to {where} {fate}."
    elif upheld == total:
        return f"{stopped}All {total} {noun} {verb} on {where}."
    as_expected = sum(
        row.verdict is Verdict.REFUTED and row.expected is not None for row in laws or findings
    )
    rest = [
        _is_are(counts[Verdict.REFUTED] - as_expected, broken),
        _is_are(as_expected, f"{broken} as expected"),
        _is_are(counts[Verdict.INCONCLUSIVE], "not decided"),
    ]
    failures = _listed([*filter(None, rest)])
    sentence = f"{upheld} of {total} {noun} {one if upheld == 1 else verb} on {where}"
    return f"{stopped}{sentence}{f'; {failures}' if failures else ''}{unexamined}."


def _unexamined(results: Iterable[Result], run: RunRecord | None) -> str:
    """What was not examined, by capability: ``cache (41 laws: why), adapters (10 laws: why)``."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        subject = None if run is None else run.subjects.get(result.subject)
        lacks = {} if subject is None else subject.recorded.lacks
        if why := lacks.get(result.capability):
            groups.setdefault(why, []).append(result)
        elif result.unavailable:
            groups.setdefault(result.reason.partition(": ")[2] or result.reason, []).append(result)
    parts = (
        (_label(rows[0]), counted(len(rows), rows[0].kind.value), clipped(why, LONGEST_REASON))
        for why, rows in groups.items()
    )
    return ", ".join(f"{capability} ({count}: {why})" for capability, count, why in parts)


def _label(result: Result) -> str:
    """The capability for want of which a claim was not examined, else the claim's number."""
    return result.capability if ": " in result.reason else result.id


def _is_are(amount: int, what: str) -> str:
    if amount == 0:
        return ""
    return f"{amount} {'is' if amount == 1 else 'are'} {what}"


def _listed(parts: Sequence[str]) -> str:
    """``a, b and c``; empty for none."""
    *most, last = parts or [""]
    return f"{', '.join(most)} and {last}" if most else last


def of_findings(results: Sequence[Result]) -> str:
    """A sentence on the findings that apply, with laws: ``Of 3 findings, 2 are upheld …``."""
    laws, findings = by_kind(results)
    counts = tally(findings)
    counts.pop(Verdict.NOT_APPLICABLE)
    total = sum(counts.values())
    if not laws or not total:
        return ""
    parts = [_is_are(n, str(verdict)) for verdict, n in counts.items() if n]
    if total == 1:
        return f"The one finding {parts[0].removeprefix('1 ')}."
    return f"Of {total} findings, {_listed(parts)}."


def asides(run: RunRecord, results: Sequence[Result]) -> list[str]:
    """Sentences that follow the lines of `closing`: on findings, and on a run that did not end."""
    lines = []
    _, findings = by_kind(results)
    if sentence := of_findings(results):
        lines.append(sentence)
    refuted = dict.fromkeys(r.id for r in findings if r.verdict is Verdict.REFUTED)
    if refuted:
        ellipsis = ", …" if len(refuted) > MOST_IDS else ""
        lines.append(f"Refuted: {', '.join([*refuted][:MOST_IDS])}{ellipsis}.")
    if results and run.finished is None:
        lines.append("This run did not finish; it shows the results so far.")
    return lines


def versions(run: RunRecord) -> list[str]:
    """``["python 3.11.2", "torch 2.13.0", …]`` in the run's own order."""
    return [f"{name} {value}" for name, value in run.versions.items()]


def shape(facts: SubjectRecord) -> str:
    """A subject in one line: ``gpt2, 4 layers × 256, 4.2 M parameters, 4096 tokens``.

    An absent one has only a reason.
    """
    if why := facts.missing.get("model"):
        return f"not here: {why}"
    words = [facts.model_type] if facts.model_type else []
    if facts.hidden:
        words.append(f"{facts.layers} layers × {facts.hidden}")
    if facts.parameters:
        words.append(f"{large(facts.parameters)} parameters")
    if facts.vocabulary:
        words.append(f"vocabulary {facts.vocabulary}")
    if facts.context is not None:
        words.append(f"context {facts.context}")
    return ", ".join(words)


def counterexample(result: Result) -> Counterexample:
    """The counterexample, with the result's own numbers where it has none."""
    example = result.counterexample or Counterexample()
    observed = result.observed if example.observed is None else example.observed
    allowed = result.bound if example.allowed is None else example.allowed
    return replace(example, observed=observed, allowed=allowed)
