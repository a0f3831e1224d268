"""The toys against plain training, one at a time; and what each of their claims would reject."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from assay.claims.order import test_toys as toys
from assay.harness.checking.draws import Draws
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.samples import Sample
from assay.harness.checking.statistics import mean, share
from assay.harness.operations import trigram
from assay.harness.operations.trigram import TASKS, Layer, Trigram, Variant
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


@pytest.mark.parametrize("optimiser", trigram.OPTIMISERS)
def test_a_seed_does_not_depend_on_its_batch_mates(optimiser):
    variant = Variant(layers=2, optimiser=optimiser)
    few, many = last(variant, (15, 3), 50), last(variant, (1, 3, *range(20, 40), 15), 50)
    assert torch.allclose(few, many[:, [-1, 1]], atol=1e-4)
    assert not torch.allclose(few, many[:, [1, -1]], atol=1e-2)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_order_of_a_b_hit_is_seen_by_positions_or_two_causal_layers(variant):
    prompts = trigram.one_hot(trigram.sentences("A B hit")[0])
    for seed in SEEDS:
        one, other = Trigram(variant, seed)(prompts)
        assert torch.allclose(one, other, atol=1e-6) == (variant in BLIND)


@pytest.mark.parametrize("variant", BLIND, ids=str)
def test_rounding_is_never_taken_for_learning(variant):
    for logits in trigram.course(variant, SEEDS, 100):
        ordered = logits[1]  # of 'A B hit'
        assert (ordered[:, 0] - ordered[:, 1]).abs().max() < trigram.TIE / 10


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_a_layer_is_torch_s_attention(causal, residual):
    layer = Layer(Variant(causal=causal, residual=residual))
    x = torch.randn(2, 3, trigram.WIDTH, generator=torch.Generator().manual_seed(0))
    q, k, v = layer.query(x), layer.key(x), layer.value(x)
    attended = layer.out(F.scaled_dot_product_attention(q, k, v, is_causal=causal))
    expected = attended + x if residual else attended
    for reads in (1, 2, 3):
        assert torch.allclose(layer(x, reads), expected[:, -reads:], atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_toy_of_one_is_a_plain_transformer(variant):
    for task in TASKS:
        prompts, _ = trigram.sentences(task)
        model = Trigram(variant, 3)
        assert torch.allclose(model(trigram.one_hot(prompts)), plain(model, prompts), atol=1e-5)


def test_a_task_alone_is_trained_as_with_the_other():
    both = last(Variant(layers=2), SEEDS, 20)
    for row, task in zip(both, TASKS, strict=True):
        (one,) = list(trigram.course(Variant(layers=2), SEEDS, 20, tasks=[task]))[-1]
        assert torch.allclose(one, row, atol=1e-5)


def test_weights_come_from_the_seed():
    one, same, other = (Trigram(Variant(), seed) for seed in (1, 1, 2))
    assert torch.equal(one.tokens.weight, same.tokens.weight)
    assert not torch.equal(one.tokens.weight, other.tokens.weight)


@pytest.mark.parametrize(
    ("part", "usual"), [("unembed", nn.Linear(trigram.WIDTH, 5)), ("tokens", nn.Embedding(5, 16))]
)
def test_weights_are_spread_as_torch_spreads_them(part, usual):
    ours = torch.cat([getattr(Trigram(Variant(), s), part).weight.detach() for s in range(50)])
    theirs = []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(50):
            usual.reset_parameters()
            theirs.append(usual.weight.detach().clone())
    assert float(ours.std()) == pytest.approx(float(torch.cat(theirs).std()), rel=0.05)


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


def judged(bound: Bound, effect: Variant, control: Variant, tasks=("A B hit", "A hit B"), at=300):
    """The verdict on the share of 64 seeds of a toy that have learned one task."""

    @finding(
        "B0", "toys learn", source="a test", bound=bound, control="another toy", draws=64, block=64
    )
    def claim(draws, sample):
        seeds = trigram.seeds(draws)
        sample.add(
            effect=trigram.train(effect, seeds, (at,))[tasks[0]][at],
            control=trigram.train(control, seeds, (at,))[tasks[1]][at],
        )

    return verdict(claim, toy("reference:small")).verdict


NEVER, MOSTLY = Bound(share, at_most=0.1), Bound(share, above=0.8)
BLIND_TOY, SEEING = Variant(), Variant(positions=True)


def test_a_toy_with_positions_refutes_that_one_layer_cannot_learn():
    assert judged(NEVER, BLIND_TOY, BLIND_TOY) is Verdict.UPHELD
    assert judged(NEVER, SEEING, BLIND_TOY) is Verdict.REFUTED


def test_a_toy_without_positions_refutes_that_order_is_learned():
    tasks = ("A B hit", "A B hit")
    assert judged(MOSTLY, SEEING, BLIND_TOY, tasks) is Verdict.UPHELD
    assert judged(MOSTLY, BLIND_TOY, BLIND_TOY, tasks) is Verdict.REFUTED


def test_a_control_that_learns_too_leaves_the_finding_undecided():
    tasks = ("A B hit", "A B hit")
    assert judged(MOSTLY, SEEING, SEEING, tasks) is Verdict.INCONCLUSIVE


def test_few_steps_are_few():
    seeded = Bound(share, at_least=0.1, at_most=0.9)
    tasks = ("A hit B", "A B hit")
    alone = Variant(residual=False)
    assert judged(seeded, alone, alone, tasks, at=30) is Verdict.UPHELD
    assert judged(seeded, alone, alone, tasks, at=300) is Verdict.REFUTED


def test_a_wide_head_is_not_later_than_itself():
    seeds = tuple(range(64))

    def after(head):
        return trigram.train(Variant(head=head, residual=False), seeds, (100,))["A hit B"][100]

    bound = Bound(mean, below=0.0)
    differences = [(after(head).double() - after(8).double()).numpy() for head in (2, 8)]
    narrow, same = (bound.verdict(mean.interval(d, 0.95)) for d in differences)
    assert narrow is Verdict.UPHELD
    assert same is not Verdict.UPHELD


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
