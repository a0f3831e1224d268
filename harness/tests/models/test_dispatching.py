"""Modes that look at operations let higher-order ones pass, as flex attention's."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
import torch

import assay
from assay.fixtures import families
from assay.harness.inversion import replay
from assay.harness.models.machine.dispatching import Dispatching
from assay.harness.models.reference import precision, rounding
from assay.harness.models.subject import passes, positions, shapes
from assay.harness.operations import autocast

ROOMS = (positions, precision, rounding, shapes, autocast, replay)


@pytest.mark.parametrize("module", ROOMS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_mode_takes_higher_order_operators(module):
    modes = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Dispatching) and each is not Dispatching
    ]
    assert modes
    assert all(each.supports_higher_order_operators for each in modes)


class Passing(Dispatching):
    """Lets every operation be what it is."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_code_that_ran_under_a_mode_is_compiled_afterwards():
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph

    torch.compiler.reset()
    double = torch.compile(lambda t: 2 * t, backend=backend)
    with Passing():
        assert double(torch.ones(3)).sum() == 6
    assert not compiled
    assert double(torch.ones(3)).sum() == 6
    assert len(compiled) == 1


def test_modes_of_two_threads_may_end_in_any_order():
    """As where a server's thread runs a pass beside this one."""
    compiled = []
    torch.compiler.reset()
    double = torch.compile(lambda t: 2 * t, backend=lambda graph, _: compiled.append(1) or graph)
    one, other = Passing(), Passing()
    entered, may_end = threading.Event(), threading.Event()

    def beside():
        with other:
            entered.set()
            may_end.wait()

    thread = threading.Thread(target=beside, daemon=True)
    with one:
        thread.start()
        entered.wait()
    double(torch.ones(3))
    assert not compiled
    may_end.set()
    thread.join()
    double(torch.ones(3))
    assert compiled


@pytest.mark.parametrize(
    ("attention", "device", "dtype", "compiles"),
    [
        ("flex_attention", "cuda", torch.float32, True),
        ("flex_attention", "cuda", torch.float64, False),
        ("flex_attention", "cpu", torch.float32, False),
        ("sdpa", "cpu", torch.float64, True),
    ],
)
def test_flex_attention_is_compiled_for_a_gpu_s_own_dtypes(attention, device, dtype, compiles):
    compiled = []
    torch.compiler.reset()
    double = torch.compile(lambda t: 2 * t, backend=lambda graph, _: compiled.append(1) or graph)
    model = torch.nn.Linear(1, 1, dtype=dtype)
    subject = SimpleNamespace(attention=attention, device=torch.device(device), model=model)
    with passes.uncompiled(subject):
        double(torch.ones(3))
    assert bool(compiled) == compiles


@pytest.mark.nightly
def test_a_model_that_attends_by_flex_attention_is_not_accused():
    model = families.tiny("llama")
    model.set_attn_implementation("flex_attention")
    run = assay.check(model, claims=["C1", "C8", "G3", "G9"], profile="glance")
    assert not run.refuted
    assert len([each for each in run.results if str(each.verdict) == "upheld"]) > 5
