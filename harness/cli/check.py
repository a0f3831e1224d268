"""`assay check MODEL …`: the claims on models, by pytest."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.harness.cli.arguments import Parser
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import is_in
from assay.harness.results.specs import OUTSIDE, ModelKind, ModelSpec

USAGE = """\
usage: assay check [MODEL ...] [OPTION ...]

Check the claims on each MODEL: a folder that save_pretrained wrote, a model of the Hugging Face
hub (owner/name), FILE.py:FUNCTION for a model of your own, reference[:SIZE], untrained:SIZE:SEED,
or tiny:MODEL_TYPE; any of them with +FAULT (assay faults lists them), to see the fault caught.
Without a model: reference.

With engine:NAME:WHAT, check what serves a model; --against=FOLDER names the model that it serves.
With --against=MODEL, compare a model with another one that should compute the same, or with what
`assay reference` kept of it; see `assay check MODEL --against MODEL --help`.

What to check:
  --claim=ID[:TEXT]           this claim, or its variants whose name contains TEXT; repeatable
  --claims=PATH               also your own claims: a file, a folder or a package; repeatable
  -m law, -m finding          laws or findings only
  --rollout                   what an engine samples, scored by --against in --dtype; with figures
  --profile=NAME              how much to try: glance, quick, standard, thorough (default: quick
                              for the small models that come with Assay, glance for others)
  --budget=TIME               start no claim after this time, such as 10m
  --seed=N, --replay=BLOB     seed of all draws; one example again, as a failure printed it
The model (also --model=MODEL):
  --dtype=DTYPE               float32, bfloat16, float16, float64 or auto (default: its own)
  --device=DEVICE, --device-map=MAP       cpu, cuda, cuda:1, mps; spread over several
  --attention=NAME, --attends=WAYS        implementation of attention; causal or both
  --layers=all                laws about all of a large model, not its first blocks
  --revision=NAME, --base=MODEL           of a hub id; the base model of an adapter
  --trust-remote-code         run Python code that comes with a model
Results:
  --explain                   print why claims do not apply, and what controls did
  --json=FILE                 write JSON
  --report=FILE               write a page (.html), or Markdown for a CI job; twice for both
  --evidence=FILE, --resume   keep results in another file; resume an unfinished run
  --expectations=FOLDER       known exceptions; record:FOLDER writes this run's verdicts there
  -n N                        run in N processes
  --emulate=MACHINE           emulate another machine: rounding:SEED, allocation:odd

Options of pytest work too (pytest --help).  Exit code: 0 every claim came out as expected, 1 one
did not, 2 interrupted, 4 invalid input, 5 no claim was selected, or none applies.
"""


def main(arguments: Sequence[str], run: Callable[[list[str]], Any] | None = None) -> int:
    """Run pytest on the claims; its exit code."""
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(USAGE)
        return 0
    from assay.harness.checking import outside
    from assay.harness.cli import early  # not needed for help

    arguments = [each for word in arguments for each in SHORT.get(word, [word])]
    for word in arguments:
        _refuse_misspelt(word.partition("=")[0])
    models, pytest_arguments = separate(arguments)
    if not all(model.strip() for model in models):
        raise BadInput("assay check: a MODEL is empty; say which")
    added = shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    options = [f"--model={model}" for model in models]
    options += join_paths(pytest_arguments)
    request = _read(options)
    profile = request.profile or _read(added).profile
    if profile is None and any(map(_may_be_large, request.model)):
        options.insert(len(models), "--profile=glance")
    for model in request.model:
        _require_elsewhere(model)
    options[len(models) : len(models)] = [f"--claims={each}" for each in outside.installed()]
    named = bool(request.claims or outside.installed())  # only their code has their numbers
    known = [] if named else request.claim
    early.check(request.model, known, request.profile or "glance", request.base)
    if request.dist is None and request.numprocesses not in ("0", "1"):
        options.insert(len(models), DISTRIBUTED)
    return int((run or _pytest)([str(early.FOLDER), *options]))


def _read(options: Sequence[str]) -> argparse.Namespace:
    """The options that matter before pytest starts; pytest reads and rejects all others."""
    parser = Parser(add_help=False)
    for name in ("--model", "--claim", "--claims"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--profile")
    parser.add_argument("--base")
    parser.add_argument("-n", "--numprocesses", default="0")
    parser.add_argument("--dist")
    return parser.parse_known_args(options)[0]


def _may_be_large(model: str) -> bool:
    """Whether it is a folder, a hub id, a user's function, of a released model's size, or an
    engine.
    """
    return ModelSpec.recorded(model).kind in (*OUTSIDE, ModelKind.GEOMETRY, ModelKind.ENGINE)


DISTRIBUTED = "--dist=loadfile"
"""Processes of pytest-xdist share the claims by groups (`harness.plugin.together`), so that each
loads few models."""

SHORT = {"--rollout": ["--claim=I9:rollout", "--explain"]}
"""Words for several options: a trainer's question (docs/engines.md)."""

NAMES = tuple(dict.fromkeys(re.findall(r"--[a-z][a-z-]+", USAGE)))
"""The options of Assay that `USAGE` lists."""

NEAR = 0.85
"""How alike two options are for one to be the other misspelt; pytest's own are less so."""


def _refuse_misspelt(option: str) -> None:
    """Raise `BadInput` for an option that is nearly one of Assay's; pytest reads all others."""
    if option in NAMES or not option.startswith("--"):
        return
    if near := difflib.get_close_matches(option, NAMES, n=1, cutoff=NEAR):
        raise BadInput(f"{option}: no such option; did you mean {near[0]}?")


def _require_elsewhere(model: str) -> None:
    """Raise `BadInput` where the current folder is that of ``model``, or lies in it."""
    path = os.path.expanduser(ModelSpec.recorded(model).path or "")
    if os.path.isdir(path) and is_in(Path.cwd(), Path(path)):
        raise BadInput(
            f"{model}: start Assay outside of the model's folder: workers, git and matplotlib "
            "read files of the current folder"
        )


PATHS = frozenset(
    f"--{name}"
    for name in (
        *("against", "claims", "device-map", "evidence"),
        *("expectations", "json", "model", "report"),
    )
)
"""Assay's options whose value may be a path."""

FLAGS = re.compile(
    r"-[vqsxl]|-\w.+|--(?:[^=]+=.*|resume|explain|trust-remote-code|lf|pdb)",
    re.S,
)
"""Options without a value in the next argument: those that contain it, or take none."""


def separate(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The models among ``arguments``, and the arguments for pytest.

    A word is a model unless it begins with a dash or may be the value of the option before it.
    """
    models: list[str] = []
    rest: list[str] = []
    before = ""
    for each in arguments:
        is_model = not each.startswith("-") and (not before or bool(FLAGS.fullmatch(before)))
        (models if is_model else rest).append(each)
        before = "" if is_model or not each.startswith("-") else each
    return models, rest


def join_paths(options: Sequence[str]) -> list[str]:
    """The options with paths as one argument: pytest takes a separate path for a test's."""
    words: list[str] = []
    for each in options:
        if words and words[-1] in PATHS and "--" not in words and not each.startswith("-"):
            words[-1] += f"={each}"
        else:
            words.append(each)
    return words


def _pytest(arguments: list[str]) -> int:
    import pytest

    # What pytest, its plug-ins and libraries print says nothing about a model.
    quiet = ["-q", "--no-header", "--disable-warnings", "-p", "no:benchmark", "-o", "plain=true"]
    # It collects garbage five times at the end, half a second of a run, for its warnings.
    quiet += ["-p", "no:unraisableexception"]
    return pytest.main([*arguments, *quiet])
