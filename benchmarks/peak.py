"""Measures the peak memory of a descent, in a process of its own."""

from __future__ import annotations

import argparse
import json
import resource
import sys
from pathlib import Path

import torch

from assay.benchmarks import prompts
from assay.fixtures import subjects
from assay.harness.inversion import Rule, Target, descend, start
from assay.harness.models.loading.runs import Options


def resident() -> int:
    """Peak bytes of this process in memory.

    Linux has the figure of the process itself in a file; `getrusage` there includes the process
    that started it.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def main() -> None:
    """Descend and print, as JSON, the peak before and after, and the losses."""
    parser = argparse.ArgumentParser(prog="python -m assay.benchmarks.peak", description=__doc__)
    parser.add_argument("model", nargs="?", default="reference")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    subject = subjects.load(options.model, Options())
    before = resident()
    ids = prompts.fixed(subject, options.rows)
    target, rule = Target(subject.layers), Rule(steps=options.steps)
    goal = target.output(subject, ids)
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(*ids.shape, subject.hidden, generator=generator)
    first = start.scaled(subject, normal)
    size = 0.3 * start.unit(subject, target, goal, first, rule)
    descent = descend(subject, target, goal, first, torch.full((len(ids),), size), rule)
    losses = [float(descent.losses[:, 0].mean()), float(descent.final.mean())]
    print(json.dumps({"before": before, "peak": resident(), "losses": losses}))


if __name__ == "__main__":
    main()
