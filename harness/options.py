"""The command line: what a run of claims can be asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.profiles import PROFILES
from harness.runs import Options


def add(parser: pytest.Parser) -> None:
    """Add Assay's options to pytest's."""
    group = parser.getgroup("assay", "Assay: claims about transformer language models")
    add = group.addoption
    add(
        "--model",
        action="append",
        dest="models",
        metavar="MODEL",
        help="a folder, a hub id, reference[:SIZE], untrained:SIZE:SEED or tiny:MODEL_TYPE; "
        "may be given several times (default: reference)",
    )
    add("--revision", help="the revision of a hub id")
    add("--device", default="cpu", help="where to run: cpu, cuda, cuda:1, mps (default: cpu)")
    add("--dtype", default="float32", help="float32, bfloat16, float16 or float64")
    add("--attention", help="attention implementation: eager, sdpa, flex_attention, …")
    add(
        "--trust-remote-code",
        action="store_true",
        help="run Python code that comes with a model; it can do anything that you can",
    )
    add("--profile", choices=sorted(PROFILES), default="quick", help="how much to try")
    add("--seed", type=int, help="draw other examples: the seed of every draw")
    add("--replay", metavar="BLOB", help="run one example again, as a failure's report says")
    add("--evidence", type=Path, metavar="PATH", help="the evidence file (default: in the cache)")
    add("--resume", action="store_true", help="go on where an unfinished run like this stopped")
    add("--json", type=Path, metavar="PATH", dest="json_path", help="write the results as JSON")
    add("--report", type=Path, metavar="PATH", help="write a self-contained HTML page")
    add("--explain", action="store_true", help="say why claims did not apply")
    add(
        "--record-expectations",
        action="store_true",
        help="write this run's verdicts to claims/expectations as what is expected of the model",
    )


def loading(config: pytest.Config) -> Options:
    """The options that decide how subjects are loaded."""
    return Options(
        device=config.option.device,
        dtype=config.option.dtype,
        attention=config.option.attention,
        revision=config.option.revision,
        trust_remote_code=config.option.trust_remote_code,
    )


def models(config: pytest.Config) -> list[str]:
    """The subjects asked for, each once, in the order given."""
    return list(dict.fromkeys(config.option.models or ["reference"]))


def replay_command(nodeid: str, config: pytest.Config, subject: str, blob: str) -> str:
    """One line that runs a failing example again."""
    options = loading(config)
    parts = [f"pytest '{nodeid}'", f"--model {subject}"]
    for name in ("device", "dtype", "attention", "revision"):
        if (value := getattr(options, name)) != getattr(Options(), name):
            parts.append(f"--{name} {value}")
    return " ".join([*parts, f"--replay {blob}"])
