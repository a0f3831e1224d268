"""The Jacobian of a model's last state, and how well conditioned it is."""

from __future__ import annotations

import pytest
import torch

from assay.harness.inversion import Target, condition, embedded, gradients, jacobian
from assay.harness.tests.support.toys import toy


@pytest.mark.parametrize("spec", ["gpt2", "llama", "bert"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("at_once", [True, False])
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


def test_it_hangs_on_what_comes_before():
    subject, target = toy("gpt2", "float64"), Target(2)
    one, other = (jacobian(subject, target, torch.tensor([first, 9, 17])) for first in (5, 6))
    assert not torch.allclose(one, other, rtol=1e-3)


def test_the_condition_is_the_largest_singular_value_over_the_least():
    assert condition(torch.diag(torch.tensor([4.0, 1.0, 0.5]))) == pytest.approx(8.0)
    turned = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    assert condition(turned) == pytest.approx(1.0)
    assert condition(torch.diag(torch.tensor([1.0, 0.0]))) > 1e300
