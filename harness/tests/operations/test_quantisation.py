"""Models with quantised weights, their dense copies, and what is compared."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.claims.running import test_quantised_weights as claims
from assay.fixtures import subjects
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject import Subject
from assay.harness.operations import quantisation
from assay.harness.results.errors import Missing
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.folders import tiny
from assay.harness.tests.support.quantised import kinds, written
from assay.harness.tests.support.toys import budget, prompt, toy, verdict

OWN = {"weights": quantisation.OWN}

COMPUTES = claims.test_a_quantised_model_computes_with_its_dequantised_weights
STORED = claims.test_quantised_weights_are_loaded_as_they_were_saved

PACKED = {"torchao, 8 bits", "torchao, 4 bits", "torchao, activations too"} | {
    "bitsandbytes, 8 bits",
    "bitsandbytes, 4 bits",
}
"""Kinds whose weights stay packed in memory; the others' are dense once they are loaded."""


def loaded(kind: str, folder: Path, dtype: torch.dtype) -> Subject:
    return subjects.load(str(written(kind, folder, dtype)), Options())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", kinds(PACKED))
def test_a_sound_model_of_each_kind_keeps_the_law(tmp_path, kind, dtype):
    result = verdict(COMPUTES, loaded(kind, tmp_path, dtype), budget(4), arguments=OWN)
    assert result.verdict is Verdict.UPHELD, result.reason


@pytest.mark.parametrize("kind", kinds(PACKED))
def test_a_model_of_each_kind_is_loaded_as_it_was_saved(tmp_path, kind):
    subject = loaded(kind, tmp_path, torch.bfloat16)
    result = verdict(STORED, subject, budget(1), arguments=OWN)
    if result.verdict is Verdict.NOT_APPLICABLE:
        assert "cannot be saved" in result.reason or "laid out" in result.reason
    else:
        assert result.verdict is Verdict.UPHELD, result.reason


def test_rows_that_are_no_whole_blocks_are_not_quantised_in_4_bits():
    pytest.importorskip("bitsandbytes")
    with pytest.raises(Missing, match="are not whole blocks of 64 numbers"):
        quantisation.of(toy("llama"), quantisation.FOUR)


def test_inputs_of_4_dimensions_are_not_quantised_in_8_bits():
    pytest.importorskip("bitsandbytes")
    with pytest.raises(Missing, match="input has 4 dimensions"):
        quantisation.of(toy("deepseek_v3"), quantisation.EIGHT)


@pytest.mark.parametrize("kind", ["8 bits", "4 bits", "float8"])
def test_weights_that_are_dense_in_memory_are_not_quantised(tmp_path, kind):
    with pytest.raises(Missing, match=r"dense in memory|not quantised"):
        quantisation.of(loaded(kind, tmp_path, torch.bfloat16), quantisation.OWN)


def test_models_without_quantised_weights_lack_them():
    with pytest.raises(Missing, match="not quantised"):
        quantisation.of(toy("llama"), quantisation.OWN)


WHOLE_BLOCKS = {
    "llama": {"hidden_size": 64, "intermediate_size": 128},
    "t5": {"d_model": 64, "d_kv": 32, "num_heads": 2, "d_ff": 128},
}


@pytest.mark.parametrize("kind", WHOLE_BLOCKS)
def test_a_model_with_whole_blocks_is_quantised_in_4_bits(kind):
    pytest.importorskip("bitsandbytes")
    model = tiny(kind, **WHOLE_BLOCKS[kind])
    subject = Subject("wide", model.eval().requires_grad_(False))
    for claim in (COMPUTES, STORED):  # the passes of the one are not seen by the other
        result = verdict(claim, subject, budget(3), arguments={"weights": quantisation.FOUR})
        assert result.verdict is Verdict.UPHELD, result.reason


def test_a_law_about_saving_leaves_the_model_as_it_was(tmp_path):
    subject = loaded("bitsandbytes, 4 bits", tmp_path, torch.bfloat16)
    ids = prompt(subject)
    before = subject.rows(ids)["logits"]
    verdict(STORED, subject, budget(1), arguments=OWN)
    assert torch.equal(subject.rows(ids)["logits"], before)
