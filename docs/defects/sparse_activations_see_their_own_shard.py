"""Under tensor parallelism Gemma 3n's sparse activations are cut off by the statistics of a shard.

Claims: G12
Types: gemma3n_text
Met by: whoever runs Gemma 3n with DistributedConfig(tp_size=2) or more
Seen in: transformers 5.23.0, 5.24.0
Expected: the logits of one process
Observed: off by 45 % of the largest, without activation_sparsity_pattern by 0 %
Cause: models/gemma3n/modeling_gemma3n.py, 981: the plan divides gate_proj along its outputs,
    and `_gaussian_topk` takes the mean and the standard deviation over the outputs that the
    process has, in place of all.
Fix: models/gemma3n/configuration_gemma3n.py, 86: the plan gathers the outputs of gate_proj and
    up_proj before the cut and divides them again for down_proj
Upstream: not found in transformers by searching for "gemma3n tensor parallel activation sparsity"
"""

import os
import sys
import tempfile

import torch
from transformers import Gemma3nForCausalLM, Gemma3nTextConfig
from transformers.distributed import DistributedConfig


def fix():
    """Apply the fix to transformers as it is installed."""
    Gemma3nTextConfig.base_model_tp_plan |= {
        "layers.*.mlp.gate_proj": "colwise_gather_output",
        "layers.*.mlp.up_proj": "colwise_gather_output",
        "layers.*.mlp.down_proj": "rowwise_split_input",
    }


if "--fixed" in sys.argv:
    fix()

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "laurel_rank": 4}
MORE = {"vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8}
KINDS = {"num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "full_attention"]}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


def one_of_two(rank, folder):
    """Save the logits that one of two processes gives."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = Gemma3nForCausalLM.from_pretrained(folder, distributed_config=parallel)
    torch.save(model(IDS).logits.detach(), f"{folder}/{rank}.pt")


def off(sparsity):
    """How far two processes' logits are off, as a share of the largest."""
    torch.manual_seed(0)
    pattern = {"activation_sparsity_pattern": [sparsity] * 2, "initializer_range": 0.5}
    config = Gemma3nTextConfig(**SIZES, **HEADS, **MORE, **KINDS, **pattern)
    model = Gemma3nForCausalLM(config).eval()
    alone = model(IDS).logits.detach()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        torch.multiprocessing.spawn(one_of_two, (folder,), nprocs=2)
        return ((torch.load(f"{folder}/0.pt") - alone).abs().max() / alone.abs().max()).item()


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sparse, dense = off(0.95), off(0.0)
    print("expected: the logits of one process")
    print(f"observed: off by {sparse:.0%} of the largest, without sparsity by {dense:.0%}")
    sys.exit(sparse > 1e-3)
