"""Command lines and TOML files with random changes: run, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.cli.main import COMMANDS
from assay.harness.tests.support.fuzz_inputs import EXPECTED, PLAN, room
from assay.harness.tests.support.fuzzing import cases
from assay.harness.tests.support.mutations import arguments, tomls

VALID: dict[str, list[str]] = {
    "compare": ["before.sqlite@1", "after.sqlite@-1", "--least=0.5"],
    "defects": ["defects"],
    "explain": ["C2"],
    "faults": ["--model=tiny:gpt2", "--dtype=float32"],
    "invert": ["--model=model", "--ids=5,17,3", "--depth=1", "--method=descent", "--steps=9"],
    "kills": ["--family=gpt2", "--extent=named", "--json=out.json"],
    "list": ["--json"],
    "merge": ["out.sqlite", "before.sqlite", "after.sqlite"],
    "reference": ["model", "--out=ref.safetensors", "--dtype=float32"],
    "report": ["before.sqlite", "after.sqlite@1", "--out=out.html"],
    "runs": ["after.sqlite"],
    "sweep": ["plan.toml", "--in-order", "--resume"],
    "versions": ["4.57.6", "--model=tiny:gpt2", "--evidence=new.sqlite", "--environments=envs"],
}
"""Of each command a line that it takes."""

WORDS = (
    *("model", "models", "tiny:gpt2", "tiny:*", "reference:small", "toy", "claims", "expected"),
    *("before.sqlite", "after.sqlite", "run.json", "pytest.ini", "defects", "."),
    *("--json", "--resume", "--help", "--count", "--seed=0", "--dtype=bfloat16", "--nosuch"),
    *("float16", "cuda:9", "C2", "X1", "X1:a law", "1,2,3", "99999999999999999999", "4.57.6"),
    *("tiny:gpt2+mask-ignored", "untrained:small:1", "geometry:nosuch", "after.sqlite@all"),
)
"""Words that fit somewhere."""

OPTIONS = (
    *("--model=model", "--model=tiny:gpt2", "--model=toy", "--dtype=float16", "--device=cpu"),
    *("--attention=eager", "--attends=causal", "--profile=glance", "--claim=X1", "--seed=3"),
    *("--emulate=rounding:1", "--emulate=allocation:odd", "--replay=AEEA"),
    *("--evidence=before.sqlite", "-obitwise=true", "-ooracle=disk"),
    *("--resume", "--json=out.json", "--report=out.html", "--explain", "--report=out.md"),
    *("--expectations=record", "--expectations=record:expected", "--revision=1"),
    *("--device-map=map.json", "--junitxml=out.xml", "--collect-only", "-mlaw", "-kcap", "claims"),
)
"""What a run of claims may be asked for."""


def test_every_command_has_a_line() -> None:
    # A run of pytest is tried below.
    assert VALID.keys() == COMMANDS.keys() - {"check"}


@pytest.mark.parametrize("command", VALID)
@cases(0.012)
@given(data=st.data())
def test_any_command_line(stocked: Path, command: str, data: st.DataObject) -> None:
    words = data.draw(arguments([command, *VALID[command]], WORDS))
    with room(stocked, "model") as here:
        (here.work / "plan.toml").write_text('models = ["tiny:gpt2"]\n')
        here.check("harness", *words)


@cases(0.04)
@given(data=st.data())
def test_any_options_of_a_run(stocked: Path, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(OPTIONS), max_size=5, unique=True))
    words = data.draw(arguments(chosen, WORDS))
    with room(stocked, "model") as here:
        here.check("pytest", "--model=tiny:gpt2", *words)


@cases(0.06)
@given(data=st.data())
def test_any_plan_of_a_sweep(stocked: Path, data: st.DataObject) -> None:
    with room(stocked, "model") as here:
        (here.work / "plan.toml").write_bytes(data.draw(tomls(PLAN)))
        here.check("harness", "sweep", "plan.toml", "--in-order")


@cases(0.04)
@given(data=st.data())
def test_any_expectations(stocked: Path, data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(["", "record:"]))
    with room(stocked) as here:
        (here.work / "expected" / "one.toml").write_bytes(data.draw(tomls(EXPECTED)))
        here.check("pytest", "--model=tiny:gpt2", f"--expectations={record}expected")
