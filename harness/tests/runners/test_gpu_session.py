"""Steps of `assay gpu` run within their time; what they found is kept, whatever ends them.

The steps are small programs in place of pytest.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from assay.harness.cli import card, compare, gpu
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.verdicts import Result, Verdict
from assay.harness.runners.gpu import child, look, session, steps
from assay.harness.runners.gpu.results import CUT, DONE, FAILED, SKIPPED, ResultFile
from assay.harness.runners.gpu.session import Files, Session, Vanished
from assay.harness.runners.gpu.steps import BENCHMARKS, CLAIMS, Step
from assay.harness.tests.support.evidences import law, run_of

ABOUT = {"device": "cuda:0", "card": "a GPU", "driver": "1", "threads": 1, "torch": "2"}

ENTRY = {
    "name": "test_x",
    "fullname": "benchmarks/test_x.py::test_x",
    "stats": {"data": [1.0, 1.1, 1.2]},
    "extra_info": {"laps": [1.0, 1.1, 1.2], "card": "a GPU"},
}

KEEPS = f"open(files['jsonl'], 'a').write({json.dumps(json.dumps(ENTRY))} + '\\n')"
"""A program that keeps a benchmark."""


def step(key: str, kind: str = BENCHMARKS, limit: float = 30.0, **more: Any) -> Step:
    return Step(key=key, kind=kind, device="cuda:0", arguments=("--dtype=x",), limit=limit, **more)


def running(tmp_path: Path, programs: dict[str, str], **more: Any) -> Session:
    """A session whose steps are these programs, by key; ``files`` are their paths by suffix."""

    def command(step: Step, files: Files, seconds: float) -> list[str]:
        names = {suffix: str(files(suffix)) for suffix in ("jsonl", "sqlite", "peaks")}
        program = f"files = {names!r}\n" + textwrap.dedent(programs[step.key])
        return [sys.executable, "-c", program]

    usual: dict[str, Any] = {"minutes": 25.0, "at_once": 1, "tell": lambda line: None}
    usual |= {"examine": lambda device: ABOUT, "command": command}
    results = more.pop("results", None) or ResultFile(tmp_path / "gpu.json", ABOUT)
    return Session(results, tmp_path / "steps", **(usual | more))


def content(tmp_path: Path) -> Any:
    return json.loads((tmp_path / "gpu.json").read_text())


def states(tmp_path: Path) -> dict[str, str]:
    return {key: each["state"] for key, each in content(tmp_path)["assay_gpu"]["steps"].items()}


def test_a_step_that_is_over_its_time_is_stopped_and_what_it_found_is_kept(tmp_path: Path) -> None:
    programs = {"inversion/a": f"{KEEPS}\nimport time\ntime.sleep(60)", "rest/b": KEEPS}
    run = running(tmp_path, programs)
    run.run([step("inversion/a", limit=2.0), step("rest/b")], resume=False)
    assert states(tmp_path) == {"inversion/a": CUT, "rest/b": DONE}
    assert [each["name"] for each in content(tmp_path)["benchmarks"]] == ["test_x"]


def test_the_file_is_written_while_a_step_runs(tmp_path: Path) -> None:
    """A run that is killed loses nothing that a step had kept."""
    waits = f"""
    {KEEPS}
    import json, time
    for _ in range(300):
        if json.load(open({str(tmp_path / "gpu.json")!r}))["benchmarks"]:
            break
        time.sleep(0.1)
    else:
        raise SystemExit(9)
    """
    run = running(tmp_path, {"rest/a": waits})
    run.results.write()
    run.run([step("rest/a")], resume=False)
    assert states(tmp_path) == {"rest/a": DONE}


def test_steps_of_a_stage_whose_time_is_over_are_not_begun(tmp_path: Path) -> None:
    programs = {key: "import time\ntime.sleep(60)" for key in ("rest/a", "rest/b")}
    run = running(tmp_path, programs, minutes=0.05)
    run.run([step("rest/a"), step("rest/b")], resume=False)
    assert states(tmp_path) == {"rest/a": CUT, "rest/b": CUT}
    assert "before it began" in content(tmp_path)["assay_gpu"]["steps"]["rest/b"]["why"]


def test_a_resumed_run_repeats_only_what_was_not_done(tmp_path: Path) -> None:
    marks = "open(files['peaks'] + '.ran', 'a').write('x')"
    programs = {"rest/a": marks, "rest/b": f"{marks}\nraise SystemExit(2)"}
    planned = [step("rest/a"), step("rest/b")]
    running(tmp_path, programs).run(planned, resume=False)
    assert states(tmp_path) == {"rest/a": DONE, "rest/b": FAILED}
    programs["rest/b"] = marks
    again = ResultFile.resumed(tmp_path / "gpu.json", ABOUT)
    running(tmp_path, programs, results=again).run(planned, resume=True)
    assert states(tmp_path) == {"rest/a": DONE, "rest/b": DONE}
    ran = [(tmp_path / "steps" / f"rest-{name}.peaks.ran").read_text() for name in "ab"]
    assert ran == ["x", "xx"]


@pytest.mark.parametrize(
    ("change", "why"),
    [({"device": "cuda:1"}, "device was cuda:0"), ({"torch": "3"}, "torch was 2 and is 3")],
)
def test_a_run_elsewhere_is_not_resumed(tmp_path: Path, change: dict[str, str], why: str) -> None:
    ResultFile(tmp_path / "gpu.json", ABOUT).write()
    with pytest.raises(BadInput, match=why):
        ResultFile.resumed(tmp_path / "gpu.json", ABOUT | change)


@pytest.mark.parametrize("text", ["", "{}", '{"benchmarks": []}', '{"assay_gpu": 1}', "[]"])
def test_another_file_is_not_resumed(tmp_path: Path, text: str) -> None:
    (tmp_path / "gpu.json").write_text(text)
    with pytest.raises(BadInput, match="is not a result of `assay gpu`"):
        ResultFile.resumed(tmp_path / "gpu.json", ABOUT)


def test_a_gpu_that_vanishes_ends_the_run_in_one_line_and_keeps_the_results(
    tmp_path: Path,
) -> None:
    def gone(device: str) -> Any:
        raise BadInput(f"{device}: has fallen off the bus")

    programs = {"smoke/a": KEEPS, "rest/b": "raise SystemExit(1 << 7)", "rest/c": KEEPS}
    run = running(tmp_path, programs, examine=gone)
    with pytest.raises(Vanished, match="fallen off the bus"):
        run.run([step("smoke/a"), step("rest/b"), step("rest/c")], resume=False)
    assert states(tmp_path) == {"smoke/a": DONE, "rest/b": FAILED}
    assert len(content(tmp_path)["benchmarks"]) == 1


def test_a_step_that_fails_on_a_gpu_that_is_still_there_ends_itself_alone(tmp_path: Path) -> None:
    fails = "print('ERROR: no room')\nraise SystemExit(7)"
    run = running(tmp_path, {"rest/a": fails, "rest/b": KEEPS})
    run.run([step("rest/a"), step("rest/b")], resume=False)
    assert states(tmp_path) == {"rest/a": FAILED, "rest/b": DONE}
    assert "no room" in content(tmp_path)["assay_gpu"]["steps"]["rest/a"]["why"]


def test_claims_are_resumed_in_a_new_process_after_the_gpu_failed(tmp_path: Path) -> None:
    """A failed assertion on the GPU ends the process; the claim under which it failed is kept."""
    fails = """
    import pathlib
    counts = pathlib.Path(files["peaks"]).with_suffix(".count")
    before = int(counts.read_text()) if counts.exists() else 0
    counts.write_text(str(before + 1))
    if before < 2:
        print("ERROR: the GPU failed: device-side assert triggered; --resume continues")
        print("ERROR: without a verdict: test_a, test_b")
        raise SystemExit(2)
    """
    told: list[str] = []
    run = running(tmp_path, {"smoke/a": fails}, tell=told.append)
    run.run([step("smoke/a", CLAIMS)], resume=False)
    assert states(tmp_path) == {"smoke/a": DONE}
    assert sum("resumed in a new process" in line for line in told) == 2


def test_a_gpu_that_fails_under_every_claim_ends_the_step(tmp_path: Path) -> None:
    fails = "print('ERROR: the GPU failed: misaligned address')\nraise SystemExit(2)"
    told: list[str] = []
    run = running(tmp_path, {"smoke/a": fails}, tell=told.append)
    run.run([step("smoke/a", CLAIMS)], resume=False)
    assert states(tmp_path) == {"smoke/a": FAILED}
    assert sum("resumed in a new process" in line for line in told) == session.RESTARTS


def test_what_a_machine_lacks_is_skipped_with_the_reason(tmp_path: Path) -> None:
    lacks = f"print('ERROR: attention kernel cudnn: not here')\nraise SystemExit({child.UNFIT})"
    run = running(tmp_path, {"kernels/a": lacks})
    run.run([step("kernels/a", CLAIMS)], resume=False)
    assert states(tmp_path) == {"kernels/a": SKIPPED}
    assert "cudnn: not here" in content(tmp_path)["assay_gpu"]["steps"]["kernels/a"]["why"]


def test_steps_that_are_not_timed_run_together(tmp_path: Path) -> None:
    """Each waits for the other's mark."""
    meets = """
    import pathlib, time
    folder = pathlib.Path(files["peaks"]).parent
    (folder / "NAME.here").touch()
    for _ in range(300):
        if len(list(folder.glob("*.here"))) == 2:
            break
        time.sleep(0.1)
    else:
        raise SystemExit(9)
    """
    programs = {f"smoke/{name}": meets.replace("NAME", name) for name in "ab"}
    run = running(tmp_path, programs, at_once=2)
    run.run([step("smoke/a", beside=True), step("smoke/b", beside=True)], resume=False)
    assert states(tmp_path) == {"smoke/a": DONE, "smoke/b": DONE}


