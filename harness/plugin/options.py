"""The command-line options of a run, and the checks that reject wrong values at once."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from assay.harness.checking import outside
from assay.harness.checking.profiles import check_profile
from assay.harness.models.loading import loading
from assay.harness.models.loading.runs import Options
from assay.harness.models.machine import allocation, placement
from assay.harness.models.machine.devices import AUTO
from assay.harness.models.reference import float64
from assay.harness.models.subject import meant
from assay.harness.models.subject.lengths import ALL
from assay.harness.plugin import budget, toy
from assay.harness.plugin.request import DEFAULT, EXPAND, Expand, RunRequest
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence_file import default_path
from assay.harness.results.outputs import keep_apart
from assay.harness.results.seeds import read_seed
from assay.harness.results.specs import ModelSpec

PATHS = ("evidence", "json", "report", "expectations")
"""The options whose values are paths."""

RECORD = "record"
"""The value of ``--expectations``, alone or before a folder, that records them."""

MARKDOWN = (".md", "")
"""The endings of a report in Markdown: that of a CI job has none."""

SETTINGS = {
    "oracle": "the float64 reference: copy, stream (upcasts weights where they are used), cpu, or "
    "auto, a copy of up to 537 MB (default: auto)",
    "bitwise": "true: allow no rounding where a model is run in another way: G9 demands the same "
    "bits in batches of any size, G4 of a compiled model, and G6 the same tokens with drafts",
    "absent_ok": "true: skip models that this version of transformers lacks, instead of failing; "
    "for patterns this is the default",
    "plain": "true: nothing is printed but what Assay prints, as in assay check",
}
"""Settings of pytest, for ``-o NAME=VALUE`` or a file: few runs need them."""


OPTIONS: dict[str, dict[str, Any]] = {
    "--model": {"action": "append", "dest": "models"},
    "--claim": {"action": "append", "dest": "claims"},
    "--claims": {"action": "append", "dest": "outside"},
    "--emulate": {"action": "append"},
    "--report": {"action": "append"},
    "--device": {"default": "cpu"},
    "--dtype": {"default": AUTO},
    "--layers": {"default": AUTO},
    "--profile": {"default": "quick"},
    "--seed": {"default": "0"},
}
"""Options with a default, or that may be given several times."""

PLAIN = (
    *("--revision", "--base", "--device-map", "--attention", "--attends", "--against"),
    *("--budget", "--replay", "--evidence", "--json", "--expectations"),
)
FLAGS = ("--trust-remote-code", "--resume", "--explain")
"""Options with a value, and those without."""


def add(parser: pytest.Parser) -> None:
    """Add Assay's options to pytest's; `assay check --help` and docs/reference.md describe them.

    All values are text here; `read` checks and converts them, as argparse rejects a value in
    several lines.
    """
    group = parser.getgroup("assay", "Assay (`assay check --help` describes these)")
    for name, settings in OPTIONS.items():
        group.addoption(name, **settings)
    for name in PLAIN:
        group.addoption(name)
    for name in FLAGS:
        group.addoption(name, action="store_true")
    parser.addini("oracle", SETTINGS["oracle"], type="string", default="auto")
    for name in ("bitwise", "absent_ok", "plain"):
        parser.addini(name, SETTINGS[name], type="bool", default=False)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn `BadInput` into `pytest.UsageError`: ``ERROR: …`` and exit code 4."""
    try:
        yield
    except BadInput as error:
        raise pytest.UsageError(str(error)) from error


def read(config: pytest.Config) -> RunRequest:
    """The run that the options ask for; raises `BadInput` for values that cannot be used.

    Models are checked later (`fixtures.subjects`), evidence when it is opened.
    """
    settings = {name: config.getini(name) for name in SETTINGS}
    option = argparse.Namespace(**vars(config.option), **settings)
    for argument in config.invocation_params.args:
        if argument.startswith("--") and argument.endswith("=--"):  # argparse reads an empty list
            raise BadInput(f"{argument.removesuffix('=--')}: '--' is not a value")
    _check_texts(option)
    option.rounding, option.allocation = _emulated(option.emulate or ())
    text, option.record_expectations = option.expectations, False
    if text is not None and text.partition(":")[0] == RECORD:
        option.record_expectations = True
        option.expectations = text.partition(":")[2] or None
    for name in ("evidence", "json", "expectations"):
        if (text := getattr(option, name)) is not None:
            setattr(option, name, _path(name, text))
    option.report, option.summary = _reports(option.report or ())
    outputs = (("json", option.json), ("report", option.report), ("report", option.summary))
    for name, path in outputs:
        if path is not None:
            _check_writable(name, path)
    _check_combined(option)
    if xml := getattr(option, "xmlpath", None):
        _check_writable("junitxml", Path(xml).absolute())
    _check_outputs(option)
    _check_expectations(option.expectations, option.record_expectations)
    loading.check_pair(loading.parse_device(option.device), loading.parse_dtype(option.dtype))
    sources = outside.load(tuple(option.outside or ()))  # before models: they have faults
    models, by_pattern = _models(option, config.stash.get(EXPAND, None))
    optional = models if option.absent_ok else by_pattern
    same = ("profile", "replay", "rounding", "allocation", "evidence", "json", "report", "summary")
    flags = ("resume", "explain", "record_expectations")
    return RunRequest(
        named=tuple(option.models or ()),
        models=models,
        # The toys are optional: an injected fault need not apply to them.
        optional=frozenset([*optional, toy.spec_for(models)]),
        loading=Options(**{each.name: getattr(option, each.name) for each in fields(Options)}),
        seed=read_seed(option.seed, "--seed"),
        budget=budget.read_budget(option.budget),
        claims=tuple(option.claims or ()),
        outside=sources,
        expectations=option.expectations or config.rootpath / "claims" / "expectations",
        worker=getattr(config, "workerinput", {}).get("workerid", ""),
        root=config.rootpath,
        directory=config.invocation_params.dir,
        **{name: getattr(option, name) for name in (*same, *flags)},
    )


