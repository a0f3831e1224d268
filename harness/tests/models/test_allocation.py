"""Where models lie: at odd multiples of 8 bytes if asked for, or as another one does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.harness.models.machine import allocation
from assay.harness.models.reference.float64 import reference_of
from assay.harness.operations import differences, variants
from assay.harness.tests.support.toys import adopted

pytestmark = pytest.mark.usefixtures("itself")


def tensors(model: nn.Module) -> dict[str, Tensor]:
    named = [*model.named_parameters(remove_duplicate=False)]
    return dict([*named, *model.named_buffers(remove_duplicate=False)])


def addresses(model: nn.Module) -> list[int]:
    """Modulo a line, by name."""
    return [each.data_ptr() % allocation.LINE for each in tensors(model).values()]


def are_odd(model: nn.Module) -> bool:
    return all(address % 16 == 8 for address in addresses(model))


COPIES = {
    "adopted": lambda subject: subject,
    "saved and loaded": variants.saved_and_loaded,
    "untrained": variants.untrained,
    "quantised": variants.quantised,
    "in float64": lambda subject: reference_of(subject),
    "in bfloat16": variants.in_bfloat16,
}


@pytest.mark.parametrize("name", COPIES)
def test_what_is_loaded_or_copied_begins_at_odd_multiples_of_8(name):
    with allocation.odd():
        model = COPIES[name](adopted()).model
        assert are_odd(model)
        assert len(set(addresses(model))) == len(allocation.ODD)
    assert not are_odd(COPIES["untrained"](adopted()).model)


def test_what_is_moved_keeps_its_values_its_ties_and_what_it_computes():
    usual = adopted("gpt2")
    with allocation.odd():
        moved = adopted("gpt2")
    assert not any(differences.between(usual, moved).values())
    assert moved.model.lm_head.weight is moved.model.transformer.wte.weight
    ids = torch.arange(7)[None]
    error = usual.rows(ids)["logits"] - moved.rows(ids)["logits"]
    assert error.abs().max() < 1e-5


class Sharing(nn.Module):
    """Two views of one memory, a tensor with other strides, and one without elements."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.arange(24.0).view(4, 6)
        self.upper, self.lower = nn.Parameter(whole[:3]), nn.Parameter(whole[1:])
        self.turned = nn.Parameter(torch.arange(6.0).view(2, 3).T)
        self.register_buffer("empty", torch.zeros(0))
        self.register_buffer("count", torch.tensor(3))
        self.same = self.turned


def test_tensors_that_overlap_do_so_afterwards():
    model = Sharing()
    before = {name: tensor.detach().clone() for name, tensor in tensors(model).items()}
    strides = {name: tensor.stride() for name, tensor in tensors(model).items()}
    allocation.move(model, lambda _, tensor: (24, tensor.stride()))
    assert all(tensor.equal(before[name]) for name, tensor in tensors(model).items())
    assert {name: tensor.stride() for name, tensor in tensors(model).items()} == strides
    assert model.lower.data_ptr() - model.upper.data_ptr() == 24
    assert [t.data_ptr() % 64 for t in (model.upper, model.turned, model.count)] == [24] * 3
    with torch.no_grad():
        model.upper[1, 0] = -1
    assert model.lower[0, 0] == -1
    assert model.same is model.turned


def test_a_model_lies_as_another_does_and_then_as_before():
    one, other = adopted().model, adopted().model
    with allocation.odd():
        allocation.allocated(other)
    weight = other.model.layers[0].mlp.up_proj.weight
    weight.data = weight.detach().T.contiguous().T
    before, objects = addresses(one), tensors(one)
    with allocation.lying_like(one, other):
        assert addresses(one) == addresses(other)
        assert one.model.layers[0].mlp.up_proj.weight.stride() == weight.stride()
        assert all(tensors(one)[name].equal(tensor) for name, tensor in tensors(other).items())
        assert all(tensors(one)[name] is tensor for name, tensor in objects.items())
    assert addresses(one) == before
    assert one.model.layers[0].mlp.up_proj.weight.is_contiguous()
