"""Errors of the machine: never a verdict on the model."""

from __future__ import annotations

import errno

import pytest
import torch
from hypothesis import strategies as st

from assay.fixtures.prompts import prompts
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.laws import law
from assay.harness.checking.statistics import mean
from assay.harness.models import capabilities
from assay.harness.models.capabilities.registry import PROBES
from assay.harness.models.loading.runs import describe_subject
from assay.harness.models.machine.shortage import MEMORY, gpu_failure, shortage
from assay.harness.models.subject.offer import Offer
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
    "an interrupted call": OSError(errno.EINTR, "Interrupted system call"),
    "a library's error": ValueError("I/O error: No space left on device (os error 28)"),
    "recursion": RecursionError("maximum recursion depth exceeded"),
    "a GPU": RuntimeError("CUDA error: an illegal memory access was encountered\nFor debugging …"),
    "an assertion on a GPU": RuntimeError("CUDA error: device-side assert triggered"),
}


@pytest.fixture(autouse=True)
def working_gpu(monkeypatch):
    """Errors of a GPU are remembered for a process's life: let these be forgotten."""
    monkeypatch.setattr("assay.harness.models.machine.shortage._gpu_failures", [])


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


def test_a_law_that_breaks_on_smaller_prompts_is_refuted_all_the_same():
    def leak(state):
        if state.shape[0] * state.shape[1] > 12:
            raise SHORTAGES["memory of a card"]
        return torch.dropout(state, 0.5, train=True)

    result = verdict(declared(), changed("gpt2", leak), budget(8))
    assert result.verdict is Verdict.REFUTED


def test_a_law_without_a_prompt_ends_at_once_where_memory_runs_out():
    tried = []

    def body(draw, check):
        draw(st.integers(), "number")
        tried.append(1)
        raise MemoryError

    assert verdict(declared(body), toy("gpt2"), budget(50)).reason == MEMORY
    assert len(tried) == 1


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
@pytest.mark.parametrize("kind", ["memory of a card", "a GPU"])
def test_what_the_machine_lacks_in_a_probe_takes_no_capability_away(name, kind):
    subject = raising(SHORTAGES[kind])
    with pytest.raises((RuntimeError, Missing)) as raised:
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


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
def test_logits_that_are_no_floats_break_a_law(dtype):
    subject = fresh("gpt2")
    subject.model.lm_head.register_forward_hook(lambda module, arguments, logits: logits.to(dtype))
    result = verdict(declared(), subject, budget(4))
    assert result.verdict is Verdict.REFUTED
    assert f"the model's logits are {dtype} and not floats" in result.reason


def test_an_error_of_any_length_is_kept_in_part():
    result = verdict(declared(), raising(RuntimeError("x" * 5_000_000)), budget(4))
    assert result.verdict is Verdict.REFUTED
    assert len(encode(result)) < 50_000