def evidence(path: Path, device: str, results: Iterable[Result]) -> None:
    """An evidence file with one finished run."""
    run = run_of("5.23.0", "tiny:llama", device=device)
    with Evidence.open(path) as store:
        store.begin(run)
        for result in results:
            store.record(run.id, result, "ab" * 32)
        store.finish(run.id, 0)


def compared(tmp_path: Path, there: Verdict) -> Session:
    """A session of one pair of steps: a law upheld by the processor, and its verdict ``there``."""
    run = running(tmp_path, {"smoke/a": "", "smoke/a here": ""}, at_once=2)
    run.folder.mkdir()
    evidence(run.folder / "smoke-a-here.sqlite", "cpu", [law("tiny:llama")])
    evidence(run.folder / "smoke-a.sqlite", "cuda:0", [law("tiny:llama", verdict=there)])
    here = Step(key="smoke/a here", kind=CLAIMS, device="cpu", arguments=(), limit=30.0)
    run.run([here, step("smoke/a", CLAIMS, versus="smoke/a here")], resume=False)
    return run


@pytest.mark.parametrize(
    ("there", "worse", "other"),
    [(Verdict.UPHELD, 0, 0), (Verdict.REFUTED, 1, 0), (Verdict.INCONCLUSIVE, 0, 1)],
)
def test_verdicts_are_compared_with_the_processor_s(
    tmp_path: Path, there: Verdict, worse: int, other: int
) -> None:
    run = compared(tmp_path, there)
    (entry,) = (e for e in content(tmp_path)["benchmarks"] if e["name"] == "smoke/a")
    about = entry["extra_info"]
    assert about["verdicts worse than the processor's"]["reached"] == worse
    assert about["other verdicts unlike the processor's"]["reached"] == other
    assert len(run.unlike) == worse
    assert about["dtype"] == "x"
    assert about["card"] == "a GPU"


