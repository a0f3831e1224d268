"""`assay reference MODEL --out FILE`: keep what a model makes of a fixed corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.harness.cli import models
from assay.harness.cli.arguments import Parser, file, word
from assay.harness.cli.models import Load
from assay.harness.operations.parity import stored
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import keep_apart


def main(arguments: Sequence[str], load: Load) -> int:
    """Write the reference of a model; 0."""
    options = _parser().read(arguments, "models")
    if len(options.models) > 1:
        raise BadInput(f"a reference is of one model, not {len(options.models)}")
    if options.out.suffix != stored.SUFFIX:
        raise BadInput(f"--out {options.out}: the name of a reference ends in {stored.SUFFIX}")
    name = word(options.models[0]) if options.models else options.model
    keep_apart({"--out": options.out}, {"the model": Path(name)})
    subject = load(name, models.loading(options))
    made = stored.make(subject, str(options.out))
    stored.write(made, options.out)
    size = options.out.stat().st_size / 1e6
    print(f"{made}\n{len(made.prompts)} prompts, {size:.1f} MB")
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="assay reference",
        description="Keep ids and float64 rows of a fixed corpus in a file.  `assay check A "
        "--against FILE` compares a model, or an engine, with it and does not need the model that "
        "it was made of (docs/parity.md).",
        epilog="Exit code: 0, or 4 for a model that does not run in float64, or cannot be loaded.",
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="see --model")
    parser.add_argument(
        "--out", type=file, required=True, metavar="FILE", help="ends in .safetensors"
    )
    models.add_options(parser)
    return parser
