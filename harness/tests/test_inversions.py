"""What the claims about inversion look at: sides, starts, step sizes, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from claims.test_inversion_conditions import times_as_many
from fixtures import inversions, texts
from fixtures.inversions import Cases, invert
from fixtures.trials import curves, shown_text, told
from fixtures.ways import LENGTH, Way, begun, shifted
from harness import inversion
from harness.draws import Draws
from harness.findings import Sample
from harness.inversion import loop, start
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
    models = inversions.untrained(subject, 3 * inversions.A_SEED)
    assert len(models) == len(inversions.SEEDS)
    assert len({id(model) for model in models}) == 3
    assert inversions.untrained(subject, inversions.A_SEED) == models[:1]
    trials = invert(models, SHORT, cases, 0.3)
    assert torch.equal(trials.ids, cases.ids)
    for i, model in enumerate(models):
        alone = invert(model, SHORT, cases.some(range(i, 6, 3)), 0.3)
        assert torch.allclose(trials.final[i::3], alone.final, rtol=1e-4)
    assert not torch.allclose(trials.final, invert(models[0], SHORT, cases, 0.3).final, rtol=1e-3)


def test_an_untrained_subject_is_its_own_untrained_side():
    subject = toy("untrained:small:0")
    assert inversions.untrained(subject, 72) == [subject]


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


def steps_of(*steps, budget=400.0):
    """Trials that met (4) after so many steps; None did not within the budget."""
    found = torch.tensor([budget if each is None else each for each in steps])
    return SimpleNamespace(
        steps_to_close=found, close=torch.tensor([each is not None for each in steps])
    )


def test_ratios_that_are_cut_off_are_unknown_unless_they_are_few():
    bare = steps_of(*[20.0] * 20)
    few, many = steps_of(*[40.0] * 19, None), steps_of(*[40.0] * 15, *[None] * 5)
    assert times_as_many(few, bare).tolist() == [2.0] * 19 + [1000.0]
    ratios = times_as_many(many, bare)
    assert ratios[:15].tolist() == [2.0] * 15
    assert ratios[15:].isnan().all()
    late = times_as_many(steps_of(None, budget=4000.0), steps_of(20.0))
    assert late.tolist() == [200.0]  # whenever it would have been met, over a hundred times
