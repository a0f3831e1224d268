"""Under tensor parallelism Doge and NeoMME do not run: heads are divided, and weights of them not.

Claims: G12
Types: doge, neomme
Met by: whoever runs Doge or NeoMME with DistributedConfig(tp_size=2) or more
Seen in: transformers 5.23.0, 5.24.0
Expected: the logits of one process
Observed: Doge: RuntimeError: The size of tensor a (2) must match the size of tensor b (4); NeoMME:
    RuntimeError: The size of tensor a (4) must match the size of tensor b (2)
Cause: models/doge/configuration_doge.py, 54, and models/neomme/configuration_neomme.py, 62: the
    plans divide q_proj, k_proj and v_proj along their outputs, so that a process has a share of
    the heads. Doge's `A` and dt_proj's outputs, which make its mask, are of all heads; so are
    NeoMME's `alpha` and its value embeddings, which are added to the values. NeoMME's plan divides
    lm_head besides, and not the table that is tied to it.
Fix: models/doge/configuration_doge.py, 54, and models/neomme/configuration_neomme.py, 62: the
    plans gather the outputs of q_proj, k_proj and v_proj (NeoMME's gate_proj too), and divide them
    again for o_proj, as that of OLMo 2 does; Doge's dt_proj is not divided, and NeoMME's table is
Upstream: not found in transformers by searching for "doge tensor parallel tp_plan dt_proj" and
    "neomme tensor parallel base_model_tp_plan value_embeddings alpha"
"""

import os
import sys
import tempfile

import torch
from transformers import DogeConfig, DogeForCausalLM, NeoMMEConfig, NeoMMEForMaskedLM
from transformers.distributed import DistributedConfig


def fix():
    """Apply the fix to transformers as it is installed."""
    gathered = {f"layers.*.self_attn.{name}_proj": "colwise_gather_output" for name in "qkv"}
    DogeConfig.base_model_tp_plan |= gathered
    DogeConfig.base_model_tp_plan["layers.*.self_attn.o_proj"] = "rowwise_split_input"
    del DogeConfig.base_model_tp_plan["layers.*.self_attn.dt_proj"]
    output = "layers.*.self_attn.output_projection"
    NeoMMEConfig.base_model_tp_plan |= gathered
    NeoMMEConfig.base_model_tp_plan[f"{output}.gate_proj"] = "colwise_gather_output"
    NeoMMEConfig.base_model_tp_plan[f"{output}.o_proj"] = "rowwise_split_input"
    NeoMMEConfig.base_model_tp_plan["embed_tokens.word_embeddings"] = "embedding_rowwise"


if "--fixed" in sys.argv:
    fix()

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 4}
DOGE = DogeForCausalLM, DogeConfig(**SIZES, **HEADS)
NEOMME = NeoMMEForMaskedLM, NeoMMEConfig(**SIZES, **HEADS, head_dim=16, embedding_rank=16)
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


def one_of_two(rank, folder, kind):
    """Save the logits that one of two processes gives."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = kind.from_pretrained(folder, distributed_config=parallel)
    torch.save(model(IDS).logits.detach(), f"{folder}/{rank}.pt")


def spread(kind, config):
    """How far two processes' logits are off, or what they raise, and whether that is wrong."""
    torch.manual_seed(0)
    model = kind(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)  # NeoMME's blocks are born with zeros
    alone = model(IDS).logits.detach()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        try:
            torch.multiprocessing.spawn(one_of_two, (folder, kind), nprocs=2)
            off = ((torch.load(f"{folder}/0.pt") - alone).abs().max() / alone.abs().max()).item()
            return f"off by {off:.0%} of the largest", off > 1e-3
        except torch.multiprocessing.ProcessRaisedException as error:
            return str(error).strip().splitlines()[-1][:73], True


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    (doge, one), (neomme, other) = spread(*DOGE), spread(*NEOMME)
    print("expected: the logits of one process")
    print(f"observed: Doge: {doge}; NeoMME: {neomme}")
    sys.exit(one or other)
