"""As much at once as fits: batches that are halved, and errors that are none of memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from assay.harness.models.machine import memory
from assay.harness.models.machine.batches import in_batches, rows_that_fit
from assay.harness.models.machine.memory import lacking

CPU = torch.device("cpu")

FULL = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to ..."),
    RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to ..."),
    RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
    MemoryError(),
]

OTHERS = [
    RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("unsupported operation: elements refer to a single memory location"),
]


def room_for(most: int, error: BaseException = FULL[0]) -> tuple[Callable, list, list]:
    """A function that takes up to ``most`` rows; the sizes of its calls, and what it did."""
    sizes, did = [], []

    def run(rows: slice) -> None:
        sizes.append(rows.stop - rows.start)
        if rows.stop - rows.start > most:
            raise error
        did.extend(range(rows.start, rows.stop))

    return run, sizes, did


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_every_row_is_run_once_and_in_order(rows, size):
    run, sizes, did = room_for(100)
    said = []
    in_batches(run, rows, size, said)
    assert did == list(range(rows))
    assert max(sizes) == min(rows, size)
    assert len(sizes) == -(-rows // size)
    assert not said


def test_what_does_not_fit_is_halved_until_it_does_and_stays_so():
    run, sizes, did = room_for(3)
    said = []
    in_batches(run, 14, 13, said)
    assert sizes == [13, 6, 3, 3, 3, 3, 2]
    assert did == list(range(14))
    assert said == [
        "too little memory: 6 rows at a time",
        "too little memory: 3 rows at a time",
    ]


@pytest.mark.parametrize("error", FULL, ids=lambda e: str(e)[:20])
def test_every_lack_of_memory_is_known_as_one(error):
    assert lacking(error)
    run, _, did = room_for(2, error)
    in_batches(run, 4, 4)
    assert did == [0, 1, 2, 3]


@pytest.mark.parametrize("error", OTHERS, ids=lambda e: str(e)[:20])
def test_other_errors_go_through_at_once(error):
    assert not lacking(error)
    run, sizes, _ = room_for(2, error)
    with pytest.raises(type(error)):
        in_batches(run, 4, 4)
    assert sizes == [4]


def test_a_quarter_of_what_is_free_is_filled(monkeypatch):
    monkeypatch.setattr(memory, "free", lambda device: 4000)
    assert rows_that_fit(CPU, 100) == 10
    assert rows_that_fit(CPU, 10) == 100
