"""Gradients to the embeddings, against maps whose gradients are known."""

from __future__ import annotations

import pytest
import torch

from harness import gradients
from harness.capabilities import Missing
from harness.gradients import PARTS
from harness.rows import Rows
from harness.tests.toys import changed, fresh, prompt, toy


def linear(weight: torch.Tensor):
    """A model whose first block is replaced by a linear map of the embeddings."""
    subject = fresh("gpt2")
    subject.model.transformer.wpe.weight.zero_()
    subject.blocks[0].register_forward_hook(lambda _, given, __: given[0] @ weight)
    return subject


def test_the_gradient_of_a_linear_map_is_its_columns_sum():
    weight = torch.randn(32, 32, generator=torch.Generator().manual_seed(0))
    subject = linear(weight)
    gradient = gradients.of_sum(subject, "block", prompt(subject, 3))["gradient"]
    assert gradient.shape == (2, 3, 32)
    assert torch.allclose(gradient, weight.sum(1).expand_as(gradient), atol=1e-5)


@pytest.mark.parametrize("part", PARTS)
def test_the_gradient_is_what_a_small_step_shows(part):
    subject = toy("gpt2").oracle  # in float64 throughout
    ids = prompt(subject, 3, batch=1)
    gradient = gradients.of_sum(subject, part, ids)["gradient"]
    leaf = subject.model.get_input_embeddings()(ids)
    step = 1e-6 * torch.randn(leaf.shape, generator=torch.Generator().manual_seed(1)).double()
    above, below = (gradients._output(subject, part, leaf + s).sum() for s in (step, -step))
    assert float(above - below) / 2 == pytest.approx(float((gradient * step).sum()), rel=1e-2)


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_the_pieces_are_as_many_as_asked_for_and_make_the_whole(pieces):
    subject = toy("llama").oracle
    ids = prompt(subject, 4)
    terms = gradients.of_pieces(subject, "block", ids, pieces)
    whole = gradients.of_sum(subject, "block", ids)["gradient"]
    assert len(terms) == pieces
    assert torch.allclose(gradients.total(terms)["gradient"], whole, atol=1e-6)
    if pieces > 1:
        assert not torch.allclose(gradients.total(terms[:-1])["gradient"], whole, atol=1e-3)


def test_the_net_is_the_same_every_time_and_draws_from_no_shared_state():
    subject = toy("gpt2")
    before = torch.get_rng_state()
    one, other = (gradients.of_sum(subject, "mlp", prompt(subject))["gradient"] for _ in range(2))
    assert torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_vectors_past_the_rank_are_orthogonal_and_the_first_is_not():
    gradient = torch.randn(3, 10, generator=torch.Generator().manual_seed(2))
    past, first, floor = gradients.alignment(gradient)
    assert past < floor < first
    assert first <= 1 + 1e-6


def test_half_precision_gradients_are_aligned_in_float32():
    gradient = torch.randn(3, 10, generator=torch.Generator().manual_seed(2)).bfloat16()
    past, _, floor = gradients.alignment(gradient)
    assert past < floor < 1e-5


def test_the_last_vector_hardly_meets_the_gradient():
    gradient = torch.randn(3, 10, generator=torch.Generator().manual_seed(2)).double()
    assert gradients.last_product(gradient) < 1e-12
    assert gradients.last_product(torch.eye(3)) == 1


def test_a_part_that_is_normalised_last_has_no_gradient_of_its_sum():
    def normalised(state):
        return torch.nn.functional.layer_norm(state, state.shape[-1:])

    subject = changed("gpt2", normalised)
    assert gradients.vanishing(subject) == {"block"}
    gradients.require(subject, "model")
    with pytest.raises(Missing, match="the block is normalised last"):
        gradients.require(subject, "block")
    assert gradients.vanishing(toy("gpt2")) == set()


def test_terms_that_cancel_are_larger_than_their_sum():
    large, rest = torch.full((1, 2, 3), 5.0), torch.full((1, 2, 3), 5.0)
    rest[0, 1] = -4.0
    terms = [Rows({"gradient": large}), Rows({"gradient": rest})]
    assert gradients.cancellation(terms) == pytest.approx(9)
    assert gradients.cancellation(terms[:1]) == 1


def test_a_total_of_one_term_is_the_term():
    term = Rows({"gradient": torch.ones(1, 2, 3)})
    assert torch.equal(gradients.total([term])["gradient"], term["gradient"])
