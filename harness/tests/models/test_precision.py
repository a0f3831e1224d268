"""In what precision a model really computes."""

from __future__ import annotations

import pytest
import torch

from assay.harness.models.reference import precision
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.subject import Subject
from assay.harness.tests.support.toys import changed, toy


def in_float64(model_type: str) -> Subject:
    return reference_of(toy(model_type))


def test_a_model_that_stays_in_float64_is_told_from_one_that_does_not():
    """The one takes its norms in float32 whatever it is run in, the other does not."""
    assert precision.all_float64(toy("gpt2"))
    assert not precision.all_float64(toy("llama"))


def test_a_single_narrow_step_is_noticed():
    narrowed = changed("gpt2", lambda state: state.float().to(state.dtype))
    assert not precision.all_float64(narrowed)


@pytest.mark.parametrize(
    ("model_type", "expected"), [("gpt2", torch.float64), ("llama", torch.float32)]
)
def test_the_tolerance_of_float64_is_for_models_that_stay_in_it(model_type, expected):
    assert precision.working(in_float64(model_type)) == expected
