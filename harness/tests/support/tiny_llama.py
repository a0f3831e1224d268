"""A tiny LLaMA with settings of choice, and weights of seed 0."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import LlamaForCausalLM, PreTrainedModel

from assay.fixtures import families


def llama(kind: type[PreTrainedModel] = LlamaForCausalLM, **settings: Any) -> PreTrainedModel:
    """A model of ``kind`` with the configuration of ``tiny:llama``, changed by ``settings``."""
    config = copy.deepcopy(families.tiny("llama").config)
    config.update(settings)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(config)
