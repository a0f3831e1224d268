"""How soon a descent through a trained block and the head meets inequality 4 (document 003).

(4) is met where the output is nearer to the target's than that of a slightly shifted input, e'.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from assay.claims.inversion.test_inversion import DOCUMENTED, NEEDS, SCALED, cases_of
from assay.fixtures import sides
from assay.fixtures.inversions import invert
from assay.fixtures.sides import of_both_populations
from assay.fixtures.trials import compared_steps, record, shown_text, survival
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import model_ratio, share

NEEDS_HEAD = ["trained", *NEEDS, "lm-head"]

HORIZON = 1000
"""Steps within which (4) must be met: a restricted mean counts no more.

Document 003 names the number for (4) and one trained block with the head: 'at N=1000 an a_g such
that (4) holds'.  A descent that is cut off counts as at least that many steps: it may uphold that
more are needed and cannot refute it.
"""

FEWEST = 36
"""Draws that decide a share of 0.9 if all of them are true, or of 0.1 if none is."""

ENOUGH = 24
"""Draws of a control that is far on the other side."""

THROUGH: dict[str, Any] = {"depth": 1, "through": "head"}

both_ways = pytest.mark.parametrize(
    "way",
    [
        pytest.param(replace(DOCUMENTED, **THROUGH), id="as documented"),
        pytest.param(replace(SCALED, **THROUGH), id="controlled"),
    ],
)


@finding(
    "E24",
    "a trained model needs ten times the steps of an untrained one to meet (4), each given 1000",
    needs=NEEDS_HEAD,
    source="003, 'on the order to one hundred times as many as for the untrained model'",
    bound=Bound(model_ratio, above=10.0),
    control="untrained models against other untrained ones",
    control_bound=Bound(model_ratio, at_least=1 / 3, at_most=3.0),
    draws=18,
    costly=True,
    slow=("as documented",),
)
@both_ways
@of_both_populations
def test_a_trained_model_needs_ten_times_the_steps(subject, population, way, draws, sample):
    way.target(subject).check(subject)
    cases, way = cases_of(subject, draws), replace(way, measure="close", steps=HORIZON)
    trained, fresh, others = (
        invert(side, way, cases) for side in sides.compared(subject, population)
    )
    sample.add(effect=compared_steps(trained, fresh), control=compared_steps(others, fresh))
    sample.add(steps_trained=trained.steps_to_close, steps_untrained=fresh.steps_to_close)
    record(sample, trained=trained, untrained=fresh)
    survival(sample, trained=trained, untrained=fresh)


@finding(
    "E25",
    "(4) cannot be met in 1000 steps where the shift is 1/25 in place of 1/20",
    needs=NEEDS_HEAD,
    source="003, 'practically infeasible to make the equality in (4) hold if e' is near e'",
    bound=Bound(share, at_most=0.05),
    control="a shift of 1/5",
    draws=9,
    costly=True,
)
@both_ways
def test_a_smaller_shift_cannot_be_met(subject, way, draws, sample):
    way.target(subject).check(subject)
    cases, way = cases_of(subject, draws), replace(way, measure="close", steps=1000, shift=1 / 25)
    near = invert(subject, way, cases)
    far = invert(subject, replace(way, shift=1 / 5), cases, near.rates[0])
    sample.add(effect=near.close, control=far.close)
    sample.add(steps_at_1_25=near.steps_to_close, steps_at_1_5=far.steps_to_close)
    record(sample, near=near, far=far)


@finding(
    "E26",
    "after 100 steps through one trained block and the head the output is nearer than e' has it",
    needs=NEEDS_HEAD,
    source="003, 'after 100 iterations … such that m_g < m'",
    bound=Bound(share, at_least=0.9),
    control="after a single step",
    draws=FEWEST,
    costly=True,
)
@both_ways
def test_the_output_is_nearer_after_100_steps(subject, way, draws, sample):
    trials = after_100(subject, way, draws)
    one = invert(subject, replace(way, steps=1), cases_of(subject, draws), trials.rates[0])
    sample.add(effect=trials.nearer, control=one.nearer)
    record(sample, trained=trials)
    shown_text(sample, subject, trials, "After 100 steps, decoded")


@finding(
    "E26",
    "after 100 steps through one trained block and the head the prompt is not found",
    needs=NEEDS_HEAD,
    source="003, 'Engine casino ozlf Territ'",
    bound=Bound(share, at_most=0.1),
    control="untrained blocks without the head, after 1000 steps",
    draws=FEWEST,
    costly=True,
)
@both_ways
def test_the_prompt_is_not_found_after_100_steps(subject, way, draws, sample):
    trials, easy = after_100(subject, way, draws), replace(way, steps=1000, through="block")
    few = cases_of(subject, draws).some(range(ENOUGH))
    fresh = invert(sides.any_untrained(subject), easy, few)
    sample.add(effect=trials.recovery() == 1, control=fresh.recovery() == 1)
    record(sample, trained=trials, untrained=fresh)


@finding(
    "E26",
    "after 100 steps through one trained block and the head the next token is right",
    needs=[*NEEDS_HEAD, "causal"],
    source="003, 'viewed essentially equivalently'",
    bound=Bound(share, at_least=0.9),
    control="what was found for another prompt",
    draws=FEWEST,
    costly=True,
)
@both_ways
def test_the_next_token_is_right_after_100_steps(subject, way, draws, sample):
    trials = after_100(subject, way, draws)
    tokens = [next_token(subject, way, each) for each in (trials.ids, trials.decoded())]
    sample.add(effect=tokens[0] == tokens[1], control=tokens[0] == tokens[1].roll(1, 0))
    record(sample, trained=trials)


def after_100(subject, way, draws):
    """Trials of 100 steps through one trained block and the head."""
    way.target(subject).check(subject)
    return invert(subject, replace(way, steps=100), cases_of(subject, draws))


def next_token(subject, way, ids):
    """The most probable next token by the block and the head: [rows]."""
    return way.target(subject).output(subject, ids.to(subject.device))[:, -1].argmax(-1).cpu()
