"""Options for the model of a command, and how it is loaded."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from assay.harness.cli.arguments import word
from assay.harness.models.loading.runs import Options
from assay.harness.models.machine.devices import AUTO
from assay.harness.models.subject import Subject, meant

Load = Callable[[str, Options], Subject]
"""Returns the subject that a ``--model`` names; raises `BadInput`."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them, with the same names as in a run of claims."""
    add = parser.add_argument_group("model").add_argument
    add(
        "--model",
        default="reference",
        type=word,
        help="a folder, a hub id, FILE.py:FUNCTION, reference[:SIZE], untrained:SIZE:SEED, "
        "tiny:MODEL_TYPE or geometry:NAME (default: reference)",
    )
    add("--revision", type=word, help="the revision of a hub id")
    add("--base", type=word, help="the base model of an adapter's folder")
    add("--device", default="cpu", type=word, help="cpu, cuda, cuda:1, mps (default: cpu)")
    add(
        "--dtype",
        default=AUTO,
        type=word,
        help="float32, bfloat16, float16, float64, or auto: a checkpoint's own, and float32 for "
        "all other models (default: auto)",
    )
    add("--attention", type=word, metavar="NAME", help="eager, sdpa, flex_attention, ...")
    add(
        "--attends",
        choices=meant.WAYS,
        help="which way the model attends, where its class and configuration say otherwise",
    )
    add(
        "--trust-remote-code",
        action="store_true",
        help="run Python code that comes with a model; it can do anything that you can",
    )


def loading(options: argparse.Namespace) -> Options:
    """The options as `Options`."""
    names = ("device", "dtype", "attention", "revision", "base", "trust_remote_code", "attends")
    return Options(**{name: getattr(options, name) for name in names})
