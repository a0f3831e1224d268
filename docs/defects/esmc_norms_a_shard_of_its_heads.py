"""Under tensor parallelism ESM C does not run: it normalises all heads, and a process has its own.

Claims: G12
Types: esmc
Met by: whoever runs ESM C with DistributedConfig(tp_size=2) or more
Seen in: transformers 5.23.0, 5.24.0
Expected: the logits of one process
Observed: RuntimeError: Given normalized_shape=[32], expected input with shape [*, 32]
Cause: models/esmc/configuration_esmc.py, 55: the plan divides q_proj and k_proj along their
    outputs, and q_norm and k_norm take the outputs of all heads together.
Fix: models/esmc/configuration_esmc.py, 55: the plan gathers the outputs of q_proj, k_proj and
    v_proj, and divides them again for o_proj, as that of OLMo 2 does
Upstream: not found in transformers by searching for "esmc tensor parallel q_norm"
"""

import os
import sys
import tempfile

import torch
from transformers import EsmcConfig, EsmcForMaskedLM
from transformers.distributed import DistributedConfig


def fix():
    """Apply the fix to transformers as it is installed."""
    gathered = {f"layers.*.self_attn.{name}_proj": "colwise_gather_output" for name in "qkv"}
    EsmcConfig.base_model_tp_plan |= gathered
    EsmcConfig.base_model_tp_plan["layers.*.self_attn.o_proj"] = "rowwise_split_input"


if "--fixed" in sys.argv:
    fix()

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


def one_of_two(rank, folder):
    """Save the logits that one of two processes gives."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = EsmcForMaskedLM.from_pretrained(folder, distributed_config=parallel)
    torch.save(model(IDS).logits.detach(), f"{folder}/{rank}.pt")


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.manual_seed(0)
    model = EsmcForMaskedLM(EsmcConfig(**SIZES, **HEADS)).eval()
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
