"""The toys against plain training, one at a time; and what each of their claims would reject."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from assay.claims.order import test_toys as toys
from assay.harness.checking.draws import Draws
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.samples import Sample
from assay.harness.checking.statistics import share
from assay.harness.operations import trigram
from assay.harness.operations.trigram import TASKS, Trigram, Variant
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import toy, verdict

SEEDS = (3, 14, 15)

VARIANTS = [
    Variant(),
    Variant(residual=False),
    Variant(head=2, residual=False),
    Variant(causal=False),
    Variant(layers=2, causal=False),
    Variant(positions=True),
    Variant(layers=2),
]
"""The toys of the claims."""

BLIND = [v for v in VARIANTS if not v.positions and not (v.layers > 1 and v.causal)]
"""Those that cannot tell 'A B hit' from 'B A hit'."""


def plain(model: Trigram, prompts: torch.Tensor) -> torch.Tensor:
    """The logits [2, vocabulary] of a toy, every place computed, with torch's own attention."""
    x = F.embedding(prompts, model.tokens.weight)
    if model.places is not None:
        x = x + model.places.weight
    for layer in model.layers:
        q, k, v = layer.query(x), layer.key(x), layer.value(x)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=layer.variant.causal)
        x = layer.out(mixed) + (x if layer.variant.residual else 0)
    return model.unembed(x)[:, -1]


def alone(variant: Variant, seed: int, task: str, steps: int) -> torch.Tensor:
    """The logits [2, vocabulary] of one toy after an ordinary training loop."""
    prompts, answers = trigram.sentences(task)
    model = Trigram(variant, seed)
    optimiser = {
        "adamw": lambda: torch.optim.AdamW(model.parameters(), lr=1e-3),
        "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.1),
    }[variant.optimiser]()
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(plain(model, prompts), answers).backward()
        optimiser.step()
    return plain(model, prompts).detach()


def last(variant: Variant, seeds: tuple[int, ...], steps: int) -> torch.Tensor:
    """The logits [tasks, seeds, 2, vocabulary] at the end of `trigram.course`."""
    return list(trigram.course(variant, seeds, steps))[-1]