def test_the_result_is_read_by_card_and_by_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A law that is refuted in the second run alone is a regression."""
    files = []
    for name, there in (("before", Verdict.UPHELD), ("after", Verdict.REFUTED)):
        (tmp_path / name).mkdir()
        compared(tmp_path / name, there)
        files.append(str(tmp_path / name / "gpu.json"))
    assert card.main(files[:1]) == 0
    assert "| smoke/a | verdicts worse than the processor's | 0 |" in capsys.readouterr().out
    assert compare.main([files[0], files[0]]) == 0
    capsys.readouterr()
    assert compare.main(files) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "changed verdict: smoke/a: C2 cached decoding equals recomputation" in output
    assert "upheld → refuted regression" in output
    assert card.main(files) == 0
    assert "| a GPU | a GPU |" in capsys.readouterr().out


# The plan.


@pytest.mark.parametrize("rehearse", [False, True])
def test_the_stages_come_in_order_and_end_within_25_minutes(rehearse: bool) -> None:
    planned = steps.plan("cuda:1", rehearse=rehearse)
    laws = [each for each in planned if each.stage == "laws"]
    assert steps.plan("cuda:1", rehearse=rehearse, stages=["laws"]) == laws
    order = list(dict.fromkeys(each.stage for each in planned))
    assert order == ["smoke", "inversion", "laws", "kernels", "rest"] == list(steps.LIMITS)
    assert sum(steps.LIMITS.values()) <= 60 * steps.MINUTES
    there = [each for each in planned if each.device == "cuda:1"]
    assert {each.versus for each in planned if each.versus} == {
        each.key for each in planned if each.device == "cpu"
    }
    assert len(there) == len(planned) - 3
    assert len({each.key for each in planned}) == len(planned)
    timed = [each for each in planned if each.kind == BENCHMARKS]
    assert not any(each.beside for each in timed)
    for each in timed:
        assert (session.runner.ROOT / each.arguments[0]).is_file()


def test_fewer_minutes_shrink_every_limit() -> None:
    whole, half = (steps.plan("cuda", minutes) for minutes in (25, 12.5))
    assert [a.limit for a in half] == [b.limit / 2 for b in whole]


# Devices that cannot be used, or not alone.


def test_a_full_gpu_is_refused_with_who_fills_it() -> None:
    facts: dict[str, Any] = {"device": "cuda:0", "free": 8e8, "total": 80e9, "others": []}
    with pytest.raises(BadInput, match=r"cuda:0: is full, 0\.8 of 80\.0 GB are free; end what"):
        look.refuse_full(facts)
    with pytest.raises(BadInput, match=r"1 other process: process 123, 70\.0 GB; end"):
        look.refuse_full(facts | {"others": [[123, 70 * 10**9]]})
    look.refuse_full(facts | {"free": 70e9})
    look.refuse_full({"device": "cpu"})


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"others": [[5, 10**9], [6, 0]]}, "cuda:0 is shared (2 other processes: process 5, 1.0"),
        ({"sliced": True, "card": "H100 MIG 1g.10gb"}, "is a MIG slice (H100 MIG 1g.10gb)"),
        ({"blocking": True}, "CUDA_LAUNCH_BLOCKING is set"),
        ({}, ""),
    ],
)
def test_a_gpu_that_is_not_its_own_is_doubted(facts: dict[str, Any], said: str) -> None:
    lines = look.doubts({"device": "cuda:0", **facts})
    assert len(lines) == bool(said)
    assert all(said in line and "\n" not in line for line in lines)


Answer = Callable[..., subprocess.CompletedProcess[str]]


def answering(code: int, output: str = "", error: str = "") -> Answer:
    return lambda *_, **__: subprocess.CompletedProcess([], code, output, error)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (answering(3, "ERROR: 'cuda:7': is not there, the last"), "'cuda:7': is not there"),
        (answering(-11, "", "Traceback\nRuntimeError: fell off"), "cannot be used (RuntimeErr"),
        (answering(1), "cannot be used (no output)"),
    ],
)
def test_a_device_that_cannot_be_looked_at_is_one_line(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, said: str
) -> None:
    monkeypatch.setattr(session.subprocess, "run", answer)
    with pytest.raises(BadInput) as caught:
        session.examine("cuda:7")
    assert said in str(caught.value)


def test_a_device_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(*_: Any, **__: Any) -> Any:
        raise subprocess.TimeoutExpired("x", 1)

    monkeypatch.setattr(session.subprocess, "run", hangs)
    with pytest.raises(BadInput, match="cuda: does not answer within"):
        session.examine("cuda")


def test_the_processor_is_looked_at_in_a_process_of_its_own() -> None:
    facts = session.examine("cpu")
    assert facts["device"] == "cpu"
    assert facts["card"] is None
    assert facts["torch"]


# The command.


def test_the_command_prints_one_line_for_a_gpu_that_vanishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def vanishes(self: Session, planned: Any, resume: bool) -> None:
        self.results.settle("smoke/float32", DONE, "", 1.0)
        raise Vanished("cuda:0: cannot be used")

    monkeypatch.setattr(gpu, "examine", lambda device: ABOUT)
    monkeypatch.setattr(Session, "run", vanishes)
    out = tmp_path / "gpu.json"
    assert gpu.main(["--out", str(out)]) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: cuda:0: cannot be used; 1 steps are in")
    assert f"--resume --out={out}" in error
    assert "\n" not in error
    assert states(tmp_path) == {"smoke/float32": DONE}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--minutes=26"], "at most 25"),
        (["--resume"], "there is no"),
        (["--out=there.json"], "exists; continue it with --resume"),
    ],
)
def test_other_input_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.json").write_text("{}")
    with pytest.raises(BadInput, match=why):
        gpu.main(arguments)
