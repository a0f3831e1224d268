"""The twin in float64 runs wherever the model does."""

from __future__ import annotations

import pytest
import torch

from harness import float64
from harness.errors import Missing
from harness.subject import Subject
from harness.tests.toys import fresh, prompt, toy


def relative(one, other):
    return float((one.double() - other).norm() / other.norm())


@pytest.mark.parametrize(
    "spec",
    ["xglm", "inkling2_text", "tiny:masked:mra"],
    ids=["a bound of float64 in the default dtype", "a part in float32", "float32 by name"],
)
def test_a_model_that_names_float32_has_an_oracle_all_the_same(spec):
    subject = toy(spec)
    ids = prompt(subject, 9)
    exact = subject.oracle.rows(ids)
    for name, tensor in subject.rows(ids).tensors.items():
        if name != "router gap":
            assert exact[name].dtype == torch.float64
            assert 0 < relative(tensor, exact[name]) < 1e-5 or torch.equal(
                tensor.double(), exact[name]
            )
    assert torch.get_default_dtype() == torch.float32


def test_one_that_runs_as_it_is_stays_as_it_is():
    assert "forward" not in vars(toy("llama").oracle.model)
    assert "forward" in vars(toy("xglm").oracle.model)


def test_float32_by_name_is_float64_only_while_widened():
    one = torch.ones(2, dtype=torch.float64)
    with float64.widened():
        made = [one.float(), one.to(torch.float32), torch.zeros(1), torch.tensor(0.5)]
        made.append(torch.softmax(one, 0, dtype=torch.float32))
        assert {each.dtype for each in made} == {torch.float64}
        assert one.to(torch.float16).dtype == torch.float16
    assert one.float().dtype == torch.zeros(1).dtype == torch.float32
    with pytest.raises(ZeroDivisionError), float64.widened():
        raise ZeroDivisionError
    assert torch.zeros(1).dtype == torch.float32


def test_a_model_that_runs_in_one_dtype_only_has_no_oracle():
    subject = fresh("llama")

    def refuse(module, given, named):
        if module.dtype == torch.float64:
            raise RuntimeError("float32 or nothing")

    subject.model.register_forward_pre_hook(refuse, with_kwargs=True)
    with pytest.raises(Missing, match="does not run in float64: float32 or nothing"):
        _ = Subject("a copy", subject.model).oracle
