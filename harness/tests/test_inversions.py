"""What the claims about inversion look at: sides, starts, step sizes, and what is kept."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from fixtures import inversions, sides, texts
from fixtures.inversions import Cases, invert
from fixtures.sides import Side
from fixtures.trials import (
    NEVER,
    Trials,
    compared,
    curves,
    shown_text,
    survival,
    times_as_many,
    told,
)
from fixtures.ways import LENGTH, Way, begun, shifted
from harness import inversion
from harness.draws import Draws
from harness.findings import Sample
from harness.inversion import loop, start
from harness.inversion.descent import descend
from harness.inversion.target import embedded
from harness.tests.toys import toy

SHORT = Way(steps=30, begin="scaled")


@pytest.fixture(scope="module")
def subject():
    return toy("reference:small")


@pytest.fixture(scope="module")
def cases(subject):
    return Cases.of(subject, texts.TEXT, Draws(0, "some claim", range(6)))


def test_every_claim_is_given_the_same_prompts(subject, cases):
    other = Cases.of(subject, texts.TEXT, Draws(0, "another claim", range(6)))
    assert torch.equal(cases.ids, other.ids)
    assert cases.ids.shape == (6, LENGTH)
    seeded = Cases.of(subject, texts.TEXT, Draws(1, "some claim", range(6)))
    assert not torch.equal(cases.ids, seeded.ids)


def test_prompts_for_tuning_are_others(cases):
    mine = {tuple(row) for row in cases.ids.tolist()}
    assert not mine & {tuple(row) for row in cases.tuning.tolist()}


def test_some_rows_keep_their_starts_and_results(subject, cases):
    whole = invert(subject, SHORT, cases, 0.3)
    part = invert(subject, SHORT, cases.some([1, 4]), 0.3)
    assert torch.equal(part.ids, whole.ids[[1, 4]])
    assert torch.allclose(part.final, whole.final[[1, 4]], rtol=1e-3)


def test_rows_go_round_the_models_of_a_side(subject, cases):
    side = sides.untrained(subject, (0, 1, 2))
    assert len({id(model) for model in (*side.models, side.tuners[0])}) == 4
    trials = invert(side, SHORT, cases, 0.3)
    assert torch.equal(trials.ids, cases.ids)
    assert trials.models.tolist() == [0, 1, 2, 0, 1, 2]
    for i, model in enumerate(side.models):
        alone = invert(model, SHORT, cases.some(range(i, 6, 3)), 0.3)
        assert torch.allclose(trials.final[i::3], alone.final, rtol=1e-4)
    one = invert(side.models[0], SHORT, cases, 0.3)
    assert not torch.allclose(trials.final, one.final, rtol=1e-3)


def test_trained_models_are_tuned_each_on_prompts_of_its_own(subject, cases, monkeypatch):
    asked = []

    def tuned(model, way, its):
        asked.append((model, its.tuning.tolist()))
        return 0.3

    monkeypatch.setattr(inversions, "tuned", tuned)
    models = [subject, *(sides.sister(subject, size) for size in ("small-1", "small-2"))]
    invert(Side(tuple(models)), SHORT, cases)
    assert [model for model, _ in asked] == models
    prompts = [tuple(row) for _, rows in asked for row in rows]
    assert len(set(prompts)) == len(prompts) == 3 * inversions.TUNING


def test_untrained_models_are_tuned_on_another_one(subject, cases, monkeypatch):
    asked = []
    monkeypatch.setattr(inversions, "tuned", lambda model, *_: asked.append(model) or 0.3)
    side = sides.untrained(subject)
    assert len(side.models) == len(sides.SEEDS) >= 6
    invert(side, SHORT, cases)
    assert len({id(model) for model in asked}) == 1
    assert not {id(model) for model in asked} & {id(model) for model in side.models}


@pytest.mark.parametrize("begin", ["documented", "scaled"])
@pytest.mark.parametrize("through", ["block", "head"])
def test_step_sizes_that_are_slower_are_given_up_and_the_best_is_picked(
    subject, cases, monkeypatch, begin, through
):
    way, made = Way(begin=begin, through=through, measure="close"), []

    def descended(*given, **named):
        made.append(descend(*given, **named))
        return made[-1]

    monkeypatch.setattr(inversions, "descend", descended)
    few = inversions._slowness(subject, way, cases)
    monkeypatch.setattr(inversions, "_slower", lambda steps, close, lowered: close.isfinite())
    whole = inversions._slowness(subject, way, cases)
    assert few.argmin() == whole.argmin()
    assert few.min() == pytest.approx(float(whole.min()), abs=0.5)
    steps_made = [int(each.losses.isfinite().sum()) for each in made]
    assert steps_made[0] < 0.8 * steps_made[1]


def test_a_step_size_is_slower_once_it_cannot_be_the_best():
    close = torch.full((6, 2), torch.inf)
    close[2], close[3], close[4, 0] = torch.tensor([10.0, 20.0]), 30.0, 4.0
    lowered = torch.zeros(12, dtype=torch.long)
    over = inversions._slower(25, close.flatten(), lowered).reshape(6, 2)
    assert over.all(1).tolist() == [True, True, True, True, False, True]
    assert over[4].tolist() == [True, False]  # 4 and 25 are 14.5 on average, below 15
    lowered[4] = 1  # what diverged has not met it
    over = inversions._slower(29, close.flatten(), lowered).reshape(6, 2)
    assert over.all(1).tolist() == [False, False, True, True, False, False]


def test_an_untrained_subject_is_its_own_untrained_side():
    subject = toy("untrained:small:0")
    assert sides.untrained(subject).models == (subject,)


def test_untrained_models_stand_beside_every_size_of_the_ladder(subject):
    trained, fresh, others = sides.compared(subject, sides.EVERY)
    assert [model.name for model in trained.models] == [f"reference:{s}" for s in sides.LADDER]
    assert {m.hidden for m in fresh.models} == {m.hidden for m in trained.models}
    assert len(fresh.models) == len(others.models) == 6
    assert not {id(m) for m in fresh.models} & {id(m) for m in others.models}


def test_the_documented_way_is_the_documents_own_loop(cases):
    subject = toy("reference:small", "float64")
    way = Way(steps=20)
    trials = invert(subject, way, cases.some([0, 1]), 0.1)
    target = way.target(subject)
    wanted = target.of(subject, cases.ids[:2])
    first = begun(subject, way, cases.ids[:2], cases.some([0, 1]).draws)
    size = 0.1 * inversions.unit_of(subject, way, cases)
    first = first.double()
    slow, _ = loop.descend(subject, target, wanted[1], first[1], size, 20)
    assert torch.allclose(trials.parts[0].made.embeddings[1], slow, atol=1e-8)
    far, _ = loop.descend(subject, target, wanted[1], first[1], 1.01 * size, 20)
    assert not torch.allclose(trials.parts[0].made.embeddings[1], far, atol=1e-8)


@pytest.mark.parametrize(
    ("begin", "mean", "std"), [("documented", 0.5, 0.05), ("scaled", 0.0, None)]
)
def test_noise_begins_at_its_mean_and_scale(subject, cases, begin, mean, std):
    noise = begun(subject, Way(begin=begin), cases.ids, cases.draws)
    if begin == "documented":
        noise = noise + start.places_added(subject, LENGTH)
    assert float(noise.mean()) == pytest.approx(mean, abs=0.01)
    assert float(noise.std()) == pytest.approx(std or start.spread(subject), rel=0.03)


def test_a_warm_start_is_all_but_the_answer(subject, cases):
    warm = begun(subject, Way(begin="warm"), cases.ids, cases.draws)
    answer = embedded(subject)[cases.ids]
    assert float((warm - answer).abs().max()) < 0.01
    mixed = begun(subject, Way(begin="mixed"), cases.ids, cases.draws)
    assert float((mixed - answer).mean()) == pytest.approx(0.5, abs=0.01)


def test_a_step_size_that_diverges_is_never_picked(subject, cases, monkeypatch):
    way = replace(SHORT, steps=31)
    monkeypatch.setattr(inversions, "GRID", (0.1, 1e6))
    assert inversions.tuned(subject, way, cases) == 0.1


def test_the_picked_step_size_ends_lowest(subject, cases):
    best = inversions.tuned(subject, SHORT, cases)
    finals = {rate: float(tuning_loss(subject, SHORT, cases, rate)) for rate in inversions.GRID}
    assert finals[best] == min(finals.values())
    assert finals[best] < max(finals.values())


def tuning_loss(subject, way, cases, rate):
    made = inversions._descend(subject, way, cases.for_tuning, [rate])
    return made.final.median()


def test_results_are_kept(subject, cases, monkeypatch):
    first = invert(subject, SHORT, cases, 0.3)
    monkeypatch.setattr(inversions, "_descend", None)
    again = invert(subject, SHORT, cases.some([4, 2]), 0.3)
    assert torch.equal(again.losses, first.losses[[4, 2]])
    with pytest.raises(TypeError):
        invert(subject, SHORT, cases, 0.31)


def test_closeness_is_the_loss_against_the_shifted_inputs(subject, cases):
    trials = invert(subject, replace(SHORT, steps=60), cases, 0.3)
    target = SHORT.target(subject)
    bound = shifted(subject, SHORT, target, cases.ids, cases.draws)
    met = (trials.losses < bound[:, None]).any(1)
    assert torch.equal(trials.close, met)
    assert bool(met.any())
    assert (trials.steps_to_close[~met] == 60).all()


def test_recovery_is_counted_by_token(subject, cases):
    trials = invert(subject, SHORT, cases, 0.3)
    for decoder in inversion.DECODERS:
        hits = trials.decoded(decoder) == cases.ids
        assert torch.equal(trials.recovery(decoder), hits.double().mean(1))


def test_text_and_curves_are_kept_as_pictures(subject, cases):
    sample, trials = Sample(), invert(subject, SHORT, cases, 0.3)
    curves(sample, one_side=trials)
    shown_text(sample, subject, trials, "Decoded")
    assert set(sample.plots) == {"Loss over steps", "Recovery over steps", "Decoded"}
    table = sample.plots["Decoded"]
    assert table.rows[-1] == ["the input", told(subject, cases.ids[0])]
    assert [row[0] for row in table.rows[:-1]] == ["1", "10", "20"]


class Steps(Trials):
    """Trials of which nothing is known but the steps to (4)."""

    def __init__(self, *steps, budget=400):
        self.__dict__["found"] = torch.tensor(
            [math.inf if each is None else each for each in steps]
        ).double()
        self.__dict__["way"] = Way(steps=budget)

    def joined(self, of):
        return self.found

    @property
    def models(self):
        return torch.arange(len(self.found)) % 2


def test_ratios_of_times_that_are_cut_off_are_known_by_their_limits():
    bare = Steps(20.0, 20.0, None)
    ratios = times_as_many(Steps(40.0, None, 40.0), bare)
    assert ratios.tolist() == [[2.0, 2.0], [20.0, NEVER], [40.0 / NEVER, 0.1]]
    late = times_as_many(Steps(None, budget=4000), Steps(20.0))
    assert late.tolist() == [[200.0, NEVER]]  # whenever it was met, over a hundred times


def test_sides_are_compared_by_model_without_rows_that_have_no_value():
    one, other = Steps(4.0, 6.0), Steps(1.0, 2.0, 3.0)
    rows = compared(one, other, lambda trials: torch.where(trials.found == 2, torch.nan, 1.0))
    assert rows.tolist() == [[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 0, 0]]


def test_restricted_means_and_the_log_rank_test_are_kept():
    sample = Sample()
    survival(sample, slow=Steps(*range(90, 100), None), fast=Steps(*range(10, 21)))
    assert sample.details["mean steps to (4) of 400 at most, fast"] == 15.0
    slow = sample.details["mean steps to (4) of 400 at most, slow"]
    assert slow == pytest.approx((sum(range(90, 100)) + 400) / 11)
    assert sample.details["p of the log-rank test"] < 1e-4


def test_few_steps_are_tried_before_many_where_the_fewest_count(subject, cases, monkeypatch):
    asked = []
    plain = inversions._descend

    def descended(model, way, its, rates, **named):
        asked.append(way.steps)
        return plain(model, way, its, rates, **named)

    monkeypatch.setattr(inversions, "_descend", descended)
    monkeypatch.setattr(inversions, "STEPS", 1)
    way = replace(SHORT, measure="close", steps=40)
    assert inversions.tuned(subject, way, cases) in inversions.GRID
    assert asked[0] == 1
    assert asked == [4**i for i in range(len(asked) - 1)] + [min(4 ** (len(asked) - 1), 40)]