def _models(
    option: argparse.Namespace, expand: Expand | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The models that claims run on, and those of them that only patterns name."""
    named = option.models or [DEFAULT]
    models, by_pattern = (named, []) if expand is None else expand(named)
    return tuple(dict.fromkeys(models)), tuple(by_pattern)


def _check_texts(option: argparse.Namespace) -> None:
    """Reject empty and unknown values."""
    for name in (*OPTIONS, *PLAIN):
        own = OPTIONS.get(name, {}).get("dest", name.removeprefix("--").replace("-", "_"))
        values = getattr(option, own)
        for value in values if isinstance(values, list) else [values]:
            if value is not None and not value.strip():
                raise BadInput(f"{name} {value!r}: is empty; say which")
    check_profile(option.profile)
    if option.attends not in (None, *meant.WAYS):
        raise BadInput(f"--attends {option.attends!r}: choose from {', '.join(meant.WAYS)}")
    if option.layers not in (AUTO, ALL):
        raise BadInput(f"--layers {option.layers!r}: choose from {AUTO}, {ALL}")
    if option.oracle not in float64.WAYS:
        raise BadInput(f"oracle {option.oracle!r}: choose from {', '.join(float64.WAYS)}")
    if option.replay is not None and not option.replay.isascii():
        raise BadInput(f"--replay {option.replay!r}: is not an example that a failure printed")
    if option.device_map is not None:
        placement.read(option.device_map)


def _check_combined(option: argparse.Namespace) -> None:
    """Reject options that cannot be combined."""
    record = f"--expectations={RECORD}"
    if option.record_expectations:
        for model in option.models or ():
            if ModelSpec.recorded(model).fault is not None:
                raise BadInput(f"{record}: nothing is expected of a model with a fault, {model}")
    for flag, name in (("resume", "--resume"), ("record_expectations", record)):
        if option.replay is not None and getattr(option, flag):
            raise BadInput(f"--replay: cannot be combined with {name}")


def _emulated(machines: Sequence[str]) -> tuple[int | None, str | None]:
    """The seed of the rounding and the name of the allocation that are emulated."""
    rounding, allocated = None, None
    for each in machines:
        kind, _, value = each.partition(":")
        if kind == "rounding":
            rounding = read_seed(value, f"--emulate={kind}")
        elif kind == "allocation" and value in allocation.NAMES:
            allocated = value
        else:
            names = ", ".join(f"allocation:{name}" for name in allocation.NAMES)
            raise BadInput(f"--emulate {each!r}: choose from rounding:SEED, {names}")
    return rounding, allocated


def _reports(names: Sequence[str]) -> tuple[Path | None, Path | None]:
    """The paths of the page and of the Markdown; at most one of each."""
    page, markdown = None, None
    for path in (_path("report", name) for name in names):
        if path.suffix == ".html" and page is None:
            page = path
        elif path.suffix in MARKDOWN and markdown is None:
            markdown = path
        else:
            why = "one page (.html) and one file of Markdown (.md, or without an ending) at most"
            raise BadInput(f"--report {path}: give {why}")
    return page, markdown


def _path(name: str, text: str) -> Path:
    if text.endswith(os.sep) and name != "expectations":
        raise BadInput(f"--{name} {text}: names a folder; give a file's path")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise BadInput(f"--{name} {text}: no such home folder") from error


def _check_writable(name: str, path: Path) -> None:
    """Reject a path that cannot be written to; missing folders are created later."""
    try:
        if path.is_dir():
            raise BadInput(f"--{name} {path}: is a folder; give a file's path")
        if path.exists() and not path.is_file():
            return  # a device or a pipe
        folder = next(parent for parent in path.parents if os.path.lexists(parent))
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadInput(f"--{name} {path}: cannot be written ({error.strerror})") from error


def _check_outputs(option: argparse.Namespace) -> None:
    """Reject two outputs in one file, over an input, or in a model's folder."""
    files = {f"--{name}": getattr(option, name) for name in PATHS[:-1]}
    files["--report (Markdown)"] = option.summary
    if xml := getattr(option, "xmlpath", None):
        files["--junitxml"] = Path(xml).absolute()
    if option.record_expectations:
        files["--expectations"] = option.expectations
    if option.evidence is None and option.replay is None:
        files["the default of --evidence"] = default_path()
    named = {f"--model={model}": ModelSpec.recorded(model).path for model in option.models or []}
    named["--device-map"] = option.device_map or ""
    # A model's name need not be a path: it may be a hub id.
    read = {name: Path(os.path.expanduser(path)) for name, path in named.items() if path}
    keep_apart(files, read)


def _check_expectations(folder: Path | None, to_record: bool) -> None:
    """Reject a missing folder: a misspelt one would expect nothing."""
    if folder is None or folder.is_dir():
        return
    if folder.exists() or folder.is_symlink():
        raise BadInput(f"--expectations {folder}: is not a folder")
    if not to_record:
        why = f"no such folder; --expectations={RECORD}:FOLDER makes it"
        raise BadInput(f"--expectations {folder}: {why}")
