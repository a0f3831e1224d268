"""The fully connected nets: the document's own class, and what stands in place of a target."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.claims.inversion import test_inversion_nets as claims
from assay.harness.inversion import check_target, nets
from assay.harness.models.capabilities import Missing
from assay.harness.models.machine import memory
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.randoms import seeded
from assay.harness.tests.support.toys import as_trained, toy, verdict

N, D = 3, 8


def noise(*shape, seed=1):
    return torch.randn(shape, generator=seeded(seed))


class FCNet(nn.Module):
    """Document 003's class, letter by letter but for the width of the last layer."""

    def __init__(self, input_length, hidden_dim, last):
        super().__init__()
        self.input = nn.Linear(input_length * hidden_dim, 4 * input_length * hidden_dim)
        self.h2h = nn.Linear(4 * input_length * hidden_dim, last * input_length * hidden_dim)
        self.gelu = nn.GELU()

    def forward(self, x):
        return self.h2h(self.gelu(self.input(x.flatten())))


def documented(net, last):
    """The document's net with the weights of ``net``."""
    module = FCNet(N, D, last)
    with torch.no_grad():
        for layer, weight, bias in zip(
            (module.input, module.h2h), net.weights, net.biases, strict=True
        ):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    return module


# What they compute.


@pytest.mark.parametrize(("kind", "last"), [("expanding", 4), ("contracting", 1)])
def test_flattened_nets_are_the_document_s(kind, last):
    net, x = nets.flattened(kind, N, D, seeded()), noise(5, N, D)
    module = documented(net, last)
    assert net(x).shape == (5, N, last * D)
    for row, output in zip(x, net(x), strict=True):
        assert torch.allclose(output.flatten(), module(row), atol=1e-6)


def test_a_net_per_token_sees_one_token_at_a_time():
    net, x = nets.per_token(D, seeded()), noise(2, N, D)
    first, last = (nn.Linear(D, 4 * D), nn.Linear(4 * D, D))
    with torch.no_grad():
        for layer, weight, bias in zip((first, last), net.weights, net.biases, strict=True):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    assert torch.allclose(net(x), last(nn.GELU()(first(x))), atol=1e-6)
    assert torch.allclose(net(x)[:, 1:2], net(x[:, 1:2]), atol=1e-6)


# How they are drawn.


def test_a_net_that_does_not_fit_into_the_memory_is_a_missing_capability(monkeypatch):
    monkeypatch.setattr(memory, "free", lambda device: 1e6)
    with pytest.raises(Missing, match="does not fit into memory"):
        nets.flattened("expanding", 5, 256, seeded())


# In place of a target.


def test_an_expanding_net_is_inverted_in_both_ways_and_a_narrowing_one_in_none():
    for way in claims.WAYS:
        result = verdict(
            claims.test_an_expanding_net_is_inverted_exactly,
            as_trained("llama"),
            arguments={"way": way},
        )
        assert (result.verdict, result.observed) == (Verdict.UPHELD, 1.0)
        assert result.details["control value"] < 0.1
        assert result.details["recorded"]["expanding_recovery_at_0"] < 0.2


# What cannot be used.


def test_an_unknown_kind_is_one_clear_line():
    with pytest.raises(BadInput, match="unknown net 'wide': choose from expanding") as error:
        nets.flattened("wide", N, D, seeded())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("shape", [(1, N + 1, D), (1, N, D + 1)])
def test_a_net_takes_the_shape_that_it_was_made_for(shape):
    with pytest.raises(BadInput, match=f"takes {N} tokens × {D} and not"):
        nets.flattened("expanding", N, D, seeded())(noise(*shape))
    with pytest.raises(BadInput, match="any number of tokens × 8 and not 3 × 9"):
        nets.per_token(D, seeded())(noise(1, N, D + 1))


def test_a_net_of_another_width_is_no_target_of_a_subject():
    subject, net = toy("llama"), nets.flattened("expanding", N, D, seeded())
    with pytest.raises(BadInput, match="the expanding net: takes 8 features and not 32"):
        check_target(subject, net, noise(1, N, 4 * D))
    fitting = nets.flattened("contracting", N, subject.hidden, seeded())
    with pytest.raises(BadInput, match="the contracting net has 32 features and not 31"):
        check_target(subject, fitting, noise(1, N, 31))
