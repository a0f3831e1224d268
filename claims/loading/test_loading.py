"""What loading leaves in a model's parameters and buffers (beyond the documents)."""

from __future__ import annotations

from functools import partial

from assay.harness.checking.laws import law
from assay.harness.checking.work import Work
from assay.harness.operations import (
    adapters,
    differences,
    own_adapters,
    stored,
    stored_tensors,
    variants,
)


@law(
    "H1",
    "what is loaded is what the files hold",
    needs=["files", "weights-in-memory", "saving"],
    source="beyond the documents; transformers#43429, vllm#54230, diffusers#14769",
    control="a row of the largest weight zeroed after loading",
    enough=1,
    core=True,
    work=Work.PASSES,
)
def test_what_is_loaded_is_what_the_files_hold(subject, draw, check):
    with variants.saved(subject) as folder:
        held = stored_tensors.compared(subject, folder)
        check.judge(held.share, 0.0, held.where)
        check.details |= held.details
        stored_tensors.zero_a_row(folder)
        check.judge_control(stored_tensors.compared(subject, folder).share, 0.0)
    with variants.flip_last_bit(subject), variants.saved(subject) as folder:
        check.sees_one_bit(stored_tensors.compared(subject, folder).share)


@law(
    "H1",
    "what is loaded of an adapter is what its file holds",
    needs=["files", "own-adapter"],
    source="beyond the documents; transformers#48595, unsloth#918",
    control="a row of the largest weight zeroed after loading",
    enough=1,
)
def test_what_is_loaded_of_an_adapter_is_what_its_file_holds(subject, draw, check):
    compared = partial(stored_tensors.compared_adapter, subject)
    judge_file(check, own_adapters.stored(subject), compared)


@law(
    "H1",
    "what is loaded from a GGUF file is what it holds",
    needs=["gguf-file", "weights-in-memory"],
    source="beyond the documents; the GGUF format",
    control="a row of the largest weight zeroed after loading",
    enough=1,
)
def test_what_is_loaded_from_a_gguf_file_is_what_it_holds(subject, draw, check):
    compared = partial(stored_tensors.compared_gguf, subject)
    judge_file(check, stored_tensors.of_gguf(subject), compared)


def judge_file(check, file, compared):
    """The tensors of a file are, as ``compared`` finds, what the model has."""
    held = compared(file)
    check.judge(held.share, 0.0, held.where)
    check.details |= held.details
    check.judge_control(compared(stored_tensors.with_a_row_of_zeros(file)).share, 0.0)
    check.sees_one_bit(compared(adapters.one_off(file)).share)


@law(
    "H1",
    "what is loaded is what is stored, or is recomputed",
    needs=["weights-in-memory", "saving"],
    source="beyond the documents; transformers#46620, #48892",
    control="the largest weight stored under another name",
    enough=1,
    core=True,
)
def test_what_is_loaded_is_what_is_stored(subject, draw, check):
    with variants.saved(subject) as folder:
        loaded = stored.loaded(subject, folder)
        for what, share in differences.between(subject, loaded.subject).items():
            check.judge(share, 0.0, share.of(f"{what}, loaded into memory of NaN"))
        for kind, names in loaded.reported.items():
            check.judge(len(names), 0.0, f"{kind}: {', '.join(names[:3])}")
        with variants.flip_last_bit(loaded.subject):
            check.sees_one_bit(max(differences.between(subject, loaded.subject).values()))
        del loaded
        stored.rename_a_weight(subject, folder)
        damaged = stored.loaded(subject, folder)
        check.judge_control(max(differences.between(subject, damaged.subject).values()), 0.0)


@law(
    "H1",
    "a model made without numbers is, once it is initialised, as one made with them",
    needs=["weights-in-memory", "saving"],
    source="beyond the documents; transformers#45902, #42309",
    control="a model that is not initialised",
    enough=1,
)
def test_a_model_made_without_numbers_is_as_one_made_with_them(subject, draw, check):
    stored.require_initialised_buffers()
    usual, emptied = stored.made(subject), stored.made_without_numbers(subject)
    unlike = emptied.unlike(usual)
    check.judge(unlike, 0.0, unlike.of("buffers: share of elements"))
    unset = emptied.weights
    check.judge(unset, 0.0, unset.of("weights: share of numbers that are not set"))
    left = stored.made_without_numbers(subject, initialised=False)
    check.judge_control(max(left.unlike(usual), left.weights), 0.0)
