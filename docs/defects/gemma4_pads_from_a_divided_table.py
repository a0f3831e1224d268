"""Under tensor parallelism Gemma 4 does not run: it reads the padding's row off a divided table.

Claims: G12
Types: gemma4
Met by: whoever runs Gemma 4 with per-layer embeddings (E2B, E4B) with DistributedConfig(tp_size=2)
    or more
Seen in: transformers 5.23.0, 5.24.0
Expected: the logits of one process
Observed: RuntimeError: aten.where.self got mixed torch.Tensor and DTensor
Cause: models/gemma4/modeling_gemma4.py, 2390: `Gemma4Model.forward` takes the row of the padding's
    id from `embed_tokens.weight`, which is divided among processes and so gives a DTensor, for
    torch.where beside the embeddings, which are a plain tensor.
Fix: models/gemma4/modeling_gemma4.py, 2390: the embedding looks the row up, which gathers it
Upstream: not found in transformers by searching for "gemma4 tensor parallel got mixed torch.Tensor
    and DTensor aten.where"
"""

import inspect
import os
import sys
import tempfile
import textwrap

import torch
from transformers import Gemma4Config, Gemma4ForConditionalGeneration, Gemma4TextConfig
from transformers.distributed import DistributedConfig
from transformers.models.gemma4.modeling_gemma4 import Gemma4Model


def change(function, *lines):
    """Replace an old line of a function's source by a new one, for each pair."""
    function = inspect.unwrap(function)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in lines:
        assert source.count(old) == 1, f"transformers has no single line {old!r}"
        source = source.replace(old, new)
    body = "def " + source.partition("def ")[2]  # its decorators stay as they are
    cells = function.__code__.co_freevars
    body = f"def scope({', '.join(cells)}):\n{textwrap.indent(body, '    ')}"
    exec(f"{body}\n    return {function.__name__}", function.__globals__, made := {})
    function.__code__ = made["scope"](*cells).__code__


def fix():
    """Apply the fix to transformers as it is installed."""
    change(
        Gemma4Model.forward,
        (
            "pad_embedding = self.language_model.embed_tokens.weight"
            "[self.config.text_config.pad_token_id, :]",
            "pad_embedding = self.language_model.embed_tokens(torch.tensor("
            "[self.config.text_config.pad_token_id], device=inputs_embeds.device))",
        ),
    )


if "--fixed" in sys.argv:
    fix()

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
MORE = {"vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8, "global_head_dim": 16}
MEDIA = {"image_token_id": 60, "video_token_id": 61, "audio_token_id": 62}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


def one_of_two(rank, folder):
    """Save the logits that one of two processes gives."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = Gemma4ForConditionalGeneration.from_pretrained(folder, distributed_config=parallel)
    torch.save(model(IDS).logits.detach(), f"{folder}/{rank}.pt")


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.manual_seed(0)
    text = Gemma4TextConfig(**SIZES, **HEADS, **MORE, num_kv_shared_layers=0)
    model = Gemma4ForConditionalGeneration(Gemma4Config(text_config=text, **MEDIA)).eval()
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
