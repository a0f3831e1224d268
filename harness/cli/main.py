"""The command `assay`: lists the commands, and runs one by its name.

This module connects the rooms, as conftest.py does for pytest.  A command that needs a model
receives a function that loads one; only `fixtures` knows which models come with Assay.  So
this file, and no other in `harness`, imports `fixtures`, and only once a command needs a model.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from assay.harness.cli import BAD_INPUT, INTERRUPTED, READER_GONE
from assay.harness.cli.arguments import Parser
from assay.harness.results.errors import BadInput

if TYPE_CHECKING:  # torch takes seconds to import, too slow for `--help`
    from assay.harness.checking.cases import Case
    from assay.harness.cli.kills import Rooms
    from assay.harness.engines.interface import Engine
    from assay.harness.models.loading.runs import Options
    from assay.harness.models.subject import Subject
    from assay.harness.models.subject.offer import Offer

GROUPS = {
    "check": {
        "check": "check the claims on models",
        "list": "list the claims",
        "explain": "explain a claim: its sentence, source, control and bound",
    },
    "compare": {
        "runs": "list the runs of an evidence file",
        "report": "write the HTML page of stored runs",
        "compare": "compare two runs",
        "merge": "merge evidence files",
        "reference": "keep what a model makes of a fixed corpus, to compare others with it",
        "versions": "run claims over versions of transformers, or find where a verdict changed",
    },
    "explore": {
        "invert": "recover a prompt from a model's output, and show how",
        "sweep": "run claims on models × versions × dtypes × devices",
    },
    "maintain": {
        "faults": "list the faults that can be injected into a model",
        "kills": "inject faults into models of every family, and see which claims notice",
        "defects": "check, list and run the scripts that reproduce defects of transformers",
    },
}
"""The commands by group, each a module of `harness.cli`, with a description."""

COMMANDS = {name: what for group in GROUPS.values() for name, what in group.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that ``arguments`` begin with, and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if arguments is None:
            _escape_what_streams_lack()
        name = _parser().parse_args(words[:1]).command
        if name not in COMMANDS:
            raise BadInput(f"{name!r}: no such command; there are {', '.join(COMMANDS)}")
        serves = any(each.removeprefix("--model=").startswith("engine:") for each in words)
        against = _option(words[1:], "--against")
        stored = against is not None and against.endswith(".safetensors")
        if name == "check" and against is not None and (stored or not serves):
            name = "against"
        if name == "versions" and _option(words[1:], "--bisect") is not None:
            name = "bisect"
        command = importlib.import_module(f"assay.harness.cli.{name}")
        # Other processes look `rooms` up in this module by its own name, not as ``__main__``.
        rooms_by_name = importlib.import_module("assay.harness.cli.main").rooms
        functions = {"kills": rooms_by_name}
        functions |= {"bisect": check, "sweep": expand, "versions": expand}
        functions |= dict.fromkeys(("faults", "invert", "reference"), load)
        if name == "against":
            return command.main(words[1:], load, inspect)
        return command.main(words[1:], *([functions[name]] if name in functions else []))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or exit fails
        return READER_GONE
    except (BadInput, OSError) as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        return BAD_INPUT


def _escape_what_streams_lack() -> None:
    """Write escapes for characters that the encoding of a standard stream lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _parser() -> argparse.ArgumentParser:
    lines = []
    for group, commands in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<10} {what}" for name, what in commands.items()), ""]
    listed = "\n".join(lines)
    parser = Parser(
        prog="assay",
        usage="%(prog)s [-h] COMMAND ...",
        description="Executable claims about transformer language models.",
        epilog=f"{listed}\n`assay COMMAND --help` prints the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", metavar="COMMAND", help="one of those below")
    return parser


def load(spec: str, options: Options) -> Subject:
    """The subject that ``spec`` names, as a run of claims would load it; raises `BadInput`."""
    return _of_fixtures("subjects").load(spec, options)


def open_engine(name: str, what: str) -> Engine:
    """The engine that ``engine:NAME:WHAT`` names; raises `BadInput`."""
    engine: Engine = _of_fixtures("engines").engine(name, what, _load_in)
    return engine


def served_by(name: str, engine: Engine, against: str | None) -> Subject:
    """``engine`` as a subject, beside the model ``against``; raises `BadInput`."""
    served: Subject = _of_fixtures("engines").subject(name, engine, against, _load_in)
    return served


def _load_in(spec: str, dtype: str | None) -> Subject:
    from assay.harness.models.loading.runs import Options

    return load(spec, Options(dtype=dtype or Options.dtype))


def _option(arguments: Sequence[str], name: str) -> str | None:
    """The value of an option among ``arguments``, or an empty one; None without the option."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for each, after in zip(options, [*options, ""][1:], strict=True):
        option, sign, value = each.partition("=")
        if option == name:
            return value if sign else after
    return None


def inspect(spec: str, options: Options) -> None:
    """Raise the `BadInput` that loading the model would, as far as is known without weights."""
    _of_fixtures("subjects").check(spec, options)


def expand(specs: list[str]) -> list[str]:
    """``specs`` with matches in place of patterns; each is checked.  Raises `BadInput`."""
    from assay.harness.models.loading.runs import Options

    subjects = _of_fixtures("subjects")
    names, fitting = subjects.expanded(specs)
    for spec in names:
        if spec not in fitting:
            subjects.check(spec, Options())
    return names


def check(model: str, claims: Sequence[str]) -> None:
    """Raise `BadInput` for an unknown model, or an unknown claim (``ID[:TEXT]``)."""
    from assay.harness.checking import catalogue

    if why := catalogue.misspelt(claims):
        raise BadInput(f"--claim {why}")
    if len(expanded := expand([model])) > 1:
        raise BadInput(f"--model {model}: stands for {len(expanded)} models; name one")


def cases_of_claims(files: Collection[Path] | None = None) -> list[Case]:
    """Every claim, or those of some files, with each of its variants."""
    from assay.harness.checking import cases

    return cases.collect(_claims(files))


def offer(subject: Subject) -> Offer | str:
    """What models of the subject's class offer; or why that is not known."""
    answer: Offer | str = _of_fixtures("families.offers").offer(subject)
    return answer


def rooms() -> Rooms:
    """The claims, the expectations of models, and a model for each kind of family."""
    from assay.harness.cli.kills import Rooms

    kinds = _of_fixtures("kinds").KINDS
    from assay.harness.checking import catalogue

    return Rooms(_claims(), catalogue.FOLDER / "expectations", kinds, load)


def _claims(files: Collection[Path] | None = None) -> list[ModuleType]:
    """The modules of the claims in ``files``, or of all."""
    from assay import claims
    from assay.harness.checking import catalogue

    every = dict.fromkeys(catalogue.ROOT / each.file for each in catalogue.claims())
    names = [
        ".".join(file.relative_to(catalogue.FOLDER).with_suffix("").parts)
        for file in every
        if files is None or file in files
    ]
    return [importlib.import_module(f"{claims.__name__}.{name}") for name in names]


def _of_fixtures(name: str) -> Any:
    from assay import fixtures

    return importlib.import_module(f"{fixtures.__name__}.{name}")


if __name__ == "__main__":
    sys.exit(main())
