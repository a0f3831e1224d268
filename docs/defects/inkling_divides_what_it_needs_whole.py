"""Under tensor parallelism Inkling does not run: its plan divides what it takes to be whole.

Claims: G12
Types: inkling_text
Met by: whoever runs Inkling with DistributedConfig(tp_size=2) or more
Seen in: transformers 5.23.0, 5.24.0
Expected: the logits of one process
Observed: AssertionError
Cause: models/inkling/configuration_inkling.py, 78: the plan does not name embed_tokens, so that it
    is divided along the vocabulary, and this embedding normalises its rows before the processes'
    parts are summed. It divides the shared experts besides, which multiply plain tensors by these
    DTensors, and gate_up_proj into contiguous parts, so that one process has the gate's rows and
    the other the rest: that suits multimodal checkpoints alone, whose rows are interleaved.
Fix: models/inkling/configuration_inkling.py, 78: embed_tokens is replicated, as in Inkling 2's
    plan, the shared experts are not divided, and gate_up_proj is packed_colwise
Upstream: not found in transformers by searching for "inkling shared_experts tensor parallel plan
    DTensor embed_tokens replicate"
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
    plan["embed_tokens"] = "replicate"
    plan["layers.*.mlp.experts.gate_up_proj"] = "packed_colwise"
    for name in [name for name in plan if ".shared_experts" in name]:
        del plan[name]


if "--fixed" in sys.argv:
    fix()

SIZES = {"vocab_size": 64, "hidden_size": 32, "moe_intermediate_size": 16, "num_hidden_layers": 2}
ROUTES = {"n_routed_experts": 4, "num_experts_per_tok": 2, "mlp_layer_types": ["sparse"] * 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
LOCAL = {f"swa_{name}": number for name, number in HEADS.items()}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


def one_of_two(rank, folder):
    """Save the logits that one of two processes gives."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = InklingForCausalLM.from_pretrained(folder, distributed_config=parallel)
    torch.save(model(IDS).logits.detach(), f"{folder}/{rank}.pt")


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.manual_seed(0)
    model = InklingForCausalLM(
        InklingTextConfig(**SIZES, **ROUTES, **HEADS, **LOCAL, initializer_range=0.5)
    ).eval()
    alone = model(IDS).logits.detach()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        try:
            torch.multiprocessing.spawn(one_of_two, (folder,), nprocs=2)
            off = ((torch.load(f"{folder}/0.pt") - alone).abs().max() / alone.abs().max()).item()
            result, wrong = f"off by {off:.0%} of the largest", off > 1e-3
        except torch.multiprocessing.ProcessRaisedException as error:
            result, wrong = str(error).strip().splitlines()[-1], True
    print("expected: the logits of one process")
    print(f"observed: {result[:83]}")
    sys.exit(wrong)
