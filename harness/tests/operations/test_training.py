"""Gradients of parameters, and train mode without anything random."""

from __future__ import annotations

import math

import pytest
import torch

from assay.harness.checking.check import Broken, Check
from assay.harness.checking.comparing import Unsettled
from assay.harness.models.subject import Subject
from assay.harness.operations import train_mode, training
from assay.harness.tests.support.folders import tiny
from assay.harness.tests.support.toys import fresh, prompt, toy

LONG = 7


def gradients(subject, ids, **how):
    sample, names = training.sample(subject, ids), training.names(subject)
    return training.gradients(subject, [sample], names, **how)


def test_nothing_of_a_model_is_left_changed():
    subject = fresh("llama")
    before = {n: (p.requires_grad, p._version) for n, p in subject.model.named_parameters()}
    hooks = [len(module._forward_hooks) for module in subject.model.modules()]
    with train_mode.in_training(subject, checkpoints=True):
        gradients(subject, prompt(subject, LONG), embedding=True)
        assert subject.model.training
    assert not subject.model.training
    assert not any(getattr(m, "gradient_checkpointing", 0) for m in subject.model.modules())
    assert all(p.grad is None for p in subject.model.parameters())
    assert not subject.rows(prompt(subject, LONG))["logits"].requires_grad
    once = subject.model.model.embed_tokens
    assert len(once._forward_hooks) == hooks[[*subject.model.modules()].index(once)]
    after = {n: (p.requires_grad, p._version) for n, p in subject.model.named_parameters()}
    assert after == before


def test_nothing_is_random_in_training():
    model = tiny("gpt2", resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    subject = Subject("dropping", model.eval().requires_grad_(False))
    ids = prompt(subject, LONG)
    plain = gradients(subject, ids)
    with train_mode.in_training(subject):
        assert training.Exact(plain).apart(gradients(subject, ids)).error < 1e-5
    subject.model.train()
    assert training.Exact(plain).apart(gradients(subject, ids)).error > 1e-2


def test_only_small_parameters_of_a_large_model_are_compared(monkeypatch):
    subject = toy("llama")
    sizes = {n: p.numel() for n, p in subject.model.named_parameters()}
    monkeypatch.setattr(training, "AT_ONCE", sum(sizes.values()) // 4)
    names = training.names(subject)
    assert names
    assert sum(sizes[name] for name in names) <= sum(sizes.values()) // 4
    assert max(sizes[name] for name in names) <= min(sizes[n] for n in set(sizes) - set(names))


def test_a_gradient_that_is_missing_is_zero():
    one = {"a": torch.ones(3, dtype=torch.float64)}
    assert training.Exact(one).apart(one).error == 0.0
    assert training.Exact(one | {"b": torch.ones(2)}).apart(one).error == 1.0
    assert training.Exact(one).apart(one | {"b": torch.ones(2)}).tensor == "b"
    # An expert that sees nothing has no gradient, and one that sees padding alone has a zero.
    assert training.Exact(one | {"b": torch.zeros(2)}).apart(one).error == 0.0
    assert training.Exact(one).apart(one | {"b": torch.zeros(2)}).error == 0.0
    assert training.Exact(one).apart({"a": 1.01 * one["a"]}).error == pytest.approx(0.01)


def test_a_gradient_that_cancels_is_measured_against_the_others():
    exact = training.Exact({"a": torch.full((4,), 2.0), "b": torch.tensor([1e-17])})
    apart = exact.apart({"a": torch.full((4,), 2.0), "b": torch.tensor([0.02])})
    assert (apart.error, apart.tensor) == (pytest.approx(0.01), "b")


@pytest.mark.parametrize(
    ("dtype", "small", "most"), [("bfloat16", 1 / 16, 0.2), ("float32", 1e-3, 1e-5)]
)
def test_the_bias_of_keys_which_has_no_gradient_does_not_decide(dtype, small, most):
    subject = toy("bert", dtype)
    ids = prompt(subject, LONG)
    plain = training.Plain.of(subject, [training.sample(subject, ids)])
    sizes = {name: float(tensor.norm()) for name, tensor in plain.exact.gradients.items()}
    least = min(sizes, key=sizes.get)
    assert least.endswith("key.bias")
    assert sizes[least] < 1e-12 * max(sizes.values())
    assert plain.exact.small == small
    assert plain.exact.apart(plain.own).error < most


def of_two(a: float, b: float) -> training.Gradients:
    """Gradients of two parameters, off by these shares of their lengths."""
    one = torch.ones(3, dtype=torch.float64)
    return {"a": (1 + a) * one, "b": (1 + b) * one}


@pytest.fixture
def judged(monkeypatch):
    """What is judged of gradients off by some shares, where emulated roundings move the plain ones
    by those of ``elsewhere``.
    """

    def judge(dtype, elsewhere, observed):
        subject = toy("gpt2", dtype)
        plain = training.Plain(subject, [], of_two(0, 0), training.Exact(of_two(0, 0)))
        monkeypatch.setattr(
            training.Plain, "_elsewhere", lambda _: [of_two(*each) for each in elsewhere]
        )
        return plain.judge(Check(subject), of_two(*observed))

    return judge


def test_what_rounding_may_do_is_allowed(judged):
    assert judged("float32", [(0, 0)], (0, 3e-6)).noise.error == 0.0
    assert judged("float32", [(0, 1e-4), (0, 0)], (0, 5e-4)).noise.error == pytest.approx(1e-4)
    with pytest.raises(Broken, match=r"at b$"):
        judged("float32", [(0, 1e-4)], (0, 7e-4))
    with pytest.raises(Broken):  # whatever rounding does
        judged("float32", [(0, 1.0)], (0, 0.011))


def test_in_16_bits_what_rounding_moves_far_does_not_count(judged):
    one = judged("float16", [(0, 0.1), (0, 0)], (0, 0.3))
    assert one.exact.left_out == {"b"}
    assert one.noise.error == 0.0
    with pytest.raises(Broken, match=r"at a$"):
        judged("float16", [(0, 0.1)], (0.02, 0.3))
    with pytest.raises(Broken):  # a number that is none is no rounding
        judged("float16", [(0, 0.1)], (0, math.nan))
    with pytest.raises(Unsettled):
        judged("float16", [(0.1, 0), (0, 0.1)], (0.3, 0))


def test_in_16_bits_the_median_gradient_has_a_bound_of_its_own():
    subject = toy("gpt2", "bfloat16")
    one = {name: torch.ones(3, dtype=torch.float64) for name in "abcdef"}
    own = one | {"a": 1.1 * one["a"]}  # one gradient is far off, as that of a bias may be
    exact = training.Exact(one)

    def judged(wide):
        tolerance = Check(subject).tolerance
        return training.Judged(exact, own, exact.apart(own), tolerance, wide)

    leaky = {name: 1.1 * tensor for name, tensor in own.items()}
    error, allowed, _ = judged(wide=False).bounded(exact.apart(leaky))
    assert error > allowed
    error, allowed, _ = judged(wide=True).bounded(exact.apart(leaky))
    assert error < allowed
    by_size, measured = exact.leaking(own)(0.1), exact.apart(leaky)
    assert by_size.error == pytest.approx(measured.error)
    assert by_size.typical == pytest.approx(measured.typical)
