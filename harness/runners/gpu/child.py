"""The process of one step: runs pytest, and keeps the peak of memory as it goes.

    python -m assay.harness.runners.gpu.child --device=cuda:0 --peaks=FILE [--sdpa=flash] -- ...

With ``--look`` it prints what is known of the device, as JSON, and runs nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from assay.harness.models import accelerators, kernels
from assay.harness.models.devices import parse_device
from assay.harness.results.errors import BadInput
from assay.harness.runners.gpu import look

LOOK = 1.0
"""Seconds between two readings of memory."""

UNFIT = 3
"""Exit code of a step that this machine, or this build of torch, has not what it takes for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run pytest with the arguments after ``--``; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="python -m assay.harness.runners.gpu.child")
    parser.add_argument("--device", required=True)
    parser.add_argument("--peaks", type=Path)
    parser.add_argument("--sdpa", default="")
    parser.add_argument("--look", action="store_true")
    options = parser.parse_args(words[:cut])
    try:
        device = parse_device(options.device)
        if options.look:
            print(json.dumps(look.describe(device)))
            return 0
        backend = kernels.preferred(options.sdpa, device) if options.sdpa else None
    except BadInput as why:
        print(f"ERROR: {why}")
        return UNFIT
    with contextlib.ExitStack() as stack:
        if options.peaks is not None:
            stack.enter_context(Peaks(device, options.peaks, backend))
        if backend is not None:
            stack.enter_context(kernels.using(backend))
        return int(pytest.main(words[cut + 1 :]))


class Peaks:
    """The most memory that a process took, in a file that is written as it goes."""

    def __init__(self, device: torch.device, path: Path, backend: Any = None) -> None:
        self.device, self.path, self.backend = device, path, backend
        self.resident = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.write()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK):
            with contextlib.suppress(RuntimeError, OSError):  # the GPU may be gone
                self.write()

    def write(self) -> None:
        """Replace the file by what is known now."""
        self.resident = max(self.resident, psutil.Process().memory_info().rss)
        content: dict[str, Any] = {"resident": self.resident}
        with contextlib.suppress(RuntimeError):
            content["peak"] = accelerators.peak(self.device)
        if self.backend is not None:
            content["kernels"] = dict(kernels.ran)
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(content))
        os.replace(draft, self.path)


def read(path: Path) -> dict[str, Any]:
    """What `Peaks` wrote; empty if the process ended before."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(path.read_text()))
    return {}


if __name__ == "__main__":
    sys.exit(main())
