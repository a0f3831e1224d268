"""Gradients to the embeddings, against maps whose gradients are known; and Jacobians."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from assay.claims.walks import test_gradients as laws
from assay.harness import faults
from assay.harness.checking.comparing import Unsettled
from assay.harness.inversion import Target, condition, embedded, gradients, jacobian
from assay.harness.models.capabilities import Missing
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import TOLERANCES
from assay.harness.models.subject import Subject
from assay.harness.models.subject.rows import Rows
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import budget, changed, fresh, prompt, toy, verdict

SUM = laws.test_the_gradient_of_the_sum_is_the_sum_of_gradients
HALVES = ("float16", "bfloat16")


def linear(weight: torch.Tensor):
    """A model whose first block is replaced by a linear map of the embeddings."""
    subject = fresh("gpt2")
    subject.model.transformer.wpe.weight.zero_()
    subject.blocks[0].register_forward_hook(lambda _, arguments, __: arguments[0] @ weight)
    return subject


def test_the_gradient_of_a_linear_map_is_its_columns_sum():
    weight = torch.randn(32, 32, generator=torch.Generator().manual_seed(0))
    subject = linear(weight)
    gradient = gradients.of_sum(subject, "block", prompt(subject, 3))["gradient"]
    assert gradient.shape == (2, 3, 32)
    assert torch.allclose(gradient, weight.sum(1).expand_as(gradient), atol=1e-5)


def test_vectors_past_the_rank_are_orthogonal_and_the_first_is_not():
    gradient = torch.randn(3, 10, generator=torch.Generator().manual_seed(2))
    past, first, floor = gradients.alignment(gradient)
    assert past < floor < first
    assert first <= 1 + 1e-6


def test_a_part_that_is_normalised_last_has_no_gradient_of_its_sum():
    def normalised(state):
        return torch.nn.functional.layer_norm(state, state.shape[-1:])

    subject = changed("gpt2", normalised)
    assert gradients.vanishing(subject) == {"block"}
    gradients.require(subject, "model")
    with pytest.raises(Missing, match="the block is normalised last"):
        gradients.require(subject, "block")
    assert gradients.vanishing(toy("gpt2")) == set()


# Emulated rounding in 16 bits is coarser than any machine's (docs/rounding.md).
@pytest.mark.usefixtures("itself")
@pytest.mark.parametrize("dtype", HALVES)
def test_a_relu_near_0_moves_the_gradient_and_not_its_sum(dtype):
    """In 16 bits t5's gradients are far from float64's on some prompts, and add up on all."""
    subject, corners = toy("t5", dtype), 0
    for seed in range(12):
        ids = prompt(subject, 6, seed=seed)
        sizes = gradients.lengths(gradients.of_pieces(reference_of(subject), "block", ids, 2))
        plain, exact = (
            gradients.of_sum(s, "block", ids) for s in (subject, reference_of(subject))
        )
        parts = gradients.of_pieces(subject, "block", ids, 2)
        allowed = TOLERANCES[subject.dtype].allowed(gradients.noise(plain, exact, sizes))
        corners += gradients.apart(plain, exact, sizes).error > allowed
        assert gradients.apart(gradients.total(parts), plain, sizes).error < allowed
        assert gradients.apart(gradients.total(parts[:1]), plain, sizes).error > allowed
    assert corners


@pytest.mark.usefixtures("itself")
@pytest.mark.parametrize(("spec", "dtype"), [("t5", "bfloat16"), ("llama", "float16")])
def test_gradients_that_are_clipped_are_caught_in_16_bits(spec, dtype):
    with faults.injected(faults.named("gradients-clipped"), toy(spec, dtype)) as damaged:
        broken = verdict(SUM, damaged, budget(6), arguments={"part": "block"})
    assert broken.verdict is Verdict.REFUTED
    assert verdict(SUM, toy(spec, dtype), budget(6), arguments={"part": "block"}).verdict is (
        Verdict.UPHELD
    )


def test_a_gradient_that_is_linear_and_wrong_is_caught(monkeypatch):
    def mirrored(subject, part, ids):
        plain = of_sum(subject, part, ids)
        return plain if subject.dtype == torch.float64 else plain.map(torch.neg)

    def mirrored_pieces(subject, part, ids, pieces):
        terms = of_pieces(subject, part, ids, pieces)
        return terms if subject.dtype == torch.float64 else [t.map(torch.neg) for t in terms]

    of_sum, of_pieces = gradients.of_sum, gradients.of_pieces
    monkeypatch.setattr(gradients, "of_sum", mirrored)
    monkeypatch.setattr(gradients, "of_pieces", mirrored_pieces)
    result = verdict(SUM, toy("llama"), budget(3), arguments={"part": "block"})
    assert result.verdict is Verdict.REFUTED
    assert "median row" in result.reason


def saturated():
    """A model whose attention is saturated: rounding moves some rows' gradients by far more."""
    torch.manual_seed(0)
    sizes = {"n_layer": 4, "n_head": 2, "n_embd": 16, "n_positions": 16, "vocab_size": 13}
    model = GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=5.0)).eval()
    return Subject("saturated", model.requires_grad_(False))


