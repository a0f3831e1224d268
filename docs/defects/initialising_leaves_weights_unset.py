"""Initialising a model made without numbers leaves weights of nine types as they were in memory.

Claims: H1
Types: apertus, apertus1p5_text, data2vec-text, fnet, longformer, luke, nystromformer, openai-gpt,
    reformer
Met by: whoever makes such a model on the meta device and initialises it: distributed training
    from its configuration, or from a checkpoint that lacks the head
Seen in: transformers 5.23.0, 5.24.0
Expected: no number of a model is NaN once to_empty() and init_weights() are through
Observed: NaN in 8 weights of OpenAI GPT, 1 of Longformer, 4 of Apertus, and 4 buffers
Cause: `_init_weights` of these classes knows neither Conv1D (pytorch_utils.py), nor the bias of a
    head that is a parameter of its own, nor `XIELUActivation` (activations.py, 231). PR #42309
    says that `_init_weights` covers all parameters and buffers.
Fix: modeling_utils.py, 2311: the three kinds of modules are initialised as they are constructed
Upstream: not found by searching for "_init_weights Conv1D lm_head.bias to_empty XIELU"
"""

import sys

import torch
from torch import nn
from transformers import (
    ApertusConfig,
    ApertusForCausalLM,
    LongformerConfig,
    LongformerForMaskedLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    PreTrainedModel,
    initialization,
)
from transformers.activations import XIELUActivation
from transformers.pytorch_utils import Conv1D


def fix():
    """Apply the fix to transformers as it is installed."""
    usual = PreTrainedModel._init_weights

    def more(self, module):
        usual(self, module)
        if isinstance(module, Conv1D):
            initialization.normal_(module.weight, std=self.config.initializer_range)
            initialization.zeros_(module.bias)
        elif isinstance(module, XIELUActivation):
            new = XIELUActivation(dtype=module.beta.dtype)
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                initialization.copy_(tensor, getattr(new, name))
        elif "Head" in type(module).__name__ and isinstance(
            getattr(module, "bias", None), nn.Parameter
        ):
            initialization.zeros_(module.bias)

    PreTrainedModel._init_weights = more


if "--fixed" in sys.argv:
    fix()

small = {"vocab_size": 64, "num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 4}
more = {"intermediate_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
gpt = OpenAIGPTConfig(vocab_size=64, n_layer=1, n_embd=32, n_head=4)
longformer = LongformerConfig(**small, intermediate_size=64, attention_window=[4])
apertus = ApertusConfig(**{**small, "num_hidden_layers": 2}, **more, num_key_value_heads=2)


def unset(kind, config):
    """How many weights and buffers have numbers that nothing set."""
    with torch.device("meta"):
        model = kind(config)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                tensor.fill_(torch.nan)
    model.init_weights()
    weights = sum(bool(each.isnan().any()) for each in model.parameters())
    return weights, sum(bool(each.isnan().any()) for each in model.buffers())


one, _ = unset(OpenAIGPTLMHeadModel, gpt)
two, _ = unset(LongformerForMaskedLM, longformer)
three, buffers = unset(ApertusForCausalLM, apertus)
print("expected: no number of a model is NaN once to_empty() and init_weights() are through")
print(
    f"observed: NaN in {one} weights of OpenAI GPT, {two} of Longformer, {three} of Apertus, "
    f"and {buffers} buffers"
)
sys.exit(bool(one or two or three or buffers))
