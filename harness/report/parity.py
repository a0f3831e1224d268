"""The text of a comparison of two models."""

from __future__ import annotations

from assay.harness.models.machine.devices import dtype_name
from assay.harness.models.subject import Subject
from assay.harness.operations.parity import Parity
from assay.harness.operations.parity.stored import Stored
from assay.harness.results.verdicts import Result, Verdict

SHOWN = 5
"""Tensors that differ which are listed."""

FIELDS = 3
"""Fields of the configurations that are listed, of those that differ."""

IDS = 16
"""Ids of a prompt that are shown."""


def lines(outcome: Parity, one: Subject, other: Subject | Stored) -> list[str]:
    """The comparison in lines: the models, the verdicts, where they differ, next tokens."""
    text = [f"model     {_model(one)}", f"against   {_model(other)}"]
    if outcome.unlike_fields and outcome.verdict is Verdict.REFUTED and isinstance(other, Subject):
        text.append(_fields(outcome, one, other))
    text += [*outcome.notes, ""]
    for result in outcome.results:
        text += _result(result)
    if (first := outcome.divergence) is not None:
        text.append(f"first difference: {first.where}")
        text.append(f"  off by {first.observed:.2g} of a row, allowed {first.allowed:.2g}")
    text += _unlike(outcome)
    text += _next_tokens(outcome)
    return [*text, "", outcome.verdict.value]


def _model(subject: Subject | Stored) -> str:
    if isinstance(subject, Stored):
        return str(subject)
    kind = getattr(subject.model.config, "inner", "") or type(subject.model).__name__
    how = [kind, dtype_name(subject.dtype), str(subject.device)]
    if not getattr(subject.model.config, "inner", ""):
        how.append(f"attention {subject.attention}")
    return f"{subject.name} ({', '.join(how)})"


def _result(result: Result) -> list[str]:
    text = [f"{result.name}: {result.verdict.value}"]
    if result.observed is not None and result.bound is not None and result.margin is not None:
        count = "1 batch" if result.examples == 1 else f"{result.examples} batches"
        text[0] += (
            f": off by {result.observed:.2g} of a row at most, allowed {result.bound:.2g} "
            f"(margin {result.margin:+.1f}), {count} of prompts"
        )
    if result.reason:
        text.append(f"  {result.reason}")
    if result.counterexample is not None:
        ids = result.counterexample.inputs["ids"].split()
        more = f" … ({len(ids)} ids)" if len(ids) > IDS else ""
        text.append(f"  in {result.counterexample.where}: ids {' '.join(ids[:IDS])}{more}")
    for control in result.details.get("controls", {}).values():
        text.append(f"  control: {control['says']}")
    return text


def _fields(outcome: Parity, one: Subject, other: Subject) -> str:
    """A line with the first fields that differ."""
    folders = one.folder is not None and other.folder is not None
    more = len(outcome.unlike_fields) - FIELDS
    rest = [f"and {more} more"] if more > 0 else []
    what = "config.json differs" if folders else "the configurations differ"
    return f"{what}: {'; '.join([*outcome.unlike_fields[:FIELDS], *rest])}"


def _unlike(outcome: Parity) -> list[str]:
    if not outcome.unlike:
        return []
    more = len(outcome.unlike) - SHOWN
    rest = [f"  and {more} more"] if more > 0 else []
    heading = "tensors of the same name that are not equal:"
    return [heading, *(f"  {each}" for each in outcome.unlike[:SHOWN]), *rest]


def _next_tokens(outcome: Parity) -> list[str]:
    if outcome.distributions is None:
        return []  # a note says why, or the models return no logits
    numbers = outcome.distributions.as_json()
    nats, (low, high) = numbers["KL in nats"], numbers["interval"]
    return [
        f"next tokens, at {numbers['positions']} positions of {numbers['prompts']} prompts of "
        f"{outcome.distributions.of}:",
        f"  KL in nats: mean {nats['mean']:.2g}, median {nats['median']:.2g}, "
        f"99.9 % {nats['99.9 %']:.2g}",
        f"  the same most probable token: {numbers['top-1 agreement']:.2%} "
        f"(95 % interval {low:.2%} to {high:.2%})",
    ]
