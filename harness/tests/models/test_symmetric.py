"""Eigenvalues where a GPU's solver gives up, and where it does not."""

from __future__ import annotations

import pytest
import torch

from assay.harness.models.machine.symmetric import decomposition, eigenvalues

SQUARE = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)


class OnAGpu(torch.Tensor):
    """A matrix that says that it lies on a GPU until it is copied to the processor."""

    device = torch.device("cuda")

    def cpu(self):
        return self.as_subclass(torch.Tensor)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.linalg.eigvalsh, torch.linalg.eigh):
            raise torch.linalg.LinAlgError("the algorithm failed to converge")
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def test_the_smallest_value_comes_first_with_its_vector():
    values, vectors = decomposition(SQUARE)
    assert values.tolist() == pytest.approx([1.0, 3.0])
    assert eigenvalues(SQUARE).tolist() == pytest.approx([1.0, 3.0])
    assert torch.allclose(SQUARE @ vectors, vectors * values)


def test_what_a_gpu_does_not_solve_the_processor_does():
    there = SQUARE.as_subclass(OnAGpu)
    assert torch.equal(eigenvalues(there), eigenvalues(SQUARE))
    for ours, expected in zip(decomposition(there), decomposition(SQUARE), strict=True):
        assert torch.equal(ours, expected)
