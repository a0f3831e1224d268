"""Errors of the machine: never a verdict on the model."""

from __future__ import annotations

import errno
import os
import sys
from asyncio import CancelledError

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption

from assay.fixtures.prompts import prompts
from assay.harness.checking.examples import PASSED_OVER
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.laws import law
from assay.harness.checking.statistics import mean
from assay.harness.models import capabilities
from assay.harness.models.capabilities.registry import PROBES
from assay.harness.models.offer import Offer
from assay.harness.models.runs import describe_subject
from assay.harness.models.shortage import MEMORY, Limits, gpu_failure, kept_running, shortage
from assay.harness.results.encoding import encode
from assay.harness.results.errors import Missing
from assay.harness.results.expectations import Expected, judge
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import budget, changed, fresh, toy, verdict

SHORTAGES = {
    "memory of a card": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
    "memory of a processor": RuntimeError("DefaultCPUAllocator: not enough memory: you tried"),
    "memory of Python": MemoryError(),
    "memory of the system": OSError(errno.ENOMEM, "Cannot allocate memory"),
    "a full disk": OSError(errno.ENOSPC, "No space left on device"),
    "open files": OSError(errno.EMFILE, "Too many open files"),
    "an interrupted call": InterruptedError(),
    "an interrupted call by number": OSError(errno.EINTR, "Interrupted system call"),
    "a library's error": ValueError("I/O error: No space left on device (os error 28)"),
    "recursion": RecursionError("maximum recursion depth exceeded"),
    "an end of the process": SystemExit(0),
    "a GPU": RuntimeError("CUDA error: an illegal memory access was encountered\nFor debugging …"),
    "an assertion on a GPU": RuntimeError("CUDA error: device-side assert triggered"),
}


@pytest.fixture(autouse=True)
def working_gpu(monkeypatch):
    """Errors of a GPU are remembered for a process's life: let these be forgotten."""
    monkeypatch.setattr("assay.harness.models.shortage._gpu_failures", [])


def same_twice(subject, draw, check):
    """One pass over a prompt equals another; the control is twice as large."""
    ids = draw(prompts(subject, shortest=2), "prompt").ids
    expected = check.reference(lambda s: s.rows(ids))
    check.same(expected, subject.rows(ids))
    check.rejects(expected, lambda: subject.rows(ids).map(lambda t: 2 * t))


def declared(body=same_twice, **how):
    return law("X1", "says", source="here", control="twice as large", **how)(body)


def raising(error, beyond=0):
    """A model that raises ``error`` for prompts of more than ``beyond`` tokens in all."""

    def raise_it(state):
        if state.shape[0] * state.shape[1] > beyond:
            raise error
        return state

    return changed("gpt2", raise_it)


@pytest.mark.parametrize("error", SHORTAGES.values(), ids=[*SHORTAGES])
def test_what_the_machine_lacks_leaves_a_law_undecided(error):
    result = verdict(declared(), raising(error), budget(4))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason.startswith(shortage(error))
    assert result.counterexample is None


@pytest.mark.parametrize("error", SHORTAGES.values(), ids=[*SHORTAGES])
def test_what_the_machine_lacks_leaves_a_finding_undecided(error):
    def body(subject, draws, sample):
        subject.rows(subject.content(torch.arange(6).reshape(2, 3)))
        sample.add(effect=draws.normal(), control=draws.normal())

    bound = Bound(mean, above=0.0)
    test = finding("X1", "says", source="here", bound=bound, control="none")(body)
    result = verdict(test, raising(error), budget(4))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason == f"{shortage(error)} at 2 × 3 tokens"


def test_where_no_prompt_fits_the_size_of_the_last_one_tried_is_named():
    result = verdict(declared(), raising(SHORTAGES["memory of a processor"]), budget(4))
    assert result.reason.startswith("out of memory at ")
    assert result.reason.endswith("tokens")
    assert result.examples == 0


def test_smaller_prompts_are_tried_and_the_verdict_says_how_large_they_were():
    subject = raising(SHORTAGES["memory of a card"], beyond=12)
    result = verdict(declared(), subject, budget(8))
    assert result.verdict is Verdict.UPHELD
    assert result.examples > 0
    assert result.reason.startswith("compared up to ")
    assert "out of memory at " in result.reason
    rows, tokens = result.reason.split("up to ")[1].split(" tokens")[0].split(" × ")
    assert 0 < int(rows) * int(tokens) <= 12


