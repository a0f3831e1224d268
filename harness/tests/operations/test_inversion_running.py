"""Runners of a descent: whichever runs a step, it comes to the same."""

from __future__ import annotations

import functools

import pytest
import torch

from assay.harness.inversion import running, start
from assay.harness.inversion.descent import descend
from assay.harness.inversion.rule import Rule
from assay.harness.inversion.target import Target
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.toys import toy


@pytest.fixture
def traced(monkeypatch, itself):
    """What `torch.compile` is given is traced whole, and run without a C++ compiler."""
    graphs = []

    def count(graph, inputs):
        (outputs,) = (node.args[0] for node in graph.graph.nodes if node.op == "output")
        graphs.append(outputs)
        return graph.forward

    monkeypatch.setattr(
        torch, "compile", functools.partial(torch.compile, backend=count, fullgraph=True)
    )
    yield graphs
    torch._dynamo.reset()


def descended(subject, target, runner, **settings):
    ids = subject.content(torch.arange(10).reshape(2, 5))
    normal = torch.randn(2, 5, subject.hidden, generator=torch.Generator().manual_seed(0))
    first, rates = start.scaled(subject, normal), torch.full((2,), 1e-4)
    wanted = target.output(subject, ids).detach()
    return descend(subject, target, wanted, first, rates, Rule(steps=4), runner=runner, **settings)


@pytest.mark.parametrize(
    ("spec", "depth", "through"),
    [
        ("gpt2", 0, "block"),
        ("gpt2", 2, "block"),
        ("gpt2", 1, "head"),
        ("gpt2", 2, "norm"),
        ("gpt2", 2, "logits"),
        ("llama", 1, "block"),
        ("mamba", 1, "block"),
    ],
)
def test_a_compiled_step_comes_to_the_same(traced, spec, depth, through):
    subject, target = toy(spec), Target(depth, through)
    one, other = (descended(subject, target, runner) for runner in ("eager", "compiled"))
    assert torch.allclose(one.losses, other.losses, rtol=1e-3)
    assert torch.allclose(one.embeddings, other.embeddings, rtol=1e-3, atol=1e-4)
    assert [len(outputs) for outputs in traced] == [1], "one graph, which gives the target alone"


@pytest.mark.usefixtures("traced")
def test_a_compiled_step_has_the_slip():
    target = Target(2, slip=True)
    one, other = (descended(toy("gpt2"), target, runner) for runner in ("eager", "compiled"))
    assert torch.allclose(one.losses, other.losses, rtol=1e-4)
    plain = descended(toy("gpt2"), Target(2), "eager")
    assert not torch.allclose(plain.losses, one.losses, rtol=1e-2)


@pytest.mark.usefixtures("traced")
def test_the_model_is_left_as_it_was():
    subject = toy("gpt2")
    before = [len(block._forward_hooks) for block in subject.blocks]
    descended(subject, Target(1), "compiled")
    assert [len(block._forward_hooks) for block in subject.blocks] == before


@pytest.mark.parametrize(
    ("runner", "why"),
    [("graph", "needs CUDA"), ("fast", "eager, replay, compiled, graph")],
)
def test_a_runner_that_is_not_to_be_had_is_refused(runner, why):
    with pytest.raises(BadInput, match=why):
        descended(toy("gpt2"), Target(1), runner)


def test_the_usual_runner_is_that_of_the_device():
    assert running.choose_runner("", torch.device("cpu")) == "replay"
    assert running.choose_runner("", torch.device("cuda")) == "graph"
