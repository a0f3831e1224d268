"""Under tensor parallelism Gemma 3n's sparse activations are cut off by the statistics of a shard.

Claims: G12
Types: gemma3n_text
Met by: whoever runs Gemma 3n with DistributedConfig(tp_size=2) or more
Seen in: transformers 5.23.0
Expected: the logits of one process
Observed: off by 45 % of the largest, without activation_sparsity_pattern by 0 %
Cause: the plan divides gate_proj along its outputs, and `_gaussian_topk` takes the mean and the
    standard deviation over the outputs that the process has, in place of all.
Upstream: not found in transformers by searching for "gemma3n tensor parallel activation sparsity"
"""

import os
import sys
import tempfile

import torch
import torch.multiprocessing
from transformers import Gemma3nForCausalLM, Gemma3nTextConfig
from transformers.distributed import DistributedConfig

IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


def saved(folder, sparsity):
    """Save a tiny model; returns its logits."""
    torch.manual_seed(0)
    config = Gemma3nTextConfig(
        vocab_size=64,
        vocab_size_per_layer_input=64,
        hidden_size=32,
        hidden_size_per_layer_input=8,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        num_kv_shared_layers=0,
        layer_types=["sliding_attention", "full_attention"],
        laurel_rank=4,
        activation_sparsity_pattern=[sparsity, sparsity],
        initializer_range=0.5,
    )
    model = Gemma3nForCausalLM(config).eval()
    model.save_pretrained(folder)
    with torch.no_grad():
        return model(IDS).logits


def one_of_two(rank, folder):
    """Save the logits that two processes give."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = Gemma3nForCausalLM.from_pretrained(folder, distributed_config=parallel)
    with torch.no_grad():
        torch.save(model(IDS).logits, f"{folder}/{rank}.pt")


def share(sparsity):
    """How far two processes' logits are off, as a share of the largest."""
    with tempfile.TemporaryDirectory() as folder:
        alone = saved(folder, sparsity)
        torch.multiprocessing.spawn(one_of_two, (folder,), nprocs=2)
        off = torch.load(f"{folder}/0.pt") - alone
    return (off.abs().max() / alone.abs().max()).item()


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sparse, dense = share(0.95), share(0.0)
    print("expected: the logits of one process")
    print(
        f"observed: they are off by {sparse:.0%} of the largest; by {dense:.0%} without sparsity"
    )
    sys.exit(sparse > 1e-3)
