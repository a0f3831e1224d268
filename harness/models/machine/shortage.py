"""Errors of the machine, such as too little memory, which say nothing about the model.

Running out of memory, a full disk or an interrupted system call is not a counterexample: the claim
is inconclusive.

After some GPU errors every later call of the process may fail or return anything (CUDA's
documentation, cudaErrorIllegalAddress).  `gpu_failure` returns the first one, and the run stops.
"""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from assay.harness.models.machine import accelerators, memory
from assay.harness.results.errors import REFUSALS, Missing, first_line

MEMORY = "out of memory"
RECURSION = "recursion too deep"
GPU = "the GPU failed"

ENDS = (Exception, SystemExit)
"""Exceptions that a model's code may raise in place of a result."""

_OF_THE_SYSTEM = [
    os.strerror(number)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EINTR, errno.EIO)
]
"""Shortages of the operating system in its own words, which libraries quote in their errors."""

_GPU_FAILURES = (
    "illegal memory access",
    "illegal instruction",
    "misaligned address",
    "invalid program counter",
    "device-side assert",
    "hardware stack error",
    "operation not supported on global/shared address space",
    "uncorrectable ECC error",
    "unspecified launch failure",
    "launch timed out",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUDNN_STATUS_EXECUTION_FAILED",
)
"""Messages of errors after which a process can no longer use its GPU."""

_gpu_failures: list[str] = []


def gpu_failure() -> str:
    """The error that made this process's GPU unreliable; empty without one."""
    return _gpu_failures[0] if _gpu_failures else ""


def shortage(error: BaseException) -> str:
    """What the machine lacked, in words; empty where ``error`` may be the model's fault.

    Raises the KeyboardInterrupt that ``error`` replaced, if there was one: a clean-up may fail.
    """
    for each in _causes(error, contexts=True):
        if isinstance(each, KeyboardInterrupt):
            raise each
    for each in _causes(error):
        if isinstance(each, RecursionError):
            return RECURSION
        if isinstance(each, RuntimeError) and any(f in str(each) for f in _GPU_FAILURES):
            _gpu_failures.append(f"{GPU}: {first_line(each)}")
            return _gpu_failures[-1]
        if memory.lacking(each):
            return MEMORY
        for lacking in _OF_THE_SYSTEM:
            if lacking in str(each):
                return lacking[0].lower() + lacking[1:]
    return ""


def _causes(error: BaseException, contexts: bool = False) -> list[BaseException]:
    """The error and its chain of causes, nearest first; with what it interrupted on request."""
    chain: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in chain:
        chain.append(each)
        each = each.__cause__ or (each.__context__ if contexts else None)
    return chain


def pass_on(error: BaseException) -> None:
    """Raise ``error`` again where it is a shortage of the machine; otherwise return."""
    if shortage(error):
        raise error


@contextmanager
def refusals_ignored() -> Iterator[None]:
    """End the block where the model rejects its input; shortages of the machine are raised."""
    try:
        yield
    except (Missing, *REFUSALS) as error:
        pass_on(error)


def release(error: BaseException) -> None:
    """Free the memory that the frames of ``error`` hold, for the next claim."""
    for each in _causes(error):
        traceback.clear_frames(each.__traceback__)
    if not gpu_failure():
        accelerators.release()


Size = tuple[int, int]
"""Rows and tokens of a batch of prompts."""


def at_size(size: Size | None) -> str:
    """``at 3 × 96 tokens``; empty where no prompt was drawn."""
    return f" at {size[0]} × {size[1]} tokens" if size else ""
