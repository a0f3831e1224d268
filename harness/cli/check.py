"""`assay check MODEL …`: the claims on models, by pytest."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import is_in
from assay.harness.results.specs import ModelSpec

USAGE = """\
usage: assay check [MODEL ...] [OPTION ...]

Check the claims on each MODEL: a folder that save_pretrained wrote, a model of the Hugging Face
hub (owner/name), FILE.py:FUNCTION for a model of your own, reference[:SIZE], untrained:SIZE:SEED,
or tiny:MODEL_TYPE.  Without a model: reference.

With --against=MODEL, compare a model with another one that should compute the same; see
`assay check MODEL --against MODEL --help`.

Options are pytest's, with those of Assay among them; the most used:
  -m law                      only laws (or: finding)
  --claim=ID[:TEXT]           only this claim, or its variants whose name contains TEXT
  --profile=NAME              how much to try: glance, quick (default), standard, thorough
  --dtype=DTYPE, --device=DEVICE, --attention=NAME
  --explain                   print why claims do not apply, and the results of controls
  --json=FILE, --report=FILE  write the results as JSON, as an HTML page
  --summary=FILE              add a summary in Markdown to a file, as for a CI job
  --evidence=FILE, --resume   keep results in another file; resume an unfinished run
  -n N                        run in N processes

`assay check --help` lists all of them.  Exit code: 0 every claim came out as expected, 1 one did
not, 2 interrupted, 4 invalid input, 5 no claim was selected.
"""


def main(arguments: Sequence[str], run: Callable[[list[str]], Any] | None = None) -> int:
    """Run pytest on the claims; its exit code."""
    if list(arguments) == ["-h"]:
        sys.stdout.write(USAGE)
        return 0
    models, pytest_arguments = separate(arguments)
    if not all(model.strip() for model in models):
        raise BadInput("assay check: a MODEL is empty; say which")
    try:
        shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))
    except ValueError as error:
        raise BadInput(f"PYTEST_ADDOPTS: cannot be split into options ({error})") from error
    named = [f"--model={model}" for model in models]
    options = [*named, *distribution(pytest_arguments), *join_paths(pytest_arguments)]
    for option in options:
        if option.startswith("--model="):
            _require_elsewhere(option.partition("=")[2])
    return int((run or _pytest)([str(claims()), *options]))


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
    for name in ("device-map", "evidence", "expectations", "json", "model", "report", "summary")
)
"""Assay's options whose value may be a path."""

FLAGS = re.compile(
    r"-[vqsxl]|-\w.+|--(?:[^=]+=.*|resume|explain|bitwise|trust-remote-code|absent-ok|lf|pdb)",
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


def distribution(options: Sequence[str]) -> list[str]:
    """How pytest-xdist is to distribute claims to several processes, unless ``options`` say how.

    By groups (`harness.plugin.together`), so that each loads few models.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-n", "--numprocesses", default="0")
    parser.add_argument("--dist")
    try:
        own, _ = parser.parse_known_args(list(options))
    except argparse.ArgumentError:  # an option without its value, which pytest rejects
        return []
    if own.dist is not None or own.numprocesses in ("0", "1"):
        return []
    return ["--dist=loadfile"]


def join_paths(options: Sequence[str]) -> list[str]:
    """The options with paths as one argument: pytest takes a separate path for a test's."""
    words: list[str] = []
    for each in options:
        if words and words[-1] in PATHS and "--" not in words and not each.startswith("-"):
            words[-1] += f"={each}"
        else:
            words.append(each)
    return words


def claims() -> Path:
    """The folder of the claims, in a clone or in an install."""
    return Path(__file__).parents[2] / "claims"


def _pytest(arguments: list[str]) -> int:
    import pytest

    return pytest.main(arguments)
