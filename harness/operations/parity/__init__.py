"""Compares two models that should compute the same, such as a port and its original.

The same ids go to both.  Two comparisons, each against a float64 reference of the model compared
with, and each with a control that must be rejected (one weight of that model, moved):

- *as they run*: the model's rows are as near to the float64 reference as those of the model that
  it is compared with, within the bound of the laws (`harness.models.reference.tolerances`);
- *in float64*: the float64 copies of both agree.  There rounding hides nothing, so that a wrong
  epsilon shows that no 16-bit pass would.  The bound is float32's: tables and constants are often
  kept in float32 where the weights are not.  Where the weights of 16 bits are not the same
  numbers (an adapter was merged, and rounded again) it is that of their dtype.

Of two dtypes, the model in the finer one is converted to the other first.
"""

from __future__ import annotations

import torch

from assay.harness.checking.profiles import Profile
from assay.harness.models.loading import runs
from assay.harness.models.loading.runs import Options
from assay.harness.models.machine.devices import dtype_name
from assay.harness.models.machine.shortage import ENDS, shortage
from assay.harness.models.subject import Subject, meant
from assay.harness.operations import variants
from assay.harness.operations.parity.comparison import Pair
from assay.harness.operations.parity.fields import unlike_fields
from assay.harness.operations.parity.next_tokens import distributions
from assay.harness.operations.parity.outcome import AS_RUN as AS_RUN
from assay.harness.operations.parity.outcome import IN_FLOAT64 as IN_FLOAT64
from assay.harness.operations.parity.outcome import Divergence as Divergence
from assay.harness.operations.parity.outcome import Parity as Parity
from assay.harness.operations.parity.outcome import hidden_by_rounding
from assay.harness.operations.parity.stored import Stored
from assay.harness.operations.parity.tensors import unlike_weights
from assay.harness.results.errors import BadInput, Missing, brief
from assay.harness.results.quiet import quiet
from assay.harness.results.records import RunRecord

MOST_UNLIKE = 100
"""Tensors that are named, of those that differ."""


def require_comparable(one: Subject, other: Subject) -> None:
    """Raise `BadInput` where the same ids cannot go to both, or nothing can be compared."""
    if one.vocabulary != other.vocabulary:
        raise BadInput(
            f"{one.name} has a vocabulary of {one.vocabulary} and {other.name} of "
            f"{other.vocabulary}: the same ids cannot go to both"
        )
    ways = [meant.direction(each).ways for each in (one, other)]
    words = {meant.CAUSAL: "is causal", meant.BOTH: "attends both ways"}
    if ways[0] != ways[1]:
        said = [words.get(each or "", "does not say how it attends") for each in ways]
        raise BadInput(f"{one.name} {said[0]} and {other.name} {said[1]}: they cannot be the same")
    if one.is_encoder_decoder != other.is_encoder_decoder:
        which = one if one.is_encoder_decoder else other
        raise BadInput(f"{which.name} is an encoder-decoder, and the other is not")
    outputs = [_outputs(each) for each in (one, other)]
    if not set(outputs[0]) & set(outputs[1]):
        raise BadInput(
            f"{one.name} returns {', '.join(outputs[0])} and {other.name} "
            f"{', '.join(outputs[1])}: there is nothing to compare"
        )


def _outputs(subject: Subject) -> list[str]:
    n = max(2, subject.shortest)
    ids = subject.content(torch.arange(n, device=subject.device)[None])
    try:
        rows = subject.rows(ids, states=False)
    except ENDS as error:
        why = shortage(error) or brief(error)
        raise BadInput(f"{subject.name}: cannot run a prompt ({why})") from error
    return [
        f"{name} {tensor.shape[-1]} wide"
        for name, tensor in rows.tensors.items()
        if name != "router gap"
    ]


def compare(
    one: Subject, other: Subject, profile: Profile, seed: int = 0, states: bool = True
) -> Parity:
    """Compare ``one`` with ``other``, which is taken for right; both are left as they were.

    Without ``states`` logits alone are compared.  Raises `BadInput` where they cannot be.
    """
    require_comparable(one, other)
    try:
        with quiet():
            return _compared(one, other, profile, seed, states)
    except BadInput:
        raise
    except ENDS as error:  # from the models' own code
        why = shortage(error) or brief(error)
        raise BadInput(f"{one.name} and {other.name} cannot be compared ({why})") from error


def _compared(one: Subject, other: Subject, profile: Profile, seed: int, states: bool) -> Parity:
    outcome = Parity()
    mine, theirs, notes = in_one_dtype(one, other)
    outcome.notes += notes
    pair = Pair(mine, theirs, profile, seed, states, outcome)
    outcome.results = hidden_by_rounding(pair.as_run(), pair.in_float64(), theirs)
    outcome.unlike = unlike_weights(mine, theirs)
    outcome.unlike_fields = unlike_fields(one, other)
    try:
        outcome.distributions = distributions(one, other, profile, seed)
    except ENDS as error:
        why = shortage(error) or brief(error)
        outcome.notes.append(f"next tokens cannot be compared ({why})")
    return outcome


def in_one_dtype(one: Subject, other: Subject) -> tuple[Subject, Subject, list[str]]:
    """Both in the coarser of their dtypes, and a note on what was converted.

    Converting is saving and loading, as loading keeps some tensors (frequencies of rotary
    positions) precise.  A plain module's tensors are all cast.
    """
    if one.dtype == other.dtype:
        return one, other, []
    coarse = max(one.dtype, other.dtype, key=lambda dtype: torch.finfo(dtype).eps)
    pair = []
    for each in (one, other):
        try:
            pair.append(each if each.dtype == coarse else variants.in_dtype(each, coarse))
        except Missing as missing:
            raise BadInput(
                f"{each.name}: cannot be converted to {dtype_name(coarse)}, in which the other "
                f"model is ({missing})"
            ) from missing
    finer = one if one.dtype != coarse else other
    note = (
        f"{finer.name} is in {dtype_name(finer.dtype)} and was converted to {dtype_name(coarse)}, "
        "the other's dtype, for the comparison of rows; next tokens are those of the two as given"
    )
    return pair[0], pair[1], [note]


def describe(
    outcome: Parity, one: Subject, other: Subject | Stored, profile: Profile, seed: int
) -> RunRecord:
    """The record of the run for evidence and JSON, with both models; details join the results."""
    names = [one.name, other.name if other.name != one.name else f"{other.name} (against)"]
    models = [each for each in (one, other) if isinstance(each, Subject)]
    options = Options(str(one.device), dtype_name(one.dtype), attends=one.settings.attends)
    run = runs.describe_run(options, profile.name, seed)
    run.dtype = ", ".join(dict.fromkeys(dtype_name(each.dtype) for each in models))
    for name, subject in zip(names, models, strict=False):
        run.subjects[name] = runs.describe_subject(subject, profile.brake)
    for result in outcome.results:
        result.details["against"] = names[1]
        result.details["notes"] = outcome.notes
        result.details["unequal fields"] = outcome.unlike_fields
        result.details["unequal tensors"] = outcome.unlike[:MOST_UNLIKE]
        if outcome.distributions is not None:
            result.details["next tokens"] = outcome.distributions.as_json()
    run.finished, run.exit = runs.now(), outcome.exit
    return run
