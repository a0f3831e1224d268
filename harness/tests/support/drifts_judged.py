"""What becomes of a run after a planted drift: carried, loud, or quiet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import pytest

import assay
from assay.fixtures import families
from assay.harness.checking.profiles import PROFILES
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Result, Verdict
from assay.harness.tests.support.drifts import DRIFTS

CARRIED, LOUD, QUIET = "carried", "loud", "quiet"

TYPES = ("llama", "gpt2", "t5", "bert", "mamba")

ONE = replace(PROFILES["glance"], examples=1, shrink=0)
"""One example of each law, and no control: whether laws are examined, not whether they hold."""


@dataclass(frozen=True)
class Outcome:
    """`CARRIED`: the same verdicts.  `LOUD`: the run fails, and ``why`` says by what.  `QUIET`:
    laws are no longer examined, and nothing says so.
    """

    state: str
    why: str = ""


def judged(model_type: str, drift: str, claims: str | Sequence[str] = "laws") -> Outcome:
    """Laws of a tiny model after a drift, compared with those before it.

    Raises `Inapplicable` where the model has nothing that the drift changes.
    """
    model = families.tiny(model_type)
    DRIFTS[drift].change(model)
    claims = claims if isinstance(claims, str) else tuple(claims)
    before = verdicts_before(model_type, claims)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROFILES, "glance", ONE)
        try:
            run = assay.check(model, claims=claims, profile="glance")
        except BadInput as error:
            return Outcome(LOUD, str(error))
    if run.lacking:
        return Outcome(LOUD, run.lacking[0])
    after = {_key(result): result.verdict for result in run.results}
    refuted = [each for each in run.refuted if before[_key(each)] is not Verdict.REFUTED]
    if refuted:
        return Outcome(LOUD, f"{refuted[0].id}: {refuted[0].reason}")
    undecided = [e for e in run.undecided if before[_key(e)] is not Verdict.INCONCLUSIVE]
    if undecided:
        return Outcome(LOUD, f"{undecided[0].id}: {undecided[0].reason}")
    # Of a claim another variant may be examined: the one that is not the default any more.
    counts = examined(after)
    fewer = [id for id, count in examined(before).items() if counts[id] < count]
    changed = [k for k, v in before.items() if after[k] not in (v, Verdict.NOT_APPLICABLE)]
    changed = [key for key in changed if before[key] is not Verdict.NOT_APPLICABLE]
    if fewer or changed:
        return Outcome(QUIET, f"fewer of {fewer}; other verdicts of {changed}")
    return Outcome(CARRIED)


def examined(verdicts: dict[tuple[str, str], Verdict]) -> Counter[str]:
    """How many variants of each claim apply."""
    return Counter(id for (id, _), v in verdicts.items() if v is not Verdict.NOT_APPLICABLE)


@cache
def verdicts_before(
    model_type: str, claims: str | tuple[str, ...]
) -> dict[tuple[str, str], Verdict]:
    """The verdicts on the unmodified model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROFILES, "glance", ONE)
        run = assay.check(families.tiny(model_type), claims=claims, profile="glance")
    return {_key(result): result.verdict for result in run.results}


def _key(result: Result) -> tuple[str, str]:
    return result.id, result.name
