"""Models stored, and loaded into memory that holds no numbers."""

from __future__ import annotations

from pathlib import Path

import torch

from assay.harness.operations import differences, stored, variants
from assay.harness.tests.support.toys import fresh


def test_new_memory_is_filled_with_nan_in_the_block_alone():
    before = torch.are_deterministic_algorithms_enabled()
    with stored.filled_with_nan():
        assert torch.empty(9).isnan().all()
    assert torch.are_deterministic_algorithms_enabled() is before


def test_a_sound_model_is_loaded_as_it_was_stored():
    subject = fresh("llama")
    with variants.saved(subject) as folder:
        loaded = stored.loaded(subject, folder)
    assert max(differences.between(subject, loaded.subject).values()) == 0
    assert not any(loaded.reported.values())


def test_a_renamed_tensor_is_reported_and_not_loaded():
    subject = fresh("llama")
    with variants.saved(subject) as folder:
        name = stored.rename_a_weight(subject, folder)
        loaded = stored.loaded(subject, folder)
    assert loaded.reported["missing_keys"] == [name]
    assert loaded.reported["unexpected_keys"] == [f"{name}_"]
    assert differences.between(subject, loaded.subject)["weights"] > 0


def test_a_model_that_does_not_fit_twice_is_loaded_from_small_files(monkeypatch):
    subject = fresh("llama")
    monkeypatch.setattr(variants, "fits_twice", lambda subject: False)
    monkeypatch.setattr(variants, "SHARD", "20KB")
    with variants.saved(subject) as folder:
        assert len(list(Path(folder).glob("*.safetensors"))) > 1
        loaded = stored.loaded(subject, folder)
        own = subject.embedding_table.data_ptr()
        assert loaded.subject.embedding_table.data_ptr() == own
        name = stored.rename_a_weight(subject, folder)
        assert stored.loaded(subject, folder).reported["missing_keys"] == [name]
