"""Sound models with odd weights or settings: no law accuses them."""

from __future__ import annotations

import pytest
import torch

import assay
from assay.fixtures import families
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.tiny_llama import llama


def test_weights_so_large_that_rounding_decides_are_no_broken_gradient() -> None:
    model = llama()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in model.parameters():
            parameter.normal_(0.0, 30.0)
    assert not assay.check(model, claims=["F1"], profile="glance").refuted


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_constant_embedding_matrix_breaks_no_law_of_decoding(value: float) -> None:
    model = llama()
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(value)
    run = assay.check(model, claims=["D4"], profile="glance")
    assert {str(each.verdict) for each in run.results} == {"not applicable"}
    assert "all rows of the embedding matrix are equal" in run.results[0].reason


def test_weights_that_overflow_break_the_law_of_finite_numbers_alone() -> None:
    model = llama()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e12)
    run = assay.check(model, claims=["C1", "C2", "C4", "C13", "F2"], profile="glance")
    assert {each.id for each in run.refuted} == {"C13"}
    reasons = [each.reason for each in run.results if each.id in ("C1", "F2")]
    assert reasons
    assert all("overflows" in why for why in reasons)


def test_weights_that_underflow_are_no_broken_law() -> None:
    model = llama()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e-15)
    (result,) = assay.check(model, claims=["C1"], profile="glance").results
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "which underflows" in result.reason


def test_a_model_without_layers_has_no_cache_to_break() -> None:
    run = assay.check(
        llama(num_hidden_layers=0), claims=["C2:a quantised cache"], profile="glance"
    )
    assert {str(each.verdict) for each in run.results} == {"not applicable"}


def test_zero_embeddings_and_positions_break_no_sum() -> None:
    model = families.tiny("gpt2")
    with torch.no_grad():
        model.transformer.wte.weight.zero_()
        model.transformer.wpe.weight.zero_()
    run = assay.check(model, claims=["D3"], profile="glance")
    assert not run.refuted


@pytest.mark.parametrize("ends", [list(range(60)), [2] * 90], ids=["many", "one, repeated"])
def test_many_end_tokens_break_no_search(ends: list[int]) -> None:
    model = llama()
    model.generation_config.eos_token_id = ends
    run = assay.check(model, claims=["C4:beam", "C4:[sampling]"], profile="glance")
    assert [str(each.verdict) for each in run.results] == ["upheld", "upheld"]
    assert model.generation_config.eos_token_id == ends
