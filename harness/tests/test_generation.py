"""Generated tokens, the scores that chose them, and how far two of them agree."""

from __future__ import annotations

import pytest
import torch

from harness import generation
from harness.capabilities import Missing
from harness.check import Check
from harness.generation import MODES, NEW_TOKENS, Generated
from harness.rows import Rows
from harness.tests.toys import is_broken, prompt, toy


def made_of(*rows: list[int]) -> Generated:
    ids = torch.tensor(rows)
    return Generated(ids[:, :1], ids, Rows({"logits": torch.zeros(*ids.shape, 3)}))


@pytest.mark.parametrize(
    ("other", "steps"),
    [([1, 2, 3, 4], 4), ([1, 2, 9, 9], 3), ([9, 2, 3, 4], 1), ([1, 2, 3, 9], 4), ([1, 2], 2)],
)
def test_two_are_compared_up_to_the_first_token_that_differs(other, steps):
    assert made_of([1, 2, 3, 4]).common(made_of(other)) == steps


def test_a_difference_in_any_row_of_the_batch_counts():
    assert made_of([1, 2, 3], [1, 2, 3]).common(made_of([1, 2, 3], [1, 7, 3])) == 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model_type", ["gpt2", "t5"])
def test_every_step_has_the_scores_that_chose_its_token(model_type, mode):
    subject = toy(model_type)
    made = generation.scores(subject, prompt(subject, batch=1), mode, use_cache=True)
    assert made.ids.shape == (1, NEW_TOKENS)
    assert made.rows["logits"].shape == (1, NEW_TOKENS, subject.vocabulary)
    if mode != "sampling":
        best = made.rows["logits"].clone()
        ends = subject.model.generation_config.eos_token_id
        best[..., [] if ends is None else ends] = -torch.inf  # the end is held back
        assert torch.equal(made.ids, best.argmax(-1))


@pytest.mark.parametrize("model_type", ["llama", "t5", "mamba"])
def test_the_reference_is_one_pass_over_what_was_generated(model_type):
    subject = toy(model_type)
    made = generation.scores(subject, prompt(subject, batch=1), "greedy", use_cache=False)
    expected = made.reference(subject)
    assert expected.oracle["logits"].shape == made.rows["logits"].shape
    assert not is_broken(Check(subject), expected, made.rows)
    assert is_broken(Check(subject), expected, made.rows.map(lambda t: t.roll(1, dims=1)))


def test_the_reference_of_a_model_that_is_not_causal_is_the_same_tokens_generated_again():
    subject = toy("xlm")  # adds a token to every prompt, and attends both ways
    made = generation.scores(subject, prompt(subject), "sampling", use_cache=False)
    expected = made.reference(subject)
    assert not is_broken(Check(subject), expected, made.rows)
    assert is_broken(Check(subject), expected, made.rows.map(lambda t: t.roll(1, dims=1)))
    assert is_broken(Check(subject), expected, made.rows.map(lambda t: t.roll(1, dims=0)))


def test_a_model_that_does_not_generate_in_float64_has_no_reference():
    subject = toy("xlnet")
    made = generation.scores(subject, prompt(subject), "greedy", use_cache=False)
    with pytest.raises(Missing, match=r"does not generate in float64: .*scalar type"):
        made.reference(subject)


def test_a_mode_that_a_model_refuses_is_missing_in_its_words():
    subject = toy("mamba")
    with pytest.raises(Missing, match=r"assisted.* not supported with stateful models"):
        generation.scores(subject, prompt(subject, batch=1), "assisted", use_cache=True)


def test_sampling_repeats_and_leaves_the_random_state_as_it_was():
    subject = toy("gpt2")
    before = torch.get_rng_state()
    ids = prompt(subject, batch=1)
    one, other = (generation.scores(subject, ids, "sampling", use_cache=True) for _ in range(2))
    greedy = generation.scores(subject, ids, "greedy", use_cache=True)
    assert torch.equal(one.ids, other.ids)
    assert not torch.equal(one.ids, greedy.ids)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_best_beam_scores_no_worse_than_greedy():
    subject = toy("gpt2")
    ids = prompt(subject, batch=1)
    greedy = generation.scores(subject, ids, "greedy", use_cache=True)
    chosen = greedy.rows["logits"].log_softmax(-1).gather(-1, greedy.ids[..., None])
    assert (
        float(generation.beams(subject, ids, use_cache=True).scores) >= float(chosen.mean()) - 1e-5
    )
    assert float(generation.beams(subject, ids, use_cache=True).scores) < 0
