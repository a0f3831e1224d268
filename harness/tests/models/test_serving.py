"""Requests served together: what a server gets, and how one that fails or hangs ends."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from assay.harness.models.capabilities import serving
from assay.harness.models.subject import compat
from assay.harness.models.subject.clock import Braked
from assay.harness.operations import generation
from assay.harness.results.errors import Missing
from assay.harness.tests.support.toys import fresh, prompt, toy

pytestmark = pytest.mark.skipif(
    serving._kind_of_settings() is None, reason="this version of transformers has no server"
)


def ids(subject, n: int) -> list[int]:
    return prompt(subject, n, batch=1, seed=n)[0].tolist()


@pytest.mark.parametrize("late", [0, 2])
def test_each_request_is_answered_in_the_order_of_the_requests(late):
    subject = toy("llama")
    requests = [ids(subject, n) for n in (3, 9, 17, 5)]
    answers = serving.serve(subject, requests, 4, serving.Service(slots=2), late)
    for request, answer in zip(requests, answers, strict=True):
        alone = generation.generate_ids(subject, torch.tensor([request]), 4)
        assert answer.tokens == alone[0].tolist()
        assert len(answer.logprobs) == 4


def test_several_requests_run_in_one_batch_and_never_more_than_the_slots():
    subject, batches = fresh("gpt2"), []

    def note(_, args, kwargs):
        batches.append(len(kwargs["cu_seq_lens_q"]) - 1)

    hook = subject.model.register_forward_pre_hook(note, with_kwargs=True)
    serving.serve(subject, [ids(subject, 4)] * 5, 3, serving.Service(slots=2))
    hook.remove()
    assert max(batches) == 2


def test_a_shared_prefix_is_read_once():
    subject, read = fresh("llama"), []
    hook = subject.model.register_forward_pre_hook(
        lambda _, args, kwargs: read.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    request = ids(subject, 16)
    serving.serve(subject, [request] * 4, 2, serving.Service(slots=1))
    hook.remove()
    assert sum(read) <= 2 * len(request)  # of four such requests


@pytest.mark.nightly
@pytest.mark.parametrize("spec", ["gemma2", "got_ocr2", "vibevoice_asr"])
def test_the_model_attends_as_before_once_it_has_served(spec):
    """The speech encoders of VibeVoice have eager attention only, its text model has another."""
    subject = fresh(spec)
    usual = compat.settings(subject.model, compat.ATTENTION)
    serving.serve(subject, [ids(subject, 4)], 2)
    assert compat.settings(subject.model, compat.ATTENTION) == usual


def test_a_model_that_fails_ends_its_server_with_an_error():
    subject = fresh("llama")

    def fail(*_):
        raise RuntimeError("no number")

    subject.model.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="no number"):
        serving.serve(subject, [ids(subject, 4)], 2)


def test_a_server_that_hangs_ends_without_a_verdict_and_without_the_process(monkeypatch):
    subject, goes_on = fresh("llama"), threading.Event()
    monkeypatch.setattr(serving, "LIMIT", 0.5)
    monkeypatch.setattr(serving, "STOPPING", 0.2)
    subject.model.register_forward_pre_hook(lambda *_: goes_on.wait(20) and None)
    started = {thread.ident for thread in threading.enumerate()}
    with pytest.raises(Braked, match=r"the server of requests gave no answer in 0\.5 s"):
        serving.serve(subject, [ids(subject, 4)], 2)
    new = [thread for thread in threading.enumerate() if thread.ident not in started]
    assert new
    assert all(thread.daemon for thread in new)
    goes_on.set()
    for thread in new:
        thread.join(20)


def test_a_server_that_makes_no_progress_is_an_error(monkeypatch):
    subject = toy("llama")
    manager = pytest.importorskip(
        "transformers.generation.continuous_batching"
    ).ContinuousBatchingManager

    done = threading.Event()

    def spin(self, *_, **__):
        self.current_batch += 1
        time.sleep(1e-5)
        return not done.is_set()

    monkeypatch.setattr(manager, "_generation_loop_body", spin)
    monkeypatch.setattr(serving, "STOPPING", 0.2)
    with pytest.raises(RuntimeError, match="batches without an answer"):
        serving.serve(subject, [ids(subject, 4)], 2)
    done.set()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("t5", "the library serves decoders only"),
        ("mamba", "a layer keeps something other than keys and values"),
        ("bert", "the model's class does not generate"),
    ],
)
def test_what_cannot_be_paged_is_known_by_its_class(spec, why):
    assert why in serving.why_not(toy(spec))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            "bloom",
            "2 layers do not read the server's paged cache|has no attribute 'get_seq_length'",
        ),
        ("deepseek_v3", "the library cannot serve the model: "),
    ],
)
def test_what_the_library_cannot_page_is_found_before_the_law_starts(spec, why):
    with pytest.raises(Missing, match=why):
        serving.require(toy(spec))