def test_a_law_that_breaks_on_smaller_prompts_is_refuted_all_the_same():
    def leak(state):
        if state.shape[0] * state.shape[1] > 12:
            raise SHORTAGES["memory of a card"]
        return torch.dropout(state, 0.5, train=True)

    result = verdict(declared(), changed("gpt2", leak), budget(8))
    assert result.verdict is Verdict.REFUTED


def test_a_recursion_too_deep_on_some_prompts_leaves_a_law_undecided():
    result = verdict(declared(), raising(SHORTAGES["recursion"], beyond=12), budget(8))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason.startswith("recursion too deep")


@pytest.mark.parametrize("kind", ["recursion", "an end of the process", "a full disk"])
def test_what_happens_at_every_size_is_not_tried_without_end(kind):
    tried = []

    def body(subject, draw, check):
        tried.append(draw(prompts(subject), "prompt"))
        raise SHORTAGES[kind]

    result = verdict(declared(body), toy("gpt2"), budget(2))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert len(tried) <= 2 * PASSED_OVER


def test_a_law_without_a_prompt_ends_at_once_where_memory_runs_out():
    tried = []

    def body(draw, check):
        draw(st.integers(), "number")
        tried.append(1)
        raise MemoryError

    assert verdict(declared(body), toy("gpt2"), budget(50)).reason == MEMORY
    assert len(tried) == 1


def test_a_capability_that_could_not_be_looked_for_is_not_missing():
    def body(draw, check):
        draw(st.integers(), "number")
        try:
            raise MemoryError
        except MemoryError as error:
            raise Missing("the model does not take a mask") from error

    result = verdict(declared(body), toy("gpt2"), budget(4))
    assert (result.verdict, result.reason) == (Verdict.INCONCLUSIVE, MEMORY)


def test_a_probe_that_ran_out_of_memory_is_asked_again(monkeypatch):
    subject, answers = fresh("gpt2"), iter([MemoryError(), None])

    def probe(subject):
        if (answer := next(answers)) is not None:
            raise RuntimeError("out of memory") from answer

    monkeypatch.setitem(PROBES, "causal", probe)
    result = verdict(declared(needs=["causal"]), subject, budget(2))
    assert (result.verdict, result.reason) == (Verdict.INCONCLUSIVE, MEMORY)
    assert "causal" in capabilities.probe(subject)


WITHOUT_WORDS = "ended in ZeroDivisionError: no message"
PROBED = ("cache", "chunks-beside-cache", "inputs-embeds", "mask-4d", "padding", "position-ids")


@pytest.mark.parametrize("name", PROBED)
@pytest.mark.parametrize("kind", ["memory of a card", "a GPU", "an end of the process"])
def test_what_the_machine_lacks_in_a_probe_takes_no_capability_away(name, kind):
    subject = raising(SHORTAGES[kind])
    with pytest.raises((RuntimeError, SystemExit, Missing)) as raised:
        capabilities.probe(subject).why_missing(name)
    assert shortage(raised.value)
    result = verdict(declared(needs=[name]), subject, budget(2))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason.startswith(shortage(SHORTAGES[kind]))


@pytest.mark.parametrize("kind", SHORTAGES)
def test_a_description_says_what_could_not_be_found_out(kind):
    subject = raising(SHORTAGES[kind])
    subject.offer = Offer("causal:gpt2", "5.23", frozenset({"cache", "padding"}))
    description = describe_subject(subject)
    assert description.missing["cache"].startswith(f"not found out: {shortage(SHORTAGES[kind])}")
    assert description.recorded.lacks == {}


def test_after_a_gpu_has_failed_nothing_more_is_tried():
    tried = []

    def body(subject, draw, check):
        draw(prompts(subject), "prompt")
        tried.append(1)
        raise SHORTAGES["a GPU"]

    result = verdict(declared(body), toy("gpt2"), budget(50))
    assert len(tried) == 1
    assert result.reason.startswith("the GPU failed: CUDA error: an illegal memory access")
    assert result.reason.endswith("tokens")
    assert gpu_failure() == "the GPU failed: CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    "said", ["no kernel image is available for execution on the device", "invalid argument"]
)
def test_an_operation_that_a_gpu_refuses_is_no_failure_of_it(said):
    assert shortage(RuntimeError(f"CUDA error: {said}")) == ""
    assert gpu_failure() == ""


