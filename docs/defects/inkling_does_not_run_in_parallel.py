"""Under tensor parallelism Inkling does not run: its plan divides what it uses whole.

Claims: G12
Types: inkling_text
Met by: whoever loads Inkling with DistributedConfig(tp_size=2) or more
Seen in: transformers 5.23.0
Expected: the logits of one process
Observed: AssertionError; without the first two causes logits that are off by 0.3
Cause: distributed/mixin.py, 94: a plan that does not name `embed_tokens` divides the vocabulary, and
    the rows that a process looks up are summed after the embedding's forward.
    `InklingNormedEmbedding.forward` (models/inkling/modeling_inkling.py, 604) norms them before.
    models/inkling/configuration_inkling.py, 82: the weights of the shared experts are divided, but
    nothing makes them local tensors for `torch.bmm` (modeling_inkling.py, 402).
    79: gate_up_proj is halved in the middle, so that one process has gates and the other none.
Fix: models/inkling/configuration_inkling.py, 78: the plan says that the embedding is replicated and
    nothing of the shared experts, as that of Inkling 2 does, and packed_colwise for gate_up_proj
Upstream: pull request 48786 (merged) moved the norm into the embedding; this is not found in
    transformers by searching for "inkling tensor parallel embed_norm embedding_rowwise"
"""

import os
import sys
import tempfile

import torch
from transformers import InklingForCausalLM, InklingTextConfig
from transformers.distributed import DistributedConfig


def fix():
    """Apply the fix to transformers as it is installed."""
    plan = InklingTextConfig.base_model_tp_plan
    for name in [name for name in plan if "shared_experts" in name]:
        del plan[name]
    plan["embed_tokens"] = "replicate"
    plan["layers.*.mlp.experts.gate_up_proj"] = "packed_colwise"


if "--fixed" in sys.argv:
    fix()

IDS = torch.tensor([[5, 6, 7, 8, 9]])
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
WINDOWED = {"swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 8}
EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SPREAD = {"initializer_range": 0.2}


def one_of_two(rank, folder):
    """Save the logits that one of two processes computes."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = InklingForCausalLM.from_pretrained(folder, distributed_config=parallel).eval()
    with torch.no_grad():
        torch.save(model(IDS).logits, f"{folder}/{rank}.pt")


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.manual_seed(0)
    config = InklingTextConfig(
        **SIZES, **HEADS, **WINDOWED, **EXPERTS, d_rel=4, rel_extent=8, **SPREAD
    )
    model = InklingForCausalLM(config).eval()
    with torch.no_grad():
        alone = model(IDS).logits
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        try:
            torch.multiprocessing.spawn(one_of_two, (folder,), nprocs=2)
            off = (torch.load(f"{folder}/0.pt") - alone).abs().max().item()
            result, wrong = f"logits off by {off:.1g}", off > 1e-3
        except torch.multiprocessing.ProcessRaisedException as error:
            result, wrong = str(error).strip().splitlines()[-1], True
    print("expected: the logits of one process")
    print(f"observed: {result[:83]}")
    sys.exit(wrong)
