"""Modes that look at operations let higher-order ones pass, as flex attention's."""

from __future__ import annotations

import pytest

import assay
from assay.fixtures import families
from assay.harness.models import positions, precision, rounding, shapes
from assay.harness.models.dispatching import Dispatching
from assay.harness.operations import autocast
from assay.harness.operations.inversion import replay

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


def test_a_model_that_attends_by_flex_attention_is_not_accused():
    model = families.tiny("llama")
    model.set_attn_implementation("flex_attention")
    run = assay.check(model, claims=["C1", "C8", "G3", "G9"], profile="glance")
    assert not run.refuted
    assert len([each for each in run.results if str(each.verdict) == "upheld"]) > 5
