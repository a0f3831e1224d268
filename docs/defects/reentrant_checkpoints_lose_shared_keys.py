"""Reentrant checkpoints lose the gradients of keys and values that later layers share.

Claims: G3
Types: gemma3n_text
Met by: whoever trains with gradient_checkpointing_kwargs={"use_reentrant": True}, which is not
    the default
Seen in: transformers 5.23.0, 5.24.0
Expected: the gradients of plain training
Observed: those of the shared values are off by 69 %; without reentrance by 0 %
Cause: layers hand their keys and values on in a dictionary beside the arguments of the checkpoint;
    reentrant checkpoints pass gradients to tensors among the arguments alone.
Fix: models/gemma3n/modeling_gemma3n.py, 1258: under a checkpoint the shared keys and values come
    as arguments and go as results
Upstream: not found in transformers by searching for "gemma3n kv sharing use_reentrant gradient";
    unsloth-zoo #813 describes the same in Gemma 4 and works around it
"""

import inspect
import sys

import torch
from transformers import Gemma3nForCausalLM, Gemma3nTextConfig
from transformers.cache_utils import KVSharingDict
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextDecoderLayer


def fix():
    """Apply the fix to transformers as it is installed."""
    plain = inspect.unwrap(Gemma3nTextDecoderLayer.forward)
    cache = "cache" if "cache" in inspect.signature(plain).parameters else "past_key_values"

    def forward(self, *args, shared_kv_states, **kwargs):
        if not (self.gradient_checkpointing and self.training):
            return plain(self, *args, shared_kv_states=shared_kv_states, **kwargs)
        kwargs[cache] = None
        names, inputs = list(shared_kv_states), len(args)
        states = [state for pair in shared_kv_states.values() for state in pair]
        written = []

        def run(*args):
            given = args[inputs:]
            pairs = zip(given[::2], given[1::2], strict=True)
            shared = KVSharingDict(zip(names, pairs, strict=True))
            before = dict(shared)
            hidden_states = plain(self, *args[:inputs], shared_kv_states=shared, **kwargs)
            written[:] = [name for name in shared if shared[name] is not before.get(name)]
            return hidden_states, *(state for name in written for state in shared[name])

        result = self._gradient_checkpointing_func(run, *args, *states)
        pairs = zip(result[1::2], result[2::2], strict=True)
        shared_kv_states.update(zip(written, pairs, strict=True))
        return result[0]

    Gemma3nTextDecoderLayer.forward = forward


if "--fixed" in sys.argv:
    fix()

KINDS = ["sliding", "full", "sliding", "sliding", "full"]

torch.manual_seed(0)
config = Gemma3nTextConfig(
    vocab_size=64,
    vocab_size_per_layer_input=64,
    hidden_size=32,
    hidden_size_per_layer_input=8,
    intermediate_size=64,
    num_hidden_layers=5,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    num_kv_shared_layers=2,
    layer_types=[f"{kind}_attention" for kind in KINDS],
    laurel_rank=4,
)
model = Gemma3nForCausalLM(config).train()
ids = torch.tensor([[5, 6, 7, 8, 9, 10]])


def gradient():
    """The gradient of the values' weights in the last layer that has its own."""
    model.zero_grad()
    model(ids, labels=ids, use_cache=False).loss.backward()
    return model.model.layers[2].self_attn.v_proj.weight.grad.clone()


plain, off = gradient(), []
for reentrant in (True, False):
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    off.append(((gradient() - plain).norm() / plain.norm()).item())
    model.activation_checkpointing_disable()
print("expected: the gradients of plain training")
print(f"observed: the shared values' are off by {off[0]:.0%}; without reentrance by {off[1]:.0%}")
sys.exit(off[0] > 1e-3)
