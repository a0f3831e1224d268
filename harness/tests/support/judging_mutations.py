"""Would a test notice a wrong line in the code that judges?  Tries ``judging_mutations.toml``.

``python harness/tests/support/judging_mutations.py [number …]``, from a clone's root, makes one
change at a time in a copy of the clone, and runs the tests, likeliest first, up to the first that
fails.  ``build/mutations-….jsonl`` keeps the results: a second call resumes, unless a source or a
test has changed since.  Options go to pytest, as in ``-mnightly``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this file's folder: its neighbours are no top-level modules
os.environ |= {"CI": "1", "OMP_NUM_THREADS": "1"}  # CI: Hypothesis draws the same every time

# Tests run in processes forked from this one, which imports what takes long, and nothing of ours.
import accelerate  # noqa: F401
import pytest
import torch._dynamo  # noqa: F401
from transformers import AutoModelForCausalLM, GenerationMixin  # noqa: F401

IGNORED = shutil.ignore_patterns(".git", ".tox", "__pycache__", "build", "mutants", "*.egg-info")
OPTIONS = ["-xq", "-p", "no:cacheprovider", "-m", "not ray and not torchao and not nightly"]
OPTIONS += [each for each in sys.argv[1:] if each.startswith("-")]


def failure(clone: Path, tests: list[str]) -> str | None:
    """The first of the tests that fails, in a process of its own; None: all pass."""
    file = clone / "first_failure"
    file.unlink(missing_ok=True)

    class Notes:
        @staticmethod
        def pytest_runtest_logreport(report: Any) -> None:
            if report.failed and not file.exists():
                file.write_text(report.nodeid)

        pytest_collectreport = pytest_runtest_logreport

    child = os.fork()
    if not child:
        os.chdir(clone)
        os.environ["PYTHONPATH"] = str(clone / "harness" / "package")  # of runs that tests begin
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        signal.alarm(3600)  # seconds: a mutation that hangs counts as noticed
        os._exit(pytest.main([*OPTIONS, *tests], plugins=[Notes]))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return None
    return file.read_text() if file.exists() else f"pytest ends with {code}"


def stages(clone: Path, stem: str) -> list[list[str]]:
    """Files of tests, likeliest first: a module's own; those near it; of claims; its importers."""
    imports = re.compile(rf"\b{stem} import |import .*\b{stem}\b|from assay.claims")
    groups: list[list[str]] = [[], [], [], []]
    paths = sorted((clone / "harness" / "tests").rglob("test_*.py"))
    for path in sorted(paths, key=lambda path: not imports.search(path.read_text())):
        near = path.parent.name in ("checking", "comparison", "results")
        far = path.parent.name == "claims" or path.stem == "test_kills"
        stage = 0 if path.stem.startswith(f"test_{stem}") else 1 if near else 2 if far else 3
        if stage < 3 or imports.search(path.read_text()):
            groups[stage].append(str(path))
    return [files for files in groups if files]


def attempt(clone: Path, mutation: dict[str, str]) -> dict[str, Any]:
    """Whether a test notices a mutation, which one, and after how many seconds."""
    began, line = time.time(), re.compile(rf"(?m)^( *){re.escape(mutation['before'])}$")
    paths = [each for each in clone.rglob(mutation["file"]) if "harness/tests" not in str(each)]
    paths = [each for each in paths for _ in line.findall(each.read_text())]
    if len(paths) != 1:
        return {"noticed": None, "by": f"the line occurs {len(paths)} times"}
    path, text = paths[0], paths[0].read_text()
    path.write_text(line.sub(lambda match: match[1] + mutation["after"], text))
    tests = stages(clone, path.stem)
    first = next(filter(None, (failure(clone, each) for each in tests)), None)
    path.write_text(text)
    if first and (fails := failure(clone, [first] if "::" in first else tests[0])):
        raise SystemExit(f"fails without a mutation: --deselect={fails}")
    return {"noticed": bool(first), "by": first, "seconds": round(time.time() - began)}


def key(mutation: dict[str, str]) -> tuple[str, ...]:
    """What tells a mutation from all others."""
    return mutation["file"], mutation["before"], mutation["after"]


def main(numbers: list[str]) -> None:
    """Try the mutations of these numbers, or all, and print what noticed each."""
    sources = sorted(path for path in Path().rglob("*.py") if path.parts[0] != "build")
    digest = hashlib.blake2b(repr(OPTIONS).encode(), digest_size=4)
    digest.update(b"".join(path.read_bytes() for path in sources))
    kept = Path("build", f"mutations-{digest.hexdigest()}.jsonl")
    kept.parent.mkdir(exist_ok=True)
    lines = kept.read_text().splitlines() if kept.exists() else []
    results = {key(one): one for one in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as folder:
        clone = shutil.copytree(".", Path(folder, "clone"), ignore=IGNORED)
        text = Path(__file__).with_suffix(".toml").read_text()
        for number, one in enumerate(tomllib.loads(text)["mutation"], 1):
            if numbers and str(number) not in numbers:
                continue
            if key(one) not in results:
                results[key(one)] = one | attempt(clone, one)
                kept.write_text("".join(f"{json.dumps(each)}\n" for each in results.values()))
            one = results[key(one)]
            word = {True: "noticed", False: "MISSED", None: "GONE"}[one["noticed"]]
            print(f"{number:2} {word} {one['file']}: {one['after']}  [{one['by']}]", flush=True)
    print(f"{sum(bool(each['noticed']) for each in results.values())} of {len(results)} noticed")


if __name__ == "__main__":
    main([each for each in sys.argv[1:] if not each.startswith("-")])
