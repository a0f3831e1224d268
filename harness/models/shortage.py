"""Errors that say something about the machine and nothing about the model.

Memory that runs out, a full disk or an interrupted system call is no counterexample.  A law goes
on with smaller prompts where memory ran out, and is inconclusive if no example could be run.

After some errors of a GPU every later call of the process may fail or give anything (CUDA's
documentation, cudaErrorIllegalAddress).  They are kept in `gpu_failure`, and the run stops.
"""

from __future__ import annotations

import errno
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from hypothesis.errors import HypothesisException

from assay.harness.models import memory
from assay.harness.models.clock import Braked
from assay.harness.results.errors import REFUSALS, Missing, brief, first_line, text_of

MEMORY = "out of memory"
RECURSION = "recursion too deep"
EXIT = "the model's code ended the process"
GPU = "the GPU failed"

ENDS = (Exception, SystemExit)
"""What a model's code may raise in place of a result."""

_BY_NUMBER = {
    errno.ENOMEM: MEMORY,
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "no space left in the disk quota",
    errno.EMFILE: "too many open files",
    errno.ENFILE: "too many open files",
    errno.EINTR: "an interrupted system call",
    errno.EAGAIN: "a resource that is temporarily unavailable",
    errno.EIO: "an input/output error",
}
"""What the operating system lacks, by the number of its error."""

_BY_WORDS = {
    "No space left on device": _BY_NUMBER[errno.ENOSPC],
    "Too many open files": _BY_NUMBER[errno.EMFILE],
    "Interrupted system call": _BY_NUMBER[errno.EINTR],
}
"""What libraries say that raise errors of their own for these."""

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
"""What is said by errors after which a process cannot use its GPU any more."""

_gpu_failures: list[str] = []


def gpu_failure() -> str:
    """The error after which this process's GPU gives no results to rely on; empty: none was."""
    return _gpu_failures[0] if _gpu_failures else ""


def shortage(error: BaseException) -> str:
    """What the machine lacked, in words; empty where ``error`` may be the model's fault.

    Raises the KeyboardInterrupt in whose place ``error`` came, if it did.
    """
    if (interrupt := _interrupt(error)) is not None:
        raise interrupt
    for each in _causes(error):
        if isinstance(each, RecursionError):
            return RECURSION
        if isinstance(each, SystemExit):
            return f"{EXIT} (SystemExit: {each.code})"
        if isinstance(each, RuntimeError) and any(f in text_of(each) for f in _GPU_FAILURES):
            _gpu_failures.append(f"{GPU}: {first_line(each)}")
            return _gpu_failures[-1]
        if memory.lacking(each):
            return MEMORY
        if isinstance(each, OSError) and each.errno in _BY_NUMBER:
            return _BY_NUMBER[each.errno]
        if isinstance(each, InterruptedError):
            return _BY_NUMBER[errno.EINTR]
        for words, lacking in _BY_WORDS.items():
            if words in text_of(each):
                return lacking
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, nearest first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__


def _interrupt(error: BaseException) -> KeyboardInterrupt | None:
    """The Ctrl-C that was being handled when ``error`` was raised, as by a library's clean-up."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        if isinstance(each, KeyboardInterrupt):
            return each
        seen.add(id(each))
        each = each.__cause__ or each.__context__
    return None


@contextmanager
def contained() -> Iterator[None]:
    """For a model's own code: what would end the run or hide a claim becomes a RuntimeError.

    Such as asyncio's CancelledError, pytest's Skipped or what Hypothesis steers its search by.
    """
    try:
        yield
    except (KeyboardInterrupt, Braked):
        raise
    except HypothesisException as error:
        raise RuntimeError(brief(error)) from error
    except ENDS:
        raise
    except BaseException as error:
        raise RuntimeError(brief(error)) from error


ENDING = ("_exit", "execv", "execve")
"""Functions of `os` that end the program, and that nothing could catch."""

_guarded = 0
"""How many blocks of `kept_running` are open."""


@contextmanager
def kept_running() -> Iterator[None]:
    """For a model's code: it can neither end the process nor close what is printed to.

    Functions of `os` that would end it raise SystemExit.  What has been kept of them, to be called
    when the process ends, does nothing then: the run's exit code stands.
    """
    global _guarded
    _guarded += 1
    if _guarded > 1:
        try:
            yield
        finally:
            _guarded -= 1
        return
    process, originals = os.getpid(), {name: getattr(os, name) for name in ENDING}

    def instead_of(original: Callable[..., NoReturn]) -> Callable[..., None]:
        def ended(*arguments: Any) -> None:
            if os.getpid() != process:  # a child of the model's own
                original(*arguments)
            if _guarded:
                raise SystemExit(arguments[0] if arguments else None)

        return ended

    streams = [each for each in (sys.stdout, sys.stderr) if hasattr(each, "__dict__")]
    for stream in streams:
        stream.close = lambda: None  # type: ignore[method-assign]
    for name, original in originals.items():
        setattr(os, name, instead_of(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(os, name, original)
        for stream in streams:
            del stream.close
        _guarded -= 1


def pass_on(error: BaseException) -> None:
    """Raise ``error`` again where it says nothing about the model; else it can be handled."""
    if shortage(error):
        raise error


@contextmanager
def refusals_ignored() -> Iterator[None]:
    """End the block where the model refuses something; what the machine lacked is raised."""
    try:
        yield
    except (Missing, *REFUSALS) as error:
        pass_on(error)


def release(error: BaseException) -> None:
    """Free what the frames of ``error`` hold, so that a smaller prompt has the room."""
    for each in _causes(error):
        traceback.clear_frames(each.__traceback__)
    if torch.cuda.is_available() and not gpu_failure():
        torch.cuda.empty_cache()


Size = tuple[int, int]
"""Rows and tokens of a batch of prompts."""


def at_size(size: Size | None) -> str:
    """``at 3 × 96 tokens``; empty where no prompt was drawn."""
    return f" at {size[0]} × {size[1]} tokens" if size else ""


class Limits:
    """What examples of one law could not be run for, and how large the others may be.

    After memory ran out only prompts of at most half as many tokens are tried.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.fatal = False
        self.largest: Size | None = None
        self._most: int | None = None

    def note(self, lacking: str, size: Size | None) -> None:
        """An example with a prompt of ``size`` could not be run."""
        self.reason = lacking + at_size(size)
        # These may be the model's own fault, and no other example says that they are not.
        self.fatal = self.fatal or lacking.startswith((RECURSION, EXIT, GPU))
        if lacking == MEMORY:
            self._most = math.prod(size) // 2 if size else 0
        if lacking.startswith(GPU):
            self._most = 0

    def admits(self, size: Size) -> bool:
        """Whether a prompt of ``size`` is to be tried."""
        return self._most is None or math.prod(size) <= self._most

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to try: there is no smaller prompt."""
        return self._most == 0

    def ran(self, size: Size | None) -> None:
        """An example with a prompt of ``size`` was run to its end."""
        if size and (self.largest is None or math.prod(size) > math.prod(self.largest)):
            self.largest = size

    @property
    def upheld_up_to(self) -> str:
        """What an upheld law says of the examples that could not be run; empty if all could."""
        if not self.reason:
            return ""
        largest = f" up to {self.largest[0]} × {self.largest[1]} tokens" if self.largest else ""
        return f"compared{largest}; {self.reason}"
