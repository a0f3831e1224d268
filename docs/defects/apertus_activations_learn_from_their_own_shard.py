"""Under tensor parallelism Apertus' activations learn from the hidden units of one process alone.

Claims: G12
Types: apertus, apertus1p5_text
Met by: whoever trains Apertus with DistributedConfig(tp_size=2) or more
Seen in: transformers 5.23.0, 5.24.0
Expected: the gradient of one process
Observed: a gradient of alpha_p that is off by 165 %
Cause: models/apertus/configuration_apertus.py, 55: the plan divides up_proj along its outputs, so
    that xIELU, which has parameters, sees a process's share of the hidden units. Every process
    has a gradient of its share, nothing sums them, and the processes' parameters drift apart.
Fix: models/apertus/configuration_apertus.py, 55: the plan has mlp.act_fn, whose gradients are
    summed as those of q_norm and k_norm are
Upstream: not found in transformers by searching for "apertus tensor parallel xielu alpha gradient
    act_fn tp_plan"
"""

import os
import sys
import tempfile

import torch
import transformers
from transformers import ApertusConfig, ApertusForCausalLM
from transformers.distributed import DistributedConfig


def fix():
    """Apply the fix to transformers as it is installed."""
    newer = getattr(transformers, "Apertus1p5TextConfig", ApertusConfig)  # of 5.24
    for config in (ApertusConfig, newer):
        config.base_model_tp_plan["layers.*.mlp.act_fn"] = "replicated_with_grad_allreduce"


if "--fixed" in sys.argv:
    fix()

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 4, "initializer_range": 0.5}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


def gradient(model):
    """The gradient of a parameter of the first block's activation."""
    model(IDS, labels=IDS, use_cache=False).loss.backward()
    return model.model.layers[0].mlp.act_fn.alpha_p.grad


def one_of_two(rank, folder):
    """Save the gradient that one of two processes has."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = ApertusForCausalLM.from_pretrained(folder, distributed_config=parallel)
    torch.save(gradient(model), f"{folder}/{rank}.pt")


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.manual_seed(0)
    model = ApertusForCausalLM(ApertusConfig(**SIZES, **HEADS)).eval()
    alone = gradient(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        torch.multiprocessing.spawn(one_of_two, (folder,), nprocs=2)
        off = ((torch.load(f"{folder}/0.pt") - alone).norm() / alone.norm()).item()
    print("expected: the gradient of one process")
    print(f"observed: a gradient of alpha_p that is off by {off:.0%}")
    sys.exit(off > 1e-3)
