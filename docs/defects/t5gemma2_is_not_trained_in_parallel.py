"""Under tensor parallelism T5Gemma 2 cannot be trained: it writes into rows of a divided table.

Claims: G12
Types: t5gemma2
Met by: whoever trains T5Gemma 2 with DistributedConfig(tp_size=2) or more
Seen in: transformers 5.23.0, 5.24.0
Expected: the gradients of the loss
Observed: RuntimeError: aten.index_put.default got mixed torch.Tensor and DTensor
Cause: models/t5gemma2/modeling_t5gemma2.py, 626: `T5Gemma2TextScaledWordEmbedding.forward` assigns
    the embedding of an image's end to the rows that have its id. The table is tied to the head,
    which is divided, so that the rows are a DTensor; its gradient is assigned a plain tensor.
Fix: models/t5gemma2/modeling_t5gemma2.py, 626: torch.where chooses between the two embeddings
Upstream: not found in transformers by searching for "t5gemma2 tensor parallel index_put DTensor"
"""

import os
import sys
import tempfile

import torch
from torch import nn
from transformers import T5Gemma2Config, T5Gemma2ForConditionalGeneration
from transformers.distributed import DistributedConfig
from transformers.models.t5gemma2 import modeling_t5gemma2


def embedded(self, input_ids):
    """The rows of the ids, and one of its own for the end of an image."""
    rows = nn.Embedding.forward(self, input_ids) * self.embed_scale.to(self.weight.dtype)
    ends = (input_ids == self.eoi_token_index)[..., None]
    return torch.where(ends, self.eoi_embedding.to(rows.dtype), rows)


def fix():
    """Apply the fix to transformers as it is installed."""
    modeling_t5gemma2.T5Gemma2TextScaledWordEmbedding.forward = embedded


if "--fixed" in sys.argv:
    fix()

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
IMAGES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
IDS, LABELS = torch.tensor([[5, 6, 7, 8, 9, 10]]), torch.tensor([[11, 12, 13]])


def gradient(model):
    """The gradient of the first block's queries, whole."""
    model(input_ids=IDS, labels=LABELS, use_cache=False).loss.backward()
    own = model.get_encoder().text_model.layers[0].self_attn.q_proj.weight.grad
    return own.full_tensor() if hasattr(own, "full_tensor") else own


def one_of_two(rank, folder):
    """Save the gradient that one of two processes computes."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = T5Gemma2ForConditionalGeneration.from_pretrained(folder, distributed_config=parallel)
    torch.save(gradient(model), f"{folder}/{rank}.pt")


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.manual_seed(0)
    encoder = {"text_config": SIZES | HEADS, "vision_config": IMAGES, "eoi_token_index": 60}
    ends = {"eoi_token_index": 60, "image_token_index": 61}
    config = T5Gemma2Config(encoder=encoder, decoder=SIZES | HEADS, **ends)
    model = T5Gemma2ForConditionalGeneration(config).eval()
    alone = gradient(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        try:
            torch.multiprocessing.spawn(one_of_two, (folder,), nprocs=2)
            off = ((torch.load(f"{folder}/0.pt") - alone).norm() / alone.norm()).item()
            result, wrong = f"a gradient off by {off:.0%}", off > 1e-3
        except torch.multiprocessing.ProcessRaisedException as error:
            result, wrong = str(error).strip().splitlines()[-1], True
    print("expected: the gradients of the loss")
    print(f"observed: {result[:83]}")
    sys.exit(wrong)
