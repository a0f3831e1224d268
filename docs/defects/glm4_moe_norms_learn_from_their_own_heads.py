"""Under tensor parallelism GLM 4 MoE's norms of queries and keys learn from one process's heads.

Claims: G12
Types: glm4_moe, sarvam_moe
Met by: whoever trains GLM 4 MoE with use_qk_norm, as GLM 4.5 has, or Sarvam MoE, with
    DistributedConfig(tp_size=2) or more
Seen in: transformers 5.23.0, 5.24.0
Expected: the gradient of one process
Observed: a gradient of k_norm that is off by 82 %
Cause: models/glm4_moe/configuration_glm4_moe.py, 61: the plan divides q_proj and k_proj by heads,
    so that q_norm and k_norm, which every process has as a whole, see a process's share of the
    heads. Every process has a gradient of its share, and nothing sums them. The plans of Qwen 3
    MoE and others name both norms. Sarvam MoE is built of this class and has the same plan
    (models/sarvam_moe/configuration_sarvam_moe.py, 60 in 5.24).
Fix: models/glm4_moe/configuration_glm4_moe.py, 61, and models/sarvam_moe/
    configuration_sarvam_moe.py, 60 in 5.24: the plans have q_norm and k_norm, whose gradients are
    summed, as models/qwen3_moe/configuration_qwen3_moe.py, 59 has
Upstream: not found by searching for "glm4_moe tensor parallel q_norm k_norm gradient tp_plan"
"""

import os
import sys
import tempfile

import torch
import transformers
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM
from transformers.distributed import DistributedConfig


def fix():
    """Apply the fix to transformers as it is installed."""
    newer = getattr(transformers, "SarvamMoEConfig", Glm4MoeConfig)  # of 5.24
    for config in (Glm4MoeConfig, newer):
        for norm in ("q_norm", "k_norm"):
            place = f"layers.*.self_attn.{norm}"
            config.base_model_tp_plan[place] = "replicated_with_grad_allreduce"


if "--fixed" in sys.argv:
    fix()

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "use_qk_norm": True}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


def gradient(model):
    """The gradient of the first block's norm of keys."""
    model(IDS, labels=IDS, use_cache=False).loss.backward()
    return model.model.layers[0].self_attn.k_norm.weight.grad


def one_of_two(rank, folder):
    """Save the gradient that one of two processes has."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = Glm4MoeForCausalLM.from_pretrained(folder, distributed_config=parallel)
    torch.save(gradient(model), f"{folder}/{rank}.pt")


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.manual_seed(0)
    model = Glm4MoeForCausalLM(Glm4MoeConfig(**SIZES, **HEADS, initializer_range=0.5)).eval()
    alone = gradient(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        torch.multiprocessing.spawn(one_of_two, (folder,), nprocs=2)
        off = ((torch.load(f"{folder}/0.pt") - alone).norm() / alone.norm()).item()
    print("expected: the gradient of one process")
    print(f"observed: a gradient of k_norm that is off by {off:.0%}")
    sys.exit(off > 1e-3)
