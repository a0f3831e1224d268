"""What a fault's change is told, and where it is put."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.harness.faults import catalogue
from assay.harness.faults.calls import AttentionCall, CacheRead, Pass


def attention(module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any) -> tuple:
    return module, query, key, value, mask, kwargs


def call() -> AttentionCall:
    args: Any = ("module", "query", "key", "value", "mask")
    return AttentionCall(Pass(), attention, *args, {"scaling": 2.0, "is_causal": True})


def test_further_arguments_are_changed_by_name_and_the_call_stays_as_it_is():
    ours = call()
    assert ours.attend(is_causal=False, dropout=0.1)[5] == {
        "scaling": 2.0,
        "is_causal": False,
        "dropout": 0.1,
    }
    assert ours.kwargs == {"scaling": 2.0, "is_causal": True}


def read() -> CacheRead:
    entries = torch.arange(4.0)[None, None, :, None]
    return CacheRead(Pass(), entries, 10 + entries, past=3, layer=0)


def test_of_a_cache_the_past_alone_is_changed():
    changed = read().past_changed(lambda t: t.flip(-2))
    assert changed.keys.flatten().tolist() == [2, 1, 0, 3]
    assert changed.values.flatten().tolist() == [12, 11, 10, 13]
    assert read().changed(lambda t: t.flip(-2)).keys.flatten().tolist() == [3, 2, 1, 0]


@pytest.fixture
def empty(monkeypatch):
    monkeypatch.setattr(catalogue, "FAULTS", {})
    return catalogue.FAULTS


def test_a_fault_is_planted_where_it_says_or_plants_itself(empty):
    put: list[tuple] = []

    def somewhere(bed: Any, change: Any) -> None:
        put.append((bed, change))

    @catalogue.fault("told", "a change by where it is put", caught_by=["C1"], at=somewhere)
    def change() -> None: ...

    @catalogue.fault("own", "a fault that plants itself", caught_by=["C1"])
    def plant(bed: Any) -> None:
        put.append((bed, "itself"))

    bed: Any = SimpleNamespace()
    for fault in empty.values():
        fault.plant(bed)
    assert put == [(bed, change), (bed, "itself")]
