"""Laws about ways of running a model: sound models keep them, and injected faults are caught."""

from __future__ import annotations

import pytest
import torch

from assay.claims import (
    test_batch_size,
    test_last_logits,
    test_loading,
    test_loss,
    test_packing,
    test_parallel,
    test_prefixes,
    test_training,
)
from assay.harness import faults
from assay.harness.operations import drafting, generation, parallel
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import budget, fresh, prompt, toy, verdict

PACKED = test_packing.test_samples_packed_into_one_row_do_not_see_each_other
LOSS = test_loss.test_the_loss_is_the_cross_entropy_of_the_labels
SUMMED = test_training.test_gradients_of_a_batch_are_the_sum_of_its_samples
TRAINED = test_training.test_gradients_in_training_are_those_in_evaluation
TURNS = test_prefixes.test_turns_on_one_cache_are_those_read_again
COPIES = test_prefixes.test_copies_of_a_prefix_are_continued_alike
CHUNKS = test_prefixes.test_a_prompt_read_in_chunks_is_continued_alike
KEPT = test_last_logits.test_requested_logits_are_those_of_the_whole_pass
BATCH = test_batch_size.test_a_row_does_not_depend_on_the_size_of_its_batch
LOADED = test_loading.test_what_is_loaded_is_what_is_stored
TWO_ROWS = test_parallel.test_rows_of_two_processes_are_those_of_one
TWO_GRADIENTS = test_parallel.test_gradients_of_two_processes_are_those_of_one
TWO_GENERATE = test_parallel.test_two_processes_generate_what_one_does

CASES = {
    "packed": (PACKED, {}),
    "loss": (LOSS, {"labels": "all"}),
    "loss, some ignored": (LOSS, {"labels": "some ignored"}),
    "loss over batches": (LOSS, {"labels": "counted over batches"}),
    "summed": (SUMMED, {}),
    "trained": (TRAINED, {"activations": "kept"}),
    "checkpointed": (TRAINED, {"activations": "recomputed"}),
    "turns": (TURNS, {}),
    "copies": (COPIES, {}),
    "chunks": (CHUNKS, {}),
    "last logits": (KEPT, {"how": "number"}),
    "some logits": (KEPT, {"how": "positions"}),
    "batch": (BATCH, {"rows": 8}),
    "loaded": (LOADED, {}),
    "rows of two": (TWO_ROWS, {"plan": "tensor"}),
    "gradients of two": (TWO_GRADIENTS, {"plan": "tensor"}),
    "generation of two": (TWO_GENERATE, {"plan": "tensor"}),
}
"""A claim and the parameters of its test."""

FAULTS = [
    ("packed-samples-seen", "packed"),
    ("labels-late", "loss"),
    ("ignored-labels-counted", "loss, some ignored"),
    ("loss-of-one-batch", "loss over batches"),
    ("gradients-of-several-rows-larger", "summed"),
    ("gradients-in-training-larger", "trained"),
    ("gradients-in-training-larger", "checkpointed"),
    ("turns-lose-a-token", "turns"),
    ("turns-lose-a-token", "chunks"),
    ("last-logits-early", "last logits"),
    ("last-logits-early", "some logits"),
    ("large-batches-mixed", "batch"),
    ("loading-leaves-a-number", "loaded"),
    ("shares-not-summed", "rows of two"),
    ("shares-not-summed", "generation of two"),
    ("gradients-not-summed", "gradients of two"),
]


@pytest.mark.parametrize("case", CASES)
def test_a_sound_model_keeps_each(case):
    claim, arguments = CASES[case]
    result = verdict(claim, toy("llama"), budget(4), arguments=arguments)
    assert result.verdict is Verdict.UPHELD, result.reason


@pytest.mark.parametrize(("fault", "case"), FAULTS)
def test_an_injected_fault_is_caught(fault, case):
    claim, arguments = CASES[case]
    with faults.injected(faults.named(fault), fresh("llama")) as broken:
        result = verdict(claim, broken, budget(6), arguments=arguments)
    assert result.verdict is Verdict.REFUTED, result.reason


@pytest.mark.parametrize("spec", ["bert", "t5", "mamba2"])
@pytest.mark.parametrize("case", CASES)
def test_no_sound_model_is_accused(spec, case):
    claim, arguments = CASES[case]
    result = verdict(claim, toy(spec), budget(3), arguments=arguments)
    known = spec in ("bert", "t5") and case == "loss over batches"  # docs/defects
    assert (result.verdict is Verdict.REFUTED) == known, result.reason


def test_a_prompt_is_read_in_chunks():
    subject = toy("llama")
    ids = prompt(subject, 7, batch=1)
    with drafting.watch_passes(subject) as watched:
        generation.scores(subject, ids, "greedy", use_cache=True, prefill_chunk_size=3)
    assert [each.shape[1] for each in watched.passes[:3]] == [3, 3, 1]


def test_the_share_of_bits_that_differ_is_recorded_for_each_example():
    result = verdict(BATCH, toy("llama"), budget(3), arguments={"rows": 8})
    shares = result.details["share of elements whose bits differ"]
    assert len(shares) == result.examples
    assert all(0 <= share <= 1 for share in shares)


def test_a_model_whose_buffer_is_left_unset_by_loading_is_refuted():
    subject = fresh("llama")

    class Lazy(type(subject.model)):
        def __init__(self, config):
            super().__init__(config)
            self.register_buffer("scale", torch.empty(3), persistent=False)

    model = Lazy(subject.config).eval().requires_grad_(False)
    model.scale.fill_(1.0)
    result = verdict(LOADED, type(subject)("lazy", model), budget(1))
    assert result.verdict is Verdict.REFUTED
    assert "buffers" in result.reason


def test_experts_are_divided_as_well():
    result = verdict(TWO_ROWS, toy("mixtral"), budget(2), arguments={"plan": "expert"})
    assert result.verdict is Verdict.UPHELD, result.reason


def test_a_lost_process_says_nothing_about_the_model(monkeypatch):
    monkeypatch.setattr(parallel, "PATIENCE", 0.0)
    result = verdict(TWO_ROWS, fresh("llama"), budget(1), arguments={"plan": "tensor"})
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "process 0 of 2 gave no answer in 0 seconds" in result.reason
