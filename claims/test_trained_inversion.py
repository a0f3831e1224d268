"""Trained models inverted beside untrained ones: how well, and what is found instead (003)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from claims.test_inversion import ABOUT_0, DOCUMENTED, NEEDS, SCALED, cases_of
from fixtures import inversions
from fixtures.inversions import invert
from fixtures.trials import curves, record, repeats, shown_text
from harness.findings import Bound, finding
from harness.measures import repeated
from harness.statistics import mean

TRAINED = ["trained", *NEEDS]

STYLES = {
    "as documented": DOCUMENTED,
    "scale-matched": SCALED,
    "Adam": replace(SCALED, optimiser="adam"),
}
PLACES = {
    "one block": {"depth": 1},
    "all blocks": {"depth": -1},
    "all blocks and the head": {"depth": -1, "through": "head"},
}


def rows(*named):
    """Rows of E6, each named by a place and a style."""
    return pytest.mark.parametrize(
        "way",
        [
            pytest.param(replace(STYLES[style], **PLACES[place]), id=f"{place}-{style}")
            for place, style in named
        ],
    )


OTHER_SEEDS = (3, 4, 5)
"""Of the untrained models that the untrained ones are held against."""

THREE = 3 * inversions.A_SEED
"""Rows for which there are three untrained models."""


@finding(
    "E6",
    "trained models invert worse than untrained ones",
    needs=["trained", *NEEDS],
    source="003, 'Language models become less trainable as they are trained'",
    bound=Bound(mean, below=0.0),
    control="untrained models against other untrained ones",
    control_bound=ABOUT_0,
    costly=True,
)
@rows(
    ("one block", "as documented"),
    ("one block", "scale-matched"),
    ("one block", "Adam"),
    ("all blocks and the head", "as documented"),
    ("all blocks and the head", "scale-matched"),
)
def test_trained_models_invert_worse_than_untrained(subject, way, draws, sample):
    cases = cases_of(subject, draws)
    way.target(subject).check(subject)
    trained = invert(subject, way, cases)
    fresh = invert(inversions.untrained(subject, len(draws)), way, cases)
    others = inversions.untrained(subject, len(draws), OTHER_SEEDS)
    half = range(0, len(cases.ids), 2)
    again = invert(others, way, cases.some(half), fresh.rates[0])
    sample.add(effect=trained.recovery() - fresh.recovery())
    sample.add(control=again.recovery() - fresh.recovery()[half])
    record(sample, trained=trained, untrained=fresh)
    curves(sample, trained=trained, untrained=fresh)
    shown_text(sample, subject, trained, "The trained model, decoded")
    shown_text(sample, subject, fresh, "The untrained models, decoded")


@finding(
    "E6",
    "of the smallest reference, three trained seeds invert worse than three untrained ones",
    source="003, 'Language models become less trainable as they are trained'",
    bound=Bound(mean, below=0.0),
    control="untrained models against other untrained ones",
    control_bound=ABOUT_0,
    costly=True,
    toy=True,
)
@rows(
    ("one block", "as documented"),
    ("one block", "scale-matched"),
    ("all blocks", "as documented"),
    ("all blocks", "scale-matched"),
    ("all blocks", "Adam"),
)
def test_three_trained_seeds_invert_worse_than_untrained_ones(subject, way, draws, sample):
    sizes = ("small", "small-1", "small-2")
    trained = [inversions.sister(subject, size) for size in sizes]
    cases = cases_of(trained[0], draws)
    found = invert(trained, way, cases)
    fresh = invert(inversions.untrained(trained[0], THREE), way, cases)
    again = invert(
        inversions.untrained(trained[0], THREE, OTHER_SEEDS), way, cases, fresh.rates[0]
    )
    sample.add(effect=found.recovery() - fresh.recovery())
    sample.add(control=again.recovery() - fresh.recovery())
    record(sample, trained=found, untrained=fresh)


deep_and_shallow = pytest.mark.parametrize(
    "way",
    [
        pytest.param(DOCUMENTED, id="as documented, one block"),
        pytest.param(replace(DOCUMENTED, depth=-1, through="head"), id="as documented, with head"),
        pytest.param(replace(SCALED, depth=-1, through="head"), id="controlled, with head"),
    ],
)


@finding(
    "E13",
    "wrong tokens of a trained model are rarer in text than those of an untrained one",
    needs=[*TRAINED, "tokenizer", "lm-head"],
    source="003, 'much less likely to exist in a real sentence'",
    bound=Bound(mean, below=0.0),
    control="the prompts' own tokens against tokens drawn evenly",
    costly=True,
)
@deep_and_shallow
def test_wrong_tokens_of_a_trained_model_are_rarer(subject, way, draws, sample):
    way.target(subject).check(subject)
    cases = cases_of(subject, draws)
    trained, fresh = (
        invert(s, way, cases) for s in (subject, inversions.untrained(subject, len(draws)))
    )
    rare, common = (wrong_tokens_frequency(trials) for trials in (trained, fresh))
    both = rare.isfinite() & common.isfinite()
    sample.details["prompts of which both have wrong tokens"] = int(both.sum())
    evenly = draws.integers(0, subject.vocabulary, "evenly")
    sample.add(effect=(rare - common)[both])
    sample.add(control=frequency(cases.ids.cpu()).mean(1) - frequency(evenly))
    record(sample, trained=trained, untrained=fresh)


def frequency(ids):
    """Log-frequency of tokens up to a constant, float64, like ``ids``.

    A vocabulary made by merging is in the order of frequency, and words fall off as the inverse
    of their rank (Zipf): -log(rank).
    """
    return -(ids.double() + 1).log()


def wrong_tokens_frequency(trials):
    """The mean log-frequency of the wrong tokens of each row; NaN where none is: [rows]."""
    found = trials.decoded()
    wrong = found != trials.ids
    return (frequency(found) * wrong).sum(1) / wrong.sum(1)


@finding(
    "E14",
    "gibberish repeats",
    needs=[*TRAINED, "lm-head"],
    source="003, 'Representation Repetitions'",
    bound=Bound(mean, above=0.0),
    control="what is found of untrained models",
    costly=True,
)
@deep_and_shallow
def test_gibberish_repeats(subject, way, draws, sample):
    way.target(subject).check(subject)
    cases = cases_of(subject, draws)
    trained, fresh = (
        invert(s, way, cases) for s in (subject, inversions.untrained(subject, len(draws)))
    )
    prompts = repeated(cases.ids, gram=1)
    sample.add(effect=repeats(trained) - prompts, control=repeats(fresh) - prompts)
    record(sample, trained=trained, untrained=fresh)
