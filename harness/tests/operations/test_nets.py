"""The fully connected nets: the document's own class, and what stands in place of a target."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from assay.claims.inversion import test_inversion_nets as claims
from assay.fixtures import ways
from assay.harness.checking.draws import Draws
from assay.harness.inversion import nets
from assay.harness.inversion.descent import check_target, descend
from assay.harness.inversion.rule import Rule
from assay.harness.inversion.target import embedded
from assay.harness.models.capabilities import Missing
from assay.harness.models.machine import memory
from assay.harness.models.reference.float64 import reference_of
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.allocated import Allocated
from assay.harness.tests.support.randoms import seeded
from assay.harness.tests.support.toys import as_trained, fresh, prompt, toy, verdict

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


def test_another_activation_or_another_order_is_another_net():
    net, x = nets.flattened("contracting", N, D, seeded()), noise(1, N, D)
    module = documented(net, 1)
    module.gelu = nn.ReLU()
    assert not torch.allclose(net(x).flatten(), module(x[0]), atol=1e-3)
    module.gelu = nn.GELU()
    assert not torch.allclose(net(x).flatten(), module(x[0].T), atol=1e-3)


def test_a_net_per_token_sees_one_token_at_a_time():
    net, x = nets.per_token(D, seeded()), noise(2, N, D)
    first, last = (nn.Linear(D, 4 * D), nn.Linear(4 * D, D))
    with torch.no_grad():
        for layer, weight, bias in zip((first, last), net.weights, net.biases, strict=True):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    assert torch.allclose(net(x), last(nn.GELU()(first(x))), atol=1e-6)
    assert torch.allclose(net(x)[:, 1:2], net(x[:, 1:2]), atol=1e-6)


def test_all_tokens_of_a_flattened_net_meet_and_rows_do_not():
    net, x = nets.flattened("expanding", N, D, seeded()), noise(2, N, D)
    other = x.clone()
    other[0, 2] += 1
    assert not torch.allclose(net(other)[0, 0], net(x)[0, 0], atol=1e-3)
    assert torch.allclose(net(other)[1], net(x)[1], atol=1e-6)


def test_a_narrowing_net_leaves_a_quarter():
    net = nets.flattened("narrowing", N, D, seeded())
    assert [tuple(w.shape) for w in net.weights] == [(N * 2, N * D), (N * 2, N * 2)]
    assert net(noise(1, N, D)).shape == (1, N, 2)
    assert nets.flattened("narrowing", N, 2, seeded())(noise(1, N, 2)).shape == (1, N, 1)


# How they are drawn.


def test_weights_are_drawn_as_torch_draws_them():
    net = nets.flattened("expanding", 4, 32, seeded())
    for weight, bias in zip(net.weights, net.biases, strict=True):
        theirs, reach = nn.Linear(*weight.T.shape).requires_grad_(False), weight.shape[1] ** -0.5
        for mine, usual in ((weight, theirs.weight), (bias, theirs.bias)):
            assert float(mine.abs().max()) <= reach
            assert float(mine.std()) == pytest.approx(float(usual.std()), rel=0.1)
            assert float(mine.mean()) == pytest.approx(0, abs=0.1 * reach)


def test_a_seed_is_a_net_and_no_shared_state_is_drawn_from():
    before = torch.get_rng_state()
    one, same, other = (nets.per_token(D, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.weights, same.weights, strict=True))
    assert not torch.equal(one.weights[0], other.weights[0])


def test_a_net_has_the_dtype_that_is_asked_for():
    wide = nets.per_token(D, seeded(), torch.empty(0, dtype=torch.float64))
    assert {w.dtype for w in (*wide.weights, *wide.biases)} == {torch.float64}
    assert torch.equal(wide.weights[0], nets.per_token(D, seeded()).weights[0].double())


@pytest.mark.parametrize("at_once", [1, 100, 1000])
def test_a_net_is_drawn_by_parts_as_it_is_whole(monkeypatch, at_once):
    like = torch.empty(0, dtype=torch.bfloat16)
    whole = nets.flattened("expanding", 3, 8, seeded(), like)
    monkeypatch.setattr(nets, "DRAWN_AT_ONCE", at_once)
    parts = nets.flattened("expanding", 3, 8, seeded(), like)
    pairs = zip((*whole.weights, *whole.biases), (*parts.weights, *parts.biases), strict=True)
    assert all(one.equal(other) for one, other in pairs)


def test_a_net_of_sixteen_bits_takes_its_own_memory_and_little_more(monkeypatch):
    def peak():
        with Allocated() as allocated:
            net = nets.flattened(
                "expanding", 5, 128, seeded(), torch.empty(0, dtype=torch.bfloat16)
            )
        return allocated.peak / sum(w.nbytes for w in net.weights)

    assert peak() > 2
    monkeypatch.setattr(nets, "DRAWN_AT_ONCE", 2**16)
    assert 1 <= peak() < 1.1


def test_of_a_subject_s_nets_the_last_is_kept():
    subject = fresh("llama")
    first = ways.net(subject, "expanding")
    assert ways.net(subject, "expanding") is first
    kept = weakref.ref(first)
    ways.net(subject, "contracting")
    weights = first.weights[0].clone()
    del first
    gc.collect()
    assert kept() is None
    assert ways.net(subject, "expanding").weights[0].equal(weights)


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


@pytest.mark.parametrize(
    ("recovery", "rises"),
    [
        ([0.0, 0.2, 0.2, 1.0], True),
        ([0.0, 1.0, 1.0, 1.0], True),
        ([0.0, 0.4, 0.2, 1.0], False),
        ([0.0, 0.0, 0.0, 0.0], False),
    ],
)
def test_recovery_rises_where_it_never_falls_and_ends_higher(recovery, rises):
    assert bool(claims.rises(torch.tensor([recovery]))) is rises


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
