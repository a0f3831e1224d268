"""Two processes over which a model is spread: what they answer, and how they fail."""

from __future__ import annotations

import gc
import os
import sys
import time

import pytest
import torch
from transformers import LlamaForCausalLM

from assay.fixtures import families
from assay.harness.models.subject import Subject
from assay.harness.operations import parallel, training
from assay.harness.operations.parallel import Processes, ProcessesFailed, ProcessesLost
from assay.harness.results.errors import Missing
from assay.harness.tests.support.toys import fresh, prompt, toy


def dies(rank):
    """For a process: end without an answer."""
    print("there is no more to say", file=sys.stderr, flush=True)
    os._exit(3)


def hangs(rank):
    """For a process: never answer."""
    time.sleep(3600)


def breaks(rank):
    """For a process: raise an error in the second one, for which the first one waits."""
    if rank.number:
        raise ValueError("the second one breaks")
    torch.distributed.barrier()


def whoever(rank):
    """For a process: its number, and how many there are."""
    return rank.number, torch.distributed.get_world_size()


def lacks(rank):
    """For a process: raise what a law takes as a missing capability."""
    raise Missing("no such thing")


@pytest.fixture
def processes():
    started = Processes()
    yield started
    started.end()


def test_a_process_that_dies_is_one_error_with_its_last_words(processes):
    assert processes(whoever) == [(0, 2), (1, 2)]
    with pytest.raises(ProcessesLost, match=r"ended \(exit code 3\).*no more to say"):
        processes(dies)
    assert not processes.alive


@pytest.mark.nightly
def test_a_process_that_hangs_is_one_error(processes, monkeypatch):
    processes(whoever)
    monkeypatch.setattr(parallel, "PATIENCE", 1.0)
    with pytest.raises(ProcessesLost, match="no answer in 1 seconds"):
        processes(hangs)
    assert not processes.alive


@pytest.mark.nightly
def test_the_first_error_is_reported_and_not_who_waits_for_it(processes, monkeypatch):
    monkeypatch.setattr(parallel, "FAREWELL", 1.0)
    with pytest.raises(ProcessesFailed, match="process 1 of 2 raised ValueError: the second one"):
        processes(breaks)


@pytest.mark.nightly
def test_a_missing_capability_is_passed_on(processes):
    with pytest.raises(Missing, match="no such thing"):
        processes(lacks)
    assert processes(whoever) == [(0, 2), (1, 2)]


def test_weights_are_divided_and_rows_are_whole():
    subject = toy("llama")
    ids = prompt(subject, 5)
    one, other = parallel.rows(subject, "tensor", ids)
    processes = parallel._PROCESSES[subject]
    assert any("q_proj" in name for name in processes.loaded["tensor"])
    alone = subject.rows(ids)
    for rows in (one, other):
        assert rows.tensors.keys() == alone.tensors.keys()
        torch.testing.assert_close(rows["logits"], alone["logits"])


@pytest.mark.nightly
def test_a_divided_embedding_is_found():
    subject = toy("t5gemma2")
    ids = prompt(subject, 5)
    rows, alone = parallel.rows(subject, "tensor", ids)[0], subject.rows(ids)
    torch.testing.assert_close(rows["logits"], alone["logits"])


@pytest.mark.nightly
@pytest.mark.parametrize("spec", ["got_ocr2", "vibevoice_asr"])
def test_parts_that_refuse_the_attention_of_the_text_keep_theirs(spec):
    subject = toy(spec)
    ids = prompt(subject, 5)
    rows, alone = parallel.rows(subject, "tensor", ids)[0], subject.rows(ids)
    torch.testing.assert_close(rows["logits"], alone["logits"])


@pytest.mark.nightly
def test_a_shard_is_zero_for_one_pass_only():
    subject = toy("llama")
    ids = prompt(subject, 5)
    before, zeroed, after = (
        parallel.rows(subject, "tensor", ids, zeroed=z)[0]["logits"] for z in (False, True, False)
    )
    assert torch.equal(before, after)
    assert not torch.allclose(before, zeroed, atol=1e-3)


def test_gradients_are_gathered():
    subject = toy("llama")
    samples, names = [training.sample(subject, prompt(subject, 5))], training.names(subject)
    one, other = parallel.gradients(subject, "tensor", samples, names)
    alone = training.gradients(subject, samples, names)
    assert one.keys() == other.keys() == alone.keys()
    assert training.Exact(alone).apart(one).error < 1e-3


@pytest.mark.nightly
def test_processes_end_with_the_subject_and_for_another():
    subject = fresh("llama")
    ids = prompt(subject, 3)
    parallel.rows(subject, "tensor", ids)
    first = parallel._PROCESSES[subject]
    assert first.alive
    parallel.rows(fresh("qwen2"), "tensor", ids)
    assert not first.alive
    subject = fresh("llama")
    parallel.rows(subject, "tensor", ids)
    second = parallel._PROCESSES[subject]
    del subject
    gc.collect()
    assert not second.alive


@pytest.mark.nightly
def test_a_class_that_another_process_cannot_import_is_named():
    class Local(LlamaForCausalLM):
        """Nobody else's."""

    model = Local(families.tiny("llama").config).eval().requires_grad_(False)
    with pytest.raises(Missing, match="cannot import the model's class"):
        parallel.rows(Subject("local", model), "tensor", prompt(toy("llama")))


def test_a_model_that_was_changed_in_memory_is_not_divided():
    subject = fresh("llama")
    subject.model.lm_head.register_forward_hook(lambda module, inputs, output: output / 2)
    with pytest.raises(Missing, match="gives other rows once it is saved and loaded"):
        parallel.rows(subject, "tensor", prompt(subject))
