"""Errors of the machine, such as too little memory, which say nothing about the model.

Running out of memory, a full disk or an interrupted system call is not a counterexample.  A law
continues with smaller prompts where memory ran out, and is inconclusive if no example could run.

After some GPU errors every later call of the process may fail or return anything (CUDA's
documentation, cudaErrorIllegalAddress).  `gpu_failure` returns the first one, and the run stops.
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

from hypothesis.errors import HypothesisException

from assay.harness.models import accelerators, memory
from assay.harness.models.clock import Braked
from assay.harness.results.errors import REFUSALS, Missing, brief, first_line, text_of

MEMORY = "out of memory"
RECURSION = "recursion too deep"
EXIT = "the model's code ended the process"
GPU = "the GPU failed"

ENDS = (Exception, SystemExit)
"""Exceptions that a model's code may raise in place of a result."""

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
"""Shortages of the operating system by error number."""

_BY_WORDS = {
    "No space left on device": _BY_NUMBER[errno.ENOSPC],
    "Too many open files": _BY_NUMBER[errno.EMFILE],
    "Interrupted system call": _BY_NUMBER[errno.EINTR],
}
"""Messages of libraries that raise their own errors for these shortages."""

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

    Raises the KeyboardInterrupt that ``error`` replaced, if there was one.
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
    """The error and its chain of causes, nearest first."""
    ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in ids:
        ids.add(id(cause))
        yield cause
        cause = cause.__cause__


def _interrupt(error: BaseException) -> KeyboardInterrupt | None:
    """The Ctrl-C during whose handling ``error`` was raised, for example in a clean-up."""
    ids: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in ids:
        if isinstance(each, KeyboardInterrupt):
            return each
        ids.add(id(each))
        each = each.__cause__ or each.__context__
    return None


@contextmanager
def contained() -> Iterator[None]:
    """For a model's own code: turn exceptions that would end the run or hide a claim into errors.

    asyncio's CancelledError, pytest's Skipped and Hypothesis's own become RuntimeErrors.
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
"""Functions of `os` that end the program without an exception."""

_guarded = 0
"""How many blocks of `kept_running` are open."""


@contextmanager
def kept_running() -> Iterator[None]:
    """For a model's code: it can neither end the process nor close the output streams.

    Functions of `os` that would end it raise SystemExit.  References to them that the code keeps
    do nothing after the block, so the run's exit code stands.
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
    """Free the memory that the frames of ``error`` hold, for a smaller prompt."""
    for each in _causes(error):
        traceback.clear_frames(each.__traceback__)
    if not gpu_failure():
        accelerators.release()


Size = tuple[int, int]
"""Rows and tokens of a batch of prompts."""


def at_size(size: Size | None) -> str:
    """``at 3 × 96 tokens``; empty where no prompt was drawn."""
    return f" at {size[0]} × {size[1]} tokens" if size else ""


class Limits:
    """Why examples of one law could not run, and how large further ones may be.

    After memory ran out, only prompts of at most half as many tokens are tried.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.fatal = False
        self.largest: Size | None = None
        self._most: int | None = None

    def note(self, lacking: str, size: Size | None) -> None:
        """Note that an example with a prompt of ``size`` could not run."""
        self.reason = lacking + at_size(size)
        # These may be the model's own fault, and no other example can rule that out.
        self.fatal = self.fatal or lacking.startswith((RECURSION, EXIT, GPU))
        if lacking == MEMORY:
            self._most = math.prod(size) // 2 if size else 0
        if lacking.startswith(GPU):
            self._most = 0

    def admits(self, size: Size) -> bool:
        """Whether to try a prompt of ``size``."""
        return self._most is None or math.prod(size) <= self._most

    @property
    def exhausted(self) -> bool:
        """Whether there is no smaller prompt to try."""
        return self._most == 0

    def ran(self, size: Size | None) -> None:
        """Note that an example with a prompt of ``size`` ran to its end."""
        if size and (self.largest is None or math.prod(size) > math.prod(self.largest)):
            self.largest = size

    @property
    def upheld_up_to(self) -> str:
        """The note of an upheld law on examples that could not run; empty if all could."""
        if not self.reason:
            return ""
        largest = f" up to {self.largest[0]} × {self.largest[1]} tokens" if self.largest else ""
        return f"compared{largest}; {self.reason}"
