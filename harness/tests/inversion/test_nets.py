"""The fully connected nets: the document's own class, and what stands in place of a target."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.claims.inversion import test_inversion_nets as claims
from assay.harness.checking.draws import Draws
from assay.harness.inversion import Rule, check_target, descend, embedded, nets
from assay.harness.models.capabilities import Missing
from assay.harness.models.machine import memory
from assay.harness.models.reference.float64 import reference_of
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.randoms import seeded
from assay.harness.tests.support.toys import as_trained, prompt, toy, verdict

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


@pytest.mark.parametrize("at_once", [1, 100, 1000])
def test_a_net_is_drawn_by_parts_as_it_is_whole(monkeypatch, at_once):
    like = torch.empty(0, dtype=torch.bfloat16)
    whole = nets.flattened("expanding", 3, 8, seeded(), like)
    monkeypatch.setattr(nets, "DRAWN_AT_ONCE", at_once)
    parts = nets.flattened("expanding", 3, 8, seeded(), like)
    pairs = zip((*whole.weights, *whole.biases), (*parts.weights, *parts.biases), strict=True)
    assert all(one.equal(other) for one, other in pairs)


def test_a_net_that_does_not_fit_into_the_memory_is_a_missing_capability(monkeypatch):
    monkeypatch.setattr(memory, "free", lambda device: 1e6)
    with pytest.raises(Missing, match="does not fit into memory"):
        nets.flattened("expanding", 5, 256, seeded())


# In place of a target.


def test_a_net_is_given_ids_or_embeddings():
    subject = toy("llama")
    net, ids = nets.flattened("expanding", N, subject.hidden, seeded()), prompt(subject, N)
    output = net.output(subject, ids)
    assert torch.equal(output, net.output(subject, embeddings=embedded(subject)[ids]))
    assert output.shape == (2, N, net.features(subject)) == (2, N, 4 * subject.hidden)
    check_target(subject, net, output)
    per_token = nets.per_token(subject.hidden, seeded())
    check_target(subject, per_token, per_token.output(subject, ids))


def test_descent_finds_what_an_expanding_net_was_given():
    subject = reference_of(toy("llama"))
    table = embedded(subject)
    net = nets.flattened("expanding", N, subject.hidden, seeded(), table)
    ids = prompt(subject, N)
    wanted, first = net.output(subject, ids), torch.zeros_like(table[ids])
    rates = torch.full((2,), 0.02, dtype=torch.float64)
    made = descend(subject, net, wanted, first, rates, Rule(steps=200))
    off = (made.embeddings - table[ids]).norm() / table[ids].norm()
    assert float(off) < 0.05
    others = descend(subject, net, wanted.roll(1, 0), first, rates, Rule(steps=200))
    assert float((others.embeddings - table[ids]).norm() / table[ids].norm()) > 0.5


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


def test_draws_have_eight_to_a_net(monkeypatch):
    """48 prompts of one net say nothing of others."""
    made = []

    def searched(subject, kind, draws, generator):
        made.append(len(draws))
        row = (torch.zeros(claims.TOKENS), torch.zeros(6, claims.TOKENS)) + (
            torch.zeros(claims.TOKENS),
        ) * 2
        return [dict.fromkeys(claims.WAYS, row) for _ in draws]

    monkeypatch.setattr(claims, "searched", searched)
    monkeypatch.setattr(claims, "tuning", lambda *_: dict.fromkeys(claims.WAYS, (1.0, {})))
    monkeypatch.setattr(claims, "results_by_net", lambda subject: known)
    known = {}
    inversions = claims.inverted(None, "expanding", claims.WAYS[0], Draws(0, "E1", range(20)))
    assert made == [8, 8, 4]
    assert inversions.by_net(inversions.exact)[:, 1].tolist() == [0] * 8 + [1] * 8 + [2] * 4
