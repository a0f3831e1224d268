"""LFM3's convolutions run on from one packed sample into the next, whatever lengths are given.

Claims: G1
Types: lfm3
Met by: training on packed samples: DataCollatorWithFlattening with return_seq_idx, TRL's packing
Seen in: transformers 5.23.0
Fixed in: transformers 5.24.0
Expected: the second of two packed samples has the logits that it has alone, or an error
Observed: logits that are off by 6.5
Cause: models/lfm3/modeling_lfm3.py, 319: the layers are given `seq_idx`, and `causal_conv1d_fn`
    swallows it. Other types' function refuses it without its kernel (integrations/hub_kernels.py,
    1038); LFM3's has no such wrapper, as its kernel is wider than the hub's.
Fix: models/lfm3/modeling_lfm3.py, 319: each sample of a row is convolved by itself. In 5.24.0 the
    function has that wrapper (line 320), and refuses packed samples without `causal_conv1d`. That
    package takes kernels of width 2 to 4, and LFM3's has 7: packed samples are refused throughout
Upstream: PRs #46588 and #46633 fixed the same in LFM2; nothing was found about LFM3
"""

import sys

import torch
from transformers import Lfm3Config, Lfm3ForCausalLM
from transformers.models.lfm3 import modeling_lfm3


def fix():
    """Apply the fix to transformers as it is installed."""
    whole = modeling_lfm3.causal_conv1d_fn

    def apart(hidden_states, *args, seq_idx=None, **kwargs):
        if seq_idx is None:
            return whole(hidden_states, *args, **kwargs)
        sizes = torch.unique_consecutive(seq_idx[0], return_counts=True)[1].tolist()
        each = hidden_states.split(sizes, dim=-1)
        return torch.cat([whole(sample, *args, **kwargs) for sample in each], dim=-1)

    modeling_lfm3.causal_conv1d_fn = apart


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = Lfm3Config(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    layer_types=["conv", "full_attention"],
    initializer_range=0.3,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
model = Lfm3ForCausalLM(config).eval()
first, second = torch.randint(3, 64, (1, 5)), torch.randint(3, 64, (1, 6))
edges = torch.tensor([0, 5, 11], dtype=torch.int32)
packed = {  # what DataCollatorWithFlattening returns
    "input_ids": torch.cat([first, second], dim=1),
    "position_ids": torch.tensor([[*range(5), *range(6)]]),
    "seq_idx": torch.tensor([[0] * 5 + [1] * 6], dtype=torch.int32),
    "cu_seq_lens_q": edges,
    "cu_seq_lens_k": edges,
    "max_length_q": 6,
    "max_length_k": 6,
}
with torch.no_grad():
    alone = model(second).logits[0]
    try:
        off = (model(**packed, use_cache=False).logits[0, 5:] - alone).abs().max().item()
        told = f"logits that are off by {off:.2g}"
    except ValueError as error:  # without its kernel, which keeps samples apart
        off, told = 0, f"a refusal: {error}"
print("expected: the second of two packed samples has the logits that it has alone, or an error")
print(f"observed: {told}")
sys.exit(off > 1e-3)
