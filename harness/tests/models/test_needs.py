"""The memory that checking a model takes: predicted, and measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from assay.fixtures import geometries
from assay.harness.models import needs
from assay.harness.tests.support.sessions import PACKAGE

GIGABYTE = 1e9

BESIDE = 0.1 * GIGABYTE
"""What else a process may come to hold: code that is loaded at its first use, and memory that was
released and that the allocator keeps."""

SEVENTY_BILLION = LlamaConfig(
    vocab_size=128256,
    hidden_size=8192,
    intermediate_size=28672,
    num_hidden_layers=80,
    num_attention_heads=64,
    num_key_value_heads=8,
)
"""The published shape of Llama 3's 70B."""


def without_numbers(config: LlamaConfig) -> PreTrainedModel:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("config", "card"),
    [(geometries.config("rotary-8b"), 24 * GIGABYTE), (SEVENTY_BILLION, 192 * GIGABYTE)],
    ids=["8B", "70B"],
)
def test_the_reference_of_a_large_model_fits_beside_it(config: LlamaConfig, card: float) -> None:
    need = needs.of(without_numbers(config))
    assert need.streamed < card < need.copied
    block = 8 * need.weights / 2 / config.num_hidden_layers
    assert need.streamed <= 1.3 * need.weights + block + need.activations


def test_a_model_of_350_million_parameters_takes_what_was_predicted() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("missing capability: the peak of a process in /proc")
    command = ["-m", "assay.harness.tests.support.peak_of_laws", "geometry:gpt2-medium"]
    run = subprocess.run(
        [sys.executable, "-P", *command],
        env={"PYTHONPATH": str(PACKAGE), "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    measured = json.loads(run.stdout.splitlines()[-1])
    assert measured["weights"] > 700e6
    assert measured["off"] < 1
    assert measured["lost"] == 0
    assert measured["apart"] <= 0
    assert measured["peak"] <= measured["predicted"] + BESIDE < measured["with_copy"]
