"""Trained models inverted, compared with untrained ones (003), with the head and without it.

Statements about trained models are made of every embedded reference together; of a model from
elsewhere they are made of this model.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.claims.inversion.test_inversion import (
    DOCUMENTED,
    NEEDS,
    OF_MODELS,
    SCALED,
    both_ways,
    cases_of,
)
from assay.fixtures import sides
from assay.fixtures.inversions import invert
from assay.fixtures.sides import of_both_populations
from assay.fixtures.trials import Trials, compared, curves, record, shown_text
from assay.harness.checking.bounds import Bound, NoDifference
from assay.harness.checking.findings import finding
from assay.harness.checking.statistics import model_change, model_difference, model_mean

TRAINED = ["trained", *NEEDS]

STYLES = {
    "as documented": DOCUMENTED,
    "scale-matched": SCALED,
    "Adam": replace(SCALED, optimiser="adam"),
}
PLACES = {"one block": 1, "all blocks": -1}


@finding(
    "E6",
    "trained models invert worse than untrained ones",
    needs=TRAINED,
    source="003, 'Language models become less trainable as they are trained'",
    bound=Bound(model_difference, below=0.0),
    control="untrained models against others of their architectures, on the same prompts",
    control_bound=NoDifference(model_change),
    draws=24,
    costly=True,
    slow=("scale-matched", "Adam"),
)
@pytest.mark.parametrize(
    ("place", "style"),
    [
        ("one block", "as documented"),
        ("one block", "scale-matched"),
        ("one block", "Adam"),
        ("all blocks", "as documented"),
    ],
)
@of_both_populations
def test_trained_models_invert_worse(subject, population, place, style, draws, sample):
    cases, way = cases_of(subject, draws), replace(STYLES[style], depth=PLACES[place])
    trained, fresh, others = (
        invert(side, way, cases) for side in sides.compared(subject, population)
    )
    sample.add(effect=compared(trained, fresh, Trials.recovery))
    sample.add(control=fresh.by_model(others.recovery() - fresh.recovery()))
    record(sample, trained=trained, untrained=fresh)
    curves(sample, trained=trained, untrained=fresh)
    shown_text(sample, subject, trained, "Trained, decoded")
    shown_text(sample, subject, fresh, "Untrained, decoded")


@finding(
    "E11",
    "without the head trained blocks meet (4)",
    needs=TRAINED,
    source="003, 'This makes it feasible to generate e_g'",
    bound=Bound(model_mean, at_least=0.9),
    control="after a single step",
    draws=OF_MODELS,
    costly=True,
    slow=("as documented",),
)
@both_ways
@of_both_populations
def test_without_the_head_the_inequality_is_met(subject, population, way, draws, sample):
    cases, (models, *_) = cases_of(subject, draws), sides.compared(subject, population)
    trials = invert(models, way, cases)
    one = invert(models, replace(way, steps=1), cases)
    sample.add(effect=trials.by_model(trials.close), control=one.by_model(one.close))
    record(sample, trained=trials)


@finding(
    "E11",
    "without the head the tokens of trained blocks are still wrong",
    needs=TRAINED,
    source="003, 'map to inputs that are more or less completely unrecognizable'",
    bound=Bound(model_mean, below=0.5),
    control="untrained blocks",
    draws=24,
    costly=True,
)
@both_ways
@of_both_populations
def test_without_the_head_the_tokens_are_still_wrong(subject, population, way, draws, sample):
    cases = cases_of(subject, draws)
    trained, fresh = (invert(side, way, cases) for side in sides.compared(subject, population)[:2])
    sample.add(effect=trained.by_model(trained.recovery()))
    sample.add(control=fresh.by_model(fresh.recovery()))
    record(sample, trained=trained, untrained=fresh)
