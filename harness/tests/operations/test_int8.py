"""LLM.int8() against its definition, and E16 on it."""

from __future__ import annotations

import torch
from torch import nn

from assay.claims.inversion import test_eight_bits as claims
from assay.harness.operations import int8
from assay.harness.operations.variants import round_rows
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import as_trained, verdict

EIGHT = claims.test_eight_bits_do_not_change_the_condition


def layer(generator=0):
    torch.manual_seed(generator)
    return nn.Linear(16, 5)


def product_by_hand(x, weight):
    """Whole numbers multiplied as such, row by row, and scaled afterwards."""
    sx, sw = (each.abs().amax(1, keepdim=True) / 127 for each in (x, weight))
    qx, qw = ((each / s).round().long() for each, s in ((x, sx), (weight, sw)))
    assert int(qx.abs().max()) == int(qw.abs().max()) == 127
    return (qx @ qw.T) * (sx * sw.T)


def test_without_outliers_whole_numbers_are_multiplied():
    plain, x = layer(), torch.randn(7, 16, generator=torch.Generator().manual_seed(1))
    ours = int8.Int8(plain.weight, plain.bias)(x)
    assert torch.allclose(ours, product_by_hand(x, plain.weight) + plain.bias, atol=1e-5)
    off = (ours - plain(x)).detach().abs().max()
    assert 1e-4 < float(off) < 0.05


def test_outlying_features_are_multiplied_at_full_precision():
    plain, x = layer(), torch.randn(7, 16, generator=torch.Generator().manual_seed(1))
    x[3, 4] = 1000.0
    quantised = int8.Int8(plain.weight, plain.bias)
    apart = x.clone()
    apart[:, 4] = 0
    expected = product_by_hand(apart, plain.weight) + x[:, 4:5] * plain.weight[:, 4]
    assert torch.allclose(quantised(x), expected + plain.bias, rtol=1e-5, atol=1e-4)
    naive = product_by_hand(x, plain.weight) + plain.bias
    ours, theirs = (float((y - plain(x)).detach().abs().max()) for y in (quantised(x), naive))
    assert 10 * ours < theirs


def test_the_threshold_itself_is_outlying():
    quantised = int8.Int8(torch.eye(2), None)
    x = torch.tensor([[6.0, 0.013]])
    assert torch.allclose(quantised(x), x, rtol=1e-6)


def test_the_gradient_passes_through_the_rounding():
    plain = layer()
    x = torch.randn(1, 16, requires_grad=True)
    int8.Int8(plain.weight, plain.bias)(x)[0, 2].backward()
    assert torch.allclose(x.grad[0], round_rows(plain.weight.detach(), 8)[2], atol=1e-6)


def test_eight_bits_change_little_and_two_much():
    arguments = {"quantised": int8.llm_int8}
    result = verdict(EIGHT, as_trained("untrained:small:0"), arguments=arguments)
    assert (result.verdict, result.observed > 0) == (Verdict.UPHELD, True)


def test_four_levels_are_too_few(monkeypatch):
    monkeypatch.setattr(int8, "BITS", 2)
    result = verdict(
        EIGHT, as_trained("untrained:small:0"), arguments={"quantised": int8.llm_int8}
    )
    assert result.verdict is Verdict.REFUTED
