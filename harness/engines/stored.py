"""An engine beside a stored reference: its scores of the same ids, without the model."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from assay.harness.engines import bounds
from assay.harness.engines.interface import Scores
from assay.harness.engines.middle import kind
from assay.harness.engines.parity import divergence
from assay.harness.engines.scores import Rows, apart, rows_of
from assay.harness.engines.subject import EngineSubject
from assay.harness.models.machine.devices import DTYPES
from assay.harness.operations.parity import Parity
from assay.harness.operations.parity.compared_prompts import NUMBER
from assay.harness.operations.parity.next_tokens import Distributions
from assay.harness.operations.parity.stored import OF, Prompt, Stored, require_one_vocabulary
from assay.harness.results.errors import BadInput, Missing
from assay.harness.results.verdicts import Counterexample, Kind, Result, Verdict, margin

NAME = "the same scores as in float64"


def compare(subject: EngineSubject, stored: Stored) -> Parity:
    """Compare the engine's scores with ``stored``; raises `BadInput` where that says nothing."""
    engine = subject.engine
    require_one_vocabulary(subject, stored)
    if engine.stored and kind(engine.stored) not in DTYPES:
        raise BadInput(
            f"{subject.name}: its weights are in {engine.stored}, and what that changes no stored "
            "reference says; --against FOLDER measures it"
        )
    outcome = Parity()
    outcome.notes.append("compared: scores alone; claims I1 to I9 need --against FOLDER")
    try:
        result = _judged(subject, stored, outcome)
    except Missing as missing:
        raise BadInput(f"{subject.name}: {missing}") from missing
    outcome.results = [result]
    return outcome


def _judged(subject: EngineSubject, stored: Stored, outcome: Parity) -> Result:
    began, engine = time.perf_counter(), subject.engine
    result = Result(NUMBER, NAME, Kind.LAW, subject.name, Verdict.INCONCLUSIVE)
    tightest, apart_by, agree, rejected, tried = np.inf, [], [], 0, 0
    least = bounds.FACTOR * _largest_error(stored, engine.dtype)
    for prompt in stored.prompts:
        ids = prompt.ids[0].tolist()
        if len(ids) >= (engine.context or np.inf) or not engine.special.isdisjoint(ids):
            continue
        (observed,), allowed = subject.scores([ids]), max(least, *bounds.limits(subject, [ids]))
        result, before, same = replace(result, examples=result.examples + 1), None, []
        for exact in _rows(prompt, subject):
            if (distance := apart(observed, exact)) is None:
                continue
            if (clear := margin(distance.error, allowed)) < tightest:
                numbers = {"observed": distance.error, "bound": allowed, "margin": clear}
                tightest, result = clear, replace(result, **numbers)
            if not distance.error <= allowed:
                text = " ".join(map(str, ids[: exact.end]))
                example = Counterexample({"ids": text}, distance.error, allowed, distance.where)
                seconds = time.perf_counter() - began
                return replace(
                    result, verdict=Verdict.REFUTED, counterexample=example, seconds=seconds
                )
            if before is not None:
                moved = apart(before.moved(exact.first - before.first), exact)
                tried, rejected = tried + 1, rejected + (moved is None or moved.error > allowed)
            before = observed.at(exact.first, exact.end)
            if observed.tokens is None:
                apart_by.append(divergence(exact, before))
                same.append(before.values.argmax(1) == exact.values.argmax(1))
        if same:
            agree.append(float(np.mean(same)))
    if apart_by:
        outcome.distributions = Distributions(np.concatenate(apart_by), np.array(agree), OF)
    says = f"the scores of the position before are rejected at {rejected} of {tried} positions"
    control = {"says": says, "rejected": rejected, "tried": tried, "margin": 0.0}
    details = {"controls": {"the position before": control}}
    verdict = Verdict.UPHELD if rejected else result.verdict
    reason = "" if rejected else "the control was not rejected, or no prompt fits the engine"
    seconds = time.perf_counter() - began
    return replace(result, verdict=verdict, reason=reason, details=details, seconds=seconds)


def _largest_error(stored: Stored, dtype: str) -> float:
    """How far off the original's own logits are in ``dtype`` at the most, in their row's spread.

    Of some models rare tokens alone are farther off than the table says.
    """
    largest = 0.0
    for prompt in stored.prompts:
        if (errors := prompt.errors.get(dtype, {}).get("logits")) is not None:
            logits = prompt.exact["logits"]
            spreads = logits.std(-1) * logits.shape[-1] ** 0.5
            largest = max(largest, float((errors * logits.norm(dim=-1) / spreads).max()))
    return largest


def _rows(prompt: Prompt, subject: EngineSubject) -> Iterator[Rows]:
    """The log-probabilities at each kept position, up to where experts are chosen by near-ties."""
    clear = prompt.exact.row_mask(bounds.NEAR * bounds.rounding(subject.engine))
    for i, position in enumerate(prompt.positions.tolist()):
        if clear is not None and not bool(clear[0, i]):
            return
        scores = Scores(prompt.exact["logits"][0, i : i + 1], first=position)
        yield rows_of(scores, subject.vocabulary, subject.name)