def test_a_wrong_gradient_of_such_a_model_is_seen(monkeypatch):
    total = gradients.total

    def wrong(terms):
        right = total(terms)["gradient"]
        return Rows({"gradient": right + 0.01 * right.norm(dim=-1, keepdim=True)})

    monkeypatch.setattr(gradients, "total", wrong)
    assert (
        verdict(SUM, saturated(), budget(10), arguments={"part": "block"}).verdict
        is Verdict.REFUTED
    )


def test_a_row_that_rounding_moves_excuses_no_other_row() -> None:
    right = Rows({"gradient": torch.ones(1, 3, 4)})
    wrong = Rows({"gradient": right["gradient"] + torch.tensor([[[0.0], [0.5], [9.0]]])})
    tolerance, sizes = TOLERANCES[torch.float32], torch.full((1, 3), 2.0)
    spread = torch.tensor([[0.0, 0.0, 5.0]])
    rows = gradients.stable(spread, tolerance)
    assert rows.tolist() == [[True, True, False]]
    difference = gradients.apart(wrong, right, sizes, spread, rows)
    assert difference.error == pytest.approx(0.5)
    assert difference.position == 1
    with pytest.raises(Unsettled, match="rounding alone moves every row"):
        gradients.stable(spread + 1, tolerance)


# Jacobians.


@pytest.mark.parametrize(
    ("spec", "depth", "at_once"), [("gpt2", 1, True), ("llama", 2, False), ("bert", 2, True)]
)
def test_the_jacobian_is_torchs_own(monkeypatch, spec, depth, at_once):
    def refuse(*_):
        raise RuntimeError("there is no rule for this operation")

    if not at_once:
        monkeypatch.setattr(gradients, "_at_once", refuse)
    subject = toy(spec, "float64")
    ids, target = torch.tensor([5, 9, 17]), Target(depth)
    before = embedded(subject)[ids]

    def last(e):
        whole = torch.cat([before[:-1], e[None]])[None]
        return target.output(subject, embeddings=whole)[0, -1]

    slow = torch.autograd.functional.jacobian(last, before[-1])
    fast = jacobian(subject, target, ids)
    # In any dtype llama computes its norms and angles in float32.
    off = 1e-5 if spec == "llama" else 1e-9
    assert torch.allclose(fast, slow, rtol=1e-6, atol=off)
    assert not torch.allclose(fast.T, slow, rtol=1e-2), "rows and columns are told apart"


def test_the_condition_is_the_largest_singular_value_over_the_least():
    assert condition(torch.diag(torch.tensor([4.0, 1.0, 0.5]))) == pytest.approx(8.0)
    turned = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    assert condition(turned) == pytest.approx(1.0)
    assert condition(torch.diag(torch.tensor([1.0, 0.0]))) > 1e300
