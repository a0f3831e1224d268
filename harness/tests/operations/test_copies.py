"""Outputs of a copy: no sound one is accused however a machine rounds, small changes are seen."""

from __future__ import annotations

import pytest
import torch

from assay.harness.checking import sensitivity
from assay.harness.models.machine.allocation import odd
from assay.harness.models.reference.rounding import Rounding
from assay.harness.models.reference.tolerances import unequal_bits
from assay.harness.models.subject import Subject
from assay.harness.operations import copies, variants
from assay.harness.tests.support.nightly import nightly
from assay.harness.tests.support.toys import adopted

pytestmark = pytest.mark.usefixtures("itself")

IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])


def differs(subject: Subject, copied: Subject) -> bool:
    apart = copies.apart(subject, copied, IDS)
    return apart.distance.error > apart.allowed


@pytest.mark.parametrize("name", ["llama", "gpt2", "t5", "rwkv"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", [0, nightly(1), nightly(2)])
def test_a_sound_copy_is_not_accused_however_the_machine_rounds(name, dtype, seed):
    with Rounding(seed):
        subject = adopted(name, dtype)
        with odd():
            copied = variants.saved_and_loaded(subject)
        assert unequal_bits(subject.rows(IDS), copied.rows(IDS)) > 0.1
        assert not differs(subject, copied)


@pytest.mark.parametrize("rounding", [None, 1])
@pytest.mark.parametrize(
    ("dtype", "by"),
    [(torch.float32, 1e-2), (torch.float32, 1e-6), (torch.bfloat16, 1e-2), (torch.float64, 1e-14)],
)
def test_a_small_change_of_a_copy_is_seen_however_the_machine_rounds(dtype, by, rounding):
    """One token's embedding, by one part in a hundred and by about a unit in the last place."""
    subject = adopted(dtype=dtype)
    copied = variants.saved_and_loaded(subject)
    with torch.no_grad():
        copied.embedding_table[IDS[1, 2]] *= 1 + by
    if rounding is None:
        assert differs(subject, copied)
    else:
        with Rounding(rounding):
            assert differs(subject, copied)


def test_a_model_that_draws_numbers_may_differ_by_what_it_differs_from_itself():
    subject = adopted()
    copied = variants.saved_and_loaded(subject)

    def noisy(module, arguments, states):
        return states * (1 + 1e-4 * torch.randn(states.shape))

    for each in (subject, copied):
        each.input_embeddings.register_forward_hook(noisy)
    apart = copies.apart(subject, copied, IDS)
    assert 1e-5 < apart.distance.error <= apart.allowed < 1e-2
    copied.embedding_table[:, 0].add_(0.1)
    assert differs(subject, copied)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_leak_in_a_copy_s_rows_is_beyond_the_bound_and_none_is_not(dtype):
    subject = adopted(dtype=dtype)
    apart = copies.apart(subject, variants.saved_and_loaded(subject), IDS)
    error, allowed = apart.with_leak(0.0)
    assert error <= allowed
    error, allowed = apart.with_leak(sensitivity.GOALS[dtype].one_shape)
    assert error > allowed


@pytest.mark.parametrize("change", [0.0, 1e-3])
def test_noise_that_is_not_asked_for_is_measured_where_bits_differ_alone(change):
    subject = adopted()
    copied = variants.saved_and_loaded(subject)
    with torch.no_grad():
        copied.embedding_table[int(IDS[0, 0])].mul_(1 + change)
    few, all_places = (
        copies.apart(subject, copied, IDS, noise_too=each) for each in (False, True)
    )
    assert few.distance == all_places.distance
    assert few.allowed == (all_places.allowed if few.distance.error else 0.0)
    assert (few.distance.error > few.allowed) == bool(change)
