"""Findings on models that are broken on purpose: each is caught, and a sound model is not."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from assay.claims.cache import test_causality as causality
from assay.claims.decoding import test_embedding as embedding
from assay.claims.inversion import test_repetition as repetition
from assay.claims.order import test_order_effects as order_effects
from assay.claims.positions import test_position_effects as effects
from assay.claims.positions import test_position_table as table
from assay.fixtures.subjects import load
from assay.harness.models.capabilities import recorded
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject import Subject, positions
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.effects import (
    renamed,
    saying,
    seeing_all,
    settled,
    with_positions,
)
from assay.harness.tests.support.toys import toy


def small(vocabulary=50, layers=2):
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=64, n_embd=32, n_layer=layers, n_head=4, bos_token_id=0
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Subject("small", GPT2LMHeadModel(config).eval().requires_grad_(False))


@pytest.mark.parametrize(
    "claim",
    [
        effects.test_permuting_positions_barely_changes_the_output,
        effects.test_permuting_positions_before_the_last_barely_changes_the_output,
        effects.test_permuting_positions_is_a_tenth_of_another_prompt,
    ],
)
def test_a_model_that_reads_little_but_positions_does_not_take_them_lightly(claim):
    faint, loud = (with_positions(lambda rows, f=f: f * rows) for f in (0.2, 30.0))
    assert settled(claim, faint).verdict is Verdict.UPHELD
    assert settled(claim, loud).verdict is Verdict.REFUTED


CLAIMS_OF_A_MASK = [
    effects.test_permuting_tokens_and_positions_alike_restores_nothing,
    causality.test_the_past_without_a_mask_is_another,
]


@pytest.mark.parametrize("claim", CLAIMS_OF_A_MASK)
def test_a_model_that_attends_both_ways_is_caught(claim):
    assert settled(claim, toy("llama")).verdict is Verdict.UPHELD
    result = settled(claim, seeing_all("llama"))
    assert (result.verdict, result.observed) == (Verdict.REFUTED, 0.0)


# Order without positions.


def idle_block(spec, block):
    """A model one of whose blocks gives back what it is given."""
    subject = renamed(spec)
    recorded.reasons(subject)

    def skip(module, arguments, named, result):
        state = arguments[0] if arguments else named["hidden_states"]
        return (state, *result[1:]) if isinstance(result, tuple) else state

    subject.blocks[block].register_forward_hook(skip, with_kwargs=True)
    return subject


TWO_LAYERS = order_effects.test_two_causal_layers_see_order_without_positions


@pytest.mark.parametrize("block", [0, 1])
def test_two_layers_of_which_one_is_idle_do_not_see_order(block):
    assert settled(TWO_LAYERS, small(vocabulary=4)).verdict is Verdict.UPHELD
    result = settled(TWO_LAYERS, idle_block("llama", block))
    assert (result.verdict, result.observed) == (Verdict.REFUTED, 0.0)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ({"layers": 1}, "the model has 1 block, two are needed"),
        ({"vocabulary": 2}, "a vocabulary of 2 has no three tokens to draw"),
    ],
)
def test_a_model_without_two_layers_or_three_tokens_is_not_asked(model, why):
    result = settled(TWO_LAYERS, small(**model))
    assert (result.verdict, result.reason) == (Verdict.NOT_APPLICABLE, why)


def test_a_head_that_pools_what_it_sees_is_invariant(monkeypatch):
    class Pooling(order_effects.Head):
        def forward(self, x, *args, **named):
            return x.mean(1, keepdim=True).expand_as(x)

    claim = order_effects.test_equivariant_is_not_invariant
    monkeypatch.setattr(order_effects, "Head", Pooling)
    result = settled(claim, load("reference:small", Options()))
    assert (result.verdict, result.observed) == (Verdict.REFUTED, 0.0)


# Decoding embeddings.


def with_rows(change):
    """A copy of the tiny GPT-2 whose embedding table ``change`` has altered in place."""
    subject = renamed()
    with torch.no_grad():
        change(subject.embedding_table)
    return subject


D1 = embedding.test_the_pseudo_inverse_recovers_every_token


def test_every_token_of_a_random_table_is_recovered():
    result = settled(D1, toy("gpt2"))
    assert (result.verdict, result.observed) == (Verdict.UPHELD, 1.0)
    assert result.details["tokens not recovered"] == 0
    assert result.details["least margin"] > 0
    assert result.details["groups of equal rows"] == []


def test_a_row_that_is_twice_another_hides_it():
    def plant(w):
        w[7] = 2 * w[3]

    result = settled(D1, with_rows(plant))
    assert (result.verdict, result.observed) == (Verdict.REFUTED, pytest.approx(100 / 101))
    assert result.details["tokens not recovered"] == 1
    assert result.details["the first of them"] == ["<3>"]
    assert result.details["least margin"] < 0


def test_of_equal_rows_all_but_one_are_not_recovered():
    def plant(w):
        w[[9, 40]] = w[5].clone()

    result = settled(D1, with_rows(plant))
    assert result.verdict is Verdict.REFUTED
    assert result.details["tokens not recovered"] == 2
    assert set(result.details["the first of them"]) < {"<5>", "<9>", "<40>"}
    assert result.details["groups of equal rows"] == [[5, 9, 40]]


def scaled(times):
    """A copy whose embeddings have a standard deviation of ``times``; positions grow alike.

    What the blocks add does not: it is lost beside large embeddings.
    """
    subject = renamed()
    with torch.no_grad():
        factor = times / float(subject.embedding_table.std())
        subject.embedding_table.mul_(factor)
        positions.position_table(subject).weight.mul_(factor)
    return subject


def test_a_shift_is_small_on_a_large_scale_and_large_on_a_small_one():
    claim = embedding.test_a_small_shift_keeps_the_next_token
    assert settled(claim, scaled(1.0), draws=256).verdict is Verdict.UPHELD
    result = settled(claim, scaled(0.01))
    assert result.verdict is Verdict.REFUTED
    assert result.details["the shift over the embedding's own scale"] == pytest.approx(5)


# The table of positions.


def sinusoids(rows):
    n, width = rows.shape
    speeds = 10_000 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(n)[:, None] * speeds
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def with_a_near_copy(rows):
    rows[:, 9] = rows[:, 4] + 0.1 * rows[:, 9]
    return rows


@pytest.mark.parametrize(
    "claim",
    [
        table.test_neighbouring_positions_are_similar,
        table.test_nearer_positions_are_more_similar,
        table.test_dimensions_are_correlated_beyond_chance,
        table.test_cosines_of_dimensions_are_not_those_of_a_shuffle,
    ],
)
def test_sinusoids_are_ordered_and_noise_is_not(claim):
    assert settled(claim, with_positions(sinusoids)).verdict is Verdict.UPHELD
    assert settled(claim, toy("gpt2")).verdict is Verdict.REFUTED


def test_a_near_copy_of_a_dimension_is_found_and_noise_has_none():
    claim, spec = table.test_the_most_similar_dimensions_are_near_copies, "untrained:small:0"
    result = settled(claim, with_positions(with_a_near_copy, spec))
    assert result.verdict is Verdict.UPHELD
    assert result.details["top pairs"][0].endswith("in (4, 9)")
    assert settled(claim, toy(spec)).verdict is Verdict.REFUTED


@pytest.mark.usefixtures("short_texts")
def test_a_model_that_only_repeats_and_one_that_never_does():
    claim = repetition.test_greedy_text_repeats_itself
    stuck, climbing = saying(lambda ids: ids), saying(lambda ids: ids + 1)
    result = settled(claim, stuck)
    assert result.verdict is Verdict.UPHELD
    assert result.details["recorded"]["greedy"] == pytest.approx(20 / 21)
    result = settled(claim, climbing)
    assert result.verdict is not Verdict.UPHELD
    assert result.details["recorded"]["greedy"] == 0
