"""The JSON of a comparison of two runs: its fields, and its schema."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from assay.harness.comparison.changes import Flip
from assay.harness.comparison.judging import ERROR, Compared, Comparison
from assay.harness.comparison.sides import Key, Side
from assay.harness.comparison.token_changes import TokenChange
from assay.harness.results.encoding import encode
from assay.harness.results.json_schema import Count, Name, Record, says, schema
from assay.harness.results.verdicts import Kind, Result, Verdict

VERSION: Final = 1
"""Version of the schema, raised when a key goes or changes its meaning, not for a new key."""


class SideRecord(Record):
    """A run, as it was named and as the evidence has it."""

    name: Annotated[Name, says("As the user named it.")]
    runs: Annotated[Count, says("How many it is made of; entries that differ are null.")]
    id: Annotated[str | None, says("Its key in the evidence.")]
    started: Annotated[str | None, says("ISO 8601, UTC.")]
    finished: Annotated[str | None, says("The same; null: it did not end.")]
    exit: Annotated[int | None, says("Exit code of the run.")]
    suite: Annotated[str | None, says("Version of Assay.")]
    profile: Annotated[str | None, says("Budgets.")]
    seed: Annotated[int | None, says("The seed that all draws come from.")]
    device: Annotated[str | None, says("Where it was computed.")]
    dtype: Annotated[str | None, says("Of the weights.")]


class ResultRecord(Record):
    """A claim's result in one run; see the schema of a run's report."""

    verdict: Annotated[Verdict, says("What it came to.")]
    observed: Annotated[float | None, says("What was measured.")]
    bound: Annotated[float | None, says("What is allowed.")]
    margin: Annotated[
        float | None, says("Law: powers of ten within the bound. Finding: half-widths.")
    ]
    interval: Annotated[tuple[float | None, float | None] | None, says("Of a finding: its ends.")]
    examples: Annotated[Count, says("Inputs tried.")]
    reason: Annotated[str, says("Why it did not apply or was not decided.")]


class ShiftRecord(Record):
    """By how much the number is larger after: a law's mean margin in powers of ten, a finding's
    statistic in its own unit (a median: that of the differences where they are paired).
    """

    shift: Annotated[float | None, says("After less before.")]
    interval: Annotated[
        tuple[float | None, float | None] | None,
        says("Its interval at the document's `confidence`; an end may be null: not finite."),
    ]
    p: Annotated[float, says("Of no shift at all.", ge=0, le=1)]
    adjusted: Annotated[float, says("The same after Benjamini and Hochberg.", ge=0, le=1)]
    size: Annotated[
        float | None,
        says("Law: powers of ten. Finding: spreads of one draw. Null: infinite."),
    ]
    draws: Annotated[Count, says("Examples or draws that were compared.")]
    paired: Annotated[bool, says("Whether each was compared with the same draw before.")]
    real: Annotated[bool, says("Whether `adjusted` is at most the document's `error`.")]
    drift: Annotated[bool, says("Whether it is also at least `least` in `size`.")]


class ClaimKey(Record):
    """A claim on a model."""

    id: Annotated[Name, says("The claim's lasting number.")]
    name: Annotated[Name, says("The claim in words.")]
    subject: Annotated[Name, says("The model.")]


class ClaimRecord(ClaimKey):
    """A claim on a model in both runs."""

    kind: Annotated[Kind, says("law or finding.")]
    flip: Annotated[
        Flip | None,
        says(
            "regression: refuted now and upheld or not applicable before, or upheld before and "
            "not applicable now for want of a capability; lost: upheld before and undecided now, "
            "or not applicable for another reason; gained: upheld now; unseen: the run that "
            "upheld the law did not come to the example that broke it in the other; other; null: "
            "the same verdict."
        ),
    ]
    vanished: Annotated[
        str | None, says("The capability that the model has no longer, if the claim needs it.")
    ]
    before: Annotated[ResultRecord, says("Before.")]
    after: Annotated[ResultRecord, says("After.")]
    claimed: Annotated[
        list[str] | None,
        says("What was claimed before and after (such as share ≥ 0.9), if it is not the same."),
    ]
    shift: Annotated[ShiftRecord | None, says("By how much its number moved.")]


class TextRecord(Record):
    """A model whose tokenizer gives the fixed text of H4 other ids."""

    subject: Annotated[Name, says("The model.")]
    line: Annotated[Count, says("The first line that differs, from 1.")]
    letter: Annotated[Count, says("The letter in it where the ids begin to differ, from 0.")]
    text: Annotated[str, says("The text from there on.")]
    before: Annotated[list[int], says("The next ids before.")]
    after: Annotated[list[int], says("The next ids after.")]


Pair = Annotated[list[Any], Meta(min_length=2, max_length=2)]


class ComparisonRecord(Record):
    """What became of the claims from one run to another."""

    schema: Annotated[Literal[1], says("Version of this schema.")]
    before: Annotated[SideRecord, says("The first run.")]
    after: Annotated[SideRecord, says("The second run.")]
    changed: Annotated[
        dict[str, Pair], says("Settings and versions that differ, by name: before and after.")
    ]
    compared: Annotated[Count, says("Claims on models that both runs have.")]
    judged: Annotated[Count, says("Those whose samples could be compared.")]
    paired: Annotated[bool, says("Whether both runs drew the same inputs.")]
    error: Annotated[float, says("The false-discovery rate of the drifts.")]
    confidence: Annotated[float, says("Of every interval; corrected for how many there are.")]
    least: Annotated[float, says("In `size`, of what is called a drift.")]
    regressions: Annotated[Count, says("Flips that are; the exit code is 1 if any.")]
    flips: Annotated[list[ClaimRecord], says("Claims with another verdict, regressions first.")]
    drifts: Annotated[list[ClaimRecord], says("Others whose number really moved, farthest first.")]
    unjudged: Annotated[
        list[ClaimRecord], says("Claims whose number moved, without samples to judge it.")
    ]
    gone: Annotated[list[ClaimKey], says("Only in the first run.")]
    new: Annotated[list[ClaimKey], says("Only in the second run.")]
    gone_subjects: Annotated[list[str], says("Models of the first run only.")]
    new_subjects: Annotated[list[str], says("Models of the second run only.")]
    other_ids: Annotated[
        list[TextRecord], says("Models whose tokenizers give a fixed text other ids.")
    ]
    other_weights: Annotated[
        dict[str, list[str]],
        says(
            "Models whose configuration or weights are not the same, by name: SHA-256 before and "
            "after, in hex."
        ),
    ]


SCHEMA = schema(ComparisonRecord, "Two runs of Assay compared")


def document(comparison: Comparison, least: float) -> str:
    """The comparison as JSON."""
    flips = [each for kind in Flip for each in comparison.flips(kind)]
    record = ComparisonRecord(
        schema=VERSION,
        before=_side(comparison.before),
        after=_side(comparison.after),
        changed={name: list(pair) for name, pair in comparison.changed.items()},
        compared=len(comparison.claims),
        judged=comparison.judged,
        paired=comparison.paired,
        error=ERROR,
        confidence=comparison.confidence,
        least=least,
        regressions=len(comparison.flips(Flip.REGRESSION)),
        flips=[_claim(each, least) for each in flips],
        drifts=[_claim(each, least) for each in comparison.drifts(0.0)],
        unjudged=[_claim(each, least) for each in comparison.claims if each.unjudged],
        gone=[_key(key) for key in comparison.gone],
        new=[_key(key) for key in comparison.new],
        gone_subjects=comparison.gone_subjects,
        new_subjects=comparison.new_subjects,
        other_ids=[_texts(each) for each in comparison.token_changes],
        other_weights={
            name: [comparison.before.digest(name), comparison.after.digest(name)]
            for name in comparison.other_weights
        },
    )
    return msgspec.json.format(encode(record), indent=2) + "\n"


def _side(side: Side) -> SideRecord:
    names = [name for name in SideRecord.__struct_fields__ if name not in ("name", "runs")]
    return SideRecord(side.name, side.runs, *(getattr(side.run, name) for name in names))


def _key(key: Key) -> ClaimKey:
    id, name, subject = key
    return ClaimKey(id, name, subject)


def _texts(each: TokenChange) -> TextRecord:
    change = each.change
    return TextRecord(
        *(each.subject, change.line + 1, change.letter, change.text),
        *(list(change.before), list(change.after)),
    )


def _result(row: Result) -> ResultRecord:
    return ResultRecord(*(getattr(row, name) for name in ResultRecord.__struct_fields__))


def _claim(each: Compared, least: float) -> ClaimRecord:
    return ClaimRecord(
        *each.key,
        kind=each.after.kind,
        flip=each.flip,
        vanished=each.vanished or None,
        before=_result(each.before),
        after=_result(each.after),
        claimed=None if each.restated is None else list(each.restated),
        shift=_shift(each, least),
    )


def _shift(each: Compared, least: float) -> ShiftRecord | None:
    if (shift := each.shift) is None:
        return None
    return ShiftRecord(
        shift=shift.shift,
        interval=each.interval,
        p=shift.p,
        adjusted=each.adjusted,
        size=shift.size,
        draws=shift.draws,
        paired=shift.paired,
        real=each.real,
        drift=each.drifted(least),
    )
