"""Fused activations against the same written out: the same numbers, and the model as it was."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import activations

from assay.harness.inversion import fused
from assay.harness.inversion.batch import Batch
from assay.harness.inversion.rule import Rule
from assay.harness.inversion.target import Target
from assay.harness.tests.support.toys import fresh, prompt, toy

CPU = torch.device("cpu")


def activations_of(subject):
    return [m for m in subject.model.modules() if isinstance(m, activations.NewGELUActivation)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_activation_of_gpt2_is_the_fused_one(dtype):
    assert fused.is_gelu(activations.ACT2FN["gelu_new"], dtype, CPU)


@pytest.mark.parametrize("name", ["gelu", "gelu_fast", "gelu_10", "quick_gelu", "relu", "silu"])
def test_no_other_activation_is(name):
    same = name == "gelu_fast"  # the same function under another name
    assert fused.is_gelu(activations.ACT2FN[name], torch.float32, CPU) == same


class SlightlyOff(activations.NewGELUActivation):
    """The same, off by a hundred-thousandth."""

    def forward(self, input):
        return super().forward(input) * (1 + 1e-5)


def test_one_that_is_slightly_off_is_not():
    SlightlyOff.__module__ = fused.WRITTEN_IN
    assert not fused.is_gelu(SlightlyOff(), torch.float32, CPU)


def test_modules_of_other_origin_are_not_called():
    class Counting(nn.Module):
        def forward(self, x):
            raise AssertionError("called")

    assert not fused.is_gelu(Counting(), torch.float32, CPU)


def gradient(subject, runner):
    target = Target(2)
    goal = target.output(subject, prompt(subject, 5, 3)).detach()
    start = torch.randn(3, 5, subject.hidden, generator=torch.Generator().manual_seed(0))
    batch = Batch(subject, target, Rule(25), goal, start, torch.full((3,), 1e-3))
    with batch.run_by(runner):
        batch.stepper()
        return batch.slope(batch.x)


@pytest.mark.parametrize("runner", ["eager", "replay"])
def test_gradients_are_those_of_the_model_as_written(runner, monkeypatch):
    subject = toy("gpt2")
    assert activations_of(subject)
    used, plain = [], fused.fused

    def counted(x):
        used.append(x)
        return plain(x)

    monkeypatch.setattr(fused, "fused", counted)
    one, other = gradient(subject, "eager"), gradient(subject, runner)
    assert bool(used) == (runner == "replay")
    for a, b in zip(one, other, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6 * a.abs().max())


def test_only_the_blocks_that_run_are_changed_and_all_are_restored():
    subject = toy("gpt2")
    own = [vars(m).copy() for m in activations_of(subject)]

    def within():
        with fused.fused_activations(subject, 1):
            changed = ["forward" in vars(m) for m in activations_of(subject)]
            assert changed == [True, *[False] * (len(changed) - 1)]
            raise RuntimeError("in between")

    with pytest.raises(RuntimeError, match="in between"):
        within()
    assert [vars(m) for m in activations_of(subject)] == own


def test_a_model_with_an_injected_fault_computes_its_own():
    subject = fresh("gpt2")
    subject.injected = object()
    with fused.fused_activations(subject, 2):
        assert not any("forward" in vars(m) for m in activations_of(subject))