def finding_that(does):
    def body(subject, draws, sample):
        does(subject)

    bound = Bound(mean, above=0.0)
    return finding("X1", "says", source="here", bound=bound, control="none")(body)


def test_an_error_ends_a_finding_without_a_verdict_and_fails_the_run():
    def does(subject):
        raise ZeroDivisionError("division by zero")

    result = verdict(finding_that(does), toy("gpt2"), budget(4))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason == "ended in ZeroDivisionError: division by zero"
    assert "in does" in result.details["traceback"]
    assert judge(result, None).fails
    assert not judge(result, Expected(Verdict.INCONCLUSIVE, "known", "here")).fails


def test_an_error_in_place_of_an_interrupt_is_the_interrupt():
    """Hypothesis, interrupted where it sets an example up, fails in an assertion of its own."""

    def does(subject):
        try:
            raise KeyboardInterrupt
        finally:
            raise AssertionError

    def body(subject, draw, check):
        draw(prompts(subject), "prompt")
        does(subject)

    with pytest.raises(KeyboardInterrupt):
        verdict(declared(body), toy("gpt2"), budget(4))
    with pytest.raises(KeyboardInterrupt):
        verdict(finding_that(does), toy("gpt2"), budget(4))


@pytest.mark.parametrize("kind", ["law", "finding"])
def test_an_error_in_a_probe_that_no_model_refuses_by_is_no_lack(kind, monkeypatch):
    def probe(subject):
        raise ZeroDivisionError

    monkeypatch.setitem(PROBES, "causal", probe)
    test = declared(needs=["causal"])
    if kind == "finding":
        bound = Bound(mean, above=0.0)
        made = finding("X1", "says", source="here", bound=bound, control="none", needs=["causal"])
        test = made(lambda subject, draws, sample: None)
    result = verdict(test, fresh("gpt2"), budget(2))
    assert (result.verdict, result.reason) == (Verdict.INCONCLUSIVE, WITHOUT_WORDS)
    assert judge(result, None).fails


def test_errors_of_a_model_are_no_shortage():
    for error in (RuntimeError("shape mismatch"), OSError(errno.ENOENT, "no file"), ValueError()):
        assert shortage(error) == ""
    cause = MemoryError()
    wrapped = ValueError("no")
    wrapped.__cause__ = cause
    assert shortage(wrapped) == MEMORY


def test_limits_halve_what_did_not_fit_and_end_at_one_token():
    limits = Limits()
    assert limits.admits((4, 256))
    limits.note(MEMORY, (4, 256))
    assert limits.admits((2, 256))
    assert not limits.admits((3, 256))
    limits.note(MEMORY, (1, 1))
    assert limits.exhausted


@pytest.mark.parametrize(
    "error",
    [
        CancelledError(),
        pytest.skip.Exception("not here"),
        GeneratorExit(),
        UnsatisfiedAssumption(),
    ],
)
def test_a_model_that_raises_what_is_no_exception_breaks_a_law(error):
    result = verdict(declared(), raising(error), budget(4))
    assert result.verdict is Verdict.REFUTED
    assert "RuntimeError" in result.reason


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
def test_logits_that_are_no_floats_break_a_law(dtype):
    subject = fresh("gpt2")
    subject.model.lm_head.register_forward_hook(lambda module, arguments, logits: logits.to(dtype))
    result = verdict(declared(), subject, budget(4))
    assert result.verdict is Verdict.REFUTED
    assert f"the model's logits are {dtype} and not floats" in result.reason


def test_a_model_that_leaves_by_the_operating_system_raises_an_exit():
    leave = os._exit
    with pytest.raises(SystemExit), kept_running():
        os._exit(0)
    assert os._exit is leave


def test_a_process_of_the_model_s_own_may_leave():
    with kept_running():
        child = os.fork()
        if not child:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_what_a_model_keeps_of_it_for_the_end_of_the_process_does_nothing_then():
    with kept_running():
        kept = os._exit
    kept(0)
    with pytest.raises(SystemExit), kept_running():
        kept(0)


def test_what_is_printed_to_stays_open(capsys):
    with kept_running():
        sys.stdout.close()
        sys.stderr.close()
    print("still open")
    assert capsys.readouterr().out == "still open\n"
    assert "close" not in vars(sys.stdout)


def test_an_error_of_any_length_is_kept_in_part():
    result = verdict(declared(), raising(RuntimeError("x" * 5_000_000)), budget(4))
    assert result.verdict is Verdict.REFUTED
    assert len(encode(result)) < 50_000