@pytest.mark.parametrize("variant", [*VARIANTS, Variant(optimiser="sgd")], ids=str)
def test_training_together_is_training_alone(variant):
    together = last(variant, SEEDS, 20)
    for row, task in zip(together, TASKS, strict=True):
        for logits, seed in zip(row, SEEDS, strict=True):
            assert torch.allclose(logits, alone(variant, seed, task, 20), atol=1e-4)
            assert not torch.allclose(logits, alone(variant, seed, task, 19), atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_order_of_a_b_hit_is_seen_by_positions_or_two_causal_layers(variant):
    prompts = trigram.sentences("A B hit")[0]
    for seed in SEEDS:
        one, other = Trigram(variant, seed)(prompts)
        assert torch.allclose(one, other, atol=1e-6) == (variant in BLIND)


@pytest.mark.parametrize("variant", BLIND, ids=str)
def test_rounding_is_never_taken_for_learning(variant):
    for logits in trigram.course(variant, SEEDS, 100):
        ordered = logits[1]  # of 'A B hit'
        assert (ordered[:, 0] - ordered[:, 1]).abs().max() < trigram.TIE / 10


def test_weights_come_from_the_seed():
    one, same, other = (Trigram(Variant(), seed) for seed in (1, 1, 2))
    assert torch.equal(one.tokens.weight, same.tokens.weight)
    assert not torch.equal(one.tokens.weight, other.tokens.weight)


def test_sentences_end_in_their_answers():
    prompts, answers = trigram.sentences("A B hit")
    words = [[trigram.VOCABULARY[i] for i in row] for row in prompts]
    assert words == [["A", "B", "hit"], ["B", "A", "hit"]]
    assert [trigram.VOCABULARY[i] for i in answers] == ["?", "!"]


def test_both_sentences_must_be_right_and_by_more_than_rounding():
    answers = torch.tensor([4, 3])
    sure = 5.0 * F.one_hot(answers, 5)
    half, tied, ahead = sure.clone(), sure.clone(), sure.clone()
    half[1] = half[0]
    tied[0, 3] = sure[0, 4] - trigram.TIE / 2
    ahead[0, 3] = sure[0, 4] - 1
    logits = torch.stack([sure, half, tied, ahead])
    right = trigram.both_right(logits, answers.expand(4, 2))
    assert right.tolist() == [True, False, False, True]


def test_a_training_is_done_once_and_read_at_the_steps_asked_for():
    learned = trigram.train(Variant(), SEEDS, (0, 10))
    assert trigram.train(Variant(), SEEDS, (0, 10)) is learned
    assert trigram.train(Variant(), seeds=SEEDS, at=(0, 10), device=None) is learned
    assert list(learned) == list(TASKS)
    assert all(len(learned[task][step]) == len(SEEDS) for task in TASKS for step in (0, 10))


def test_seeds_are_the_same_for_every_claim_and_others_for_another_purpose():
    draws = Draws(0, "B6", range(4))
    assert trigram.seeds(draws) == trigram.seeds(Draws(0, "B7", range(4)))
    assert len({*trigram.seeds(draws), *trigram.seeds(draws, "choice")}) == 8
    assert trigram.seeds(Draws(1, "B6", range(4))) != trigram.seeds(draws)


def test_what_is_recorded_adds_up_over_blocks():
    sample = Sample()
    for hits in ([True, False], [True, True]):
        trigram.record(sample, {"toy": {10: torch.tensor([False] * 2), 30: torch.tensor(hits)}})
    (table,) = sample.details.values()
    assert table == {"toy": {"10": (0, 4), "30": (3, 4)}}
    curve = sample.plots["Success over steps"].arrays["toy"]
    assert curve[1, :2].tolist() == [30, 0.75]
    assert curve[1, 2] < 0.75 < curve[1, 3]


def test_the_step_of_half_learned_is_not_chosen_on_the_draws():
    variant = Variant(residual=False)
    steps = [
        trigram.half_learned(variant, "A hit B", Draws(0, "B9", numbers), torch.device("cpu"))
        for numbers in (range(4), range(4, 9))
    ]
    assert steps[0] == steps[1]
    assert steps[0] in trigram.EARLY


NEVER, MOSTLY = Bound(share, at_most=0.1), Bound(share, above=0.8)
SOME = Bound(share, at_least=0.1, at_most=0.9)
BLIND_TOY, SEEING, ALONE = Variant(), Variant(positions=True), Variant(residual=False)


@pytest.mark.parametrize(
    ("bound", "effect", "control", "task", "steps", "came"),
    [
        (NEVER, BLIND_TOY, BLIND_TOY, "A B hit", 300, Verdict.UPHELD),
        (NEVER, SEEING, BLIND_TOY, "A B hit", 300, Verdict.REFUTED),
        (MOSTLY, SEEING, SEEING, "A B hit", 300, Verdict.INCONCLUSIVE),  # the control learns, too
        (SOME, ALONE, ALONE, "A hit B", 30, Verdict.UPHELD),
        (SOME, ALONE, ALONE, "A hit B", 300, Verdict.REFUTED),
    ],
)
def test_what_a_toy_learns_decides_a_finding(bound, effect, control, task, steps, came):
    other = "A hit B" if bound is NEVER else "A B hit"

    @finding(
        "B0", "toys learn", source="a test", bound=bound, control="another toy", draws=64, block=64
    )
    def claim(draws, sample):
        seeds = trigram.seeds(draws)
        sample.add(
            effect=trigram.train(effect, seeds, (steps,))[task][steps],
            control=trigram.train(control, seeds, (steps,))[other][steps],
        )

    assert verdict(claim, toy("reference:small")).verdict is came


def test_question_and_exclamation_are_scored_apart():
    seeds, alone_ = tuple(range(16)), Variant(residual=False)
    for task in ("A hit B", "A hit B, swapped"):
        difference = trigram.question_less_exclamation(alone_, seeds, 60, None, task)
        *_, (logits,) = trigram.course(alone_, seeds, 60, tasks=[task])
        asks = trigram.sentences(task)[1].tolist().index(4)
        top = logits.argmax(-1)
        expected = (top[:, asks] == 4).double() - (top[:, 1 - asks] == 3).double()
        assert torch.equal(difference, expected)
        assert set(difference.tolist()) <= {-1.0, 0.0, 1.0}


@pytest.mark.parametrize(
    ("usual", "swapped", "came"),
    [
        (0.3, -0.3, Verdict.UPHELD),
        (-0.3, 0.3, Verdict.INCONCLUSIVE),  # the control came out as the claim was to
        (-0.3, 0.02, Verdict.REFUTED),
        (0.3, 0.3, Verdict.INCONCLUSIVE),  # '?' is easier, wherever it stands
    ],
)
def test_which_mark_comes_out_right_more_often_is_decided_by_both_trainings(
    usual, swapped, came, monkeypatch
):
    def scored(variant, seeds, steps, device, task):
        tilt = swapped if task in trigram.SWAPPED else usual
        generator = torch.Generator().manual_seed(0)
        lean = torch.rand(len(seeds), generator=generator) < abs(tilt)
        return lean.double() * (1 if tilt > 0 else -1)

    monkeypatch.setattr(trigram, "question_less_exclamation", scored)
    result = verdict(toys.test_the_question_mark_is_right_more_often, toy("reference:small"))
    assert result.verdict is came
