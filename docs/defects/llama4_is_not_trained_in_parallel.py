"""Under tensor parallelism Llama 4 cannot be trained: its experts add in place to a view.

Claims: G12
Types: llama4, llama4_text
Met by: whoever trains Llama 4 with DistributedConfig(tp_size=2) or more
Seen in: transformers 5.23.0, 5.24.0
Expected: the gradients of the loss
Observed: RuntimeError: Output 0 of _ToTorchTensor is a view and is being modified inplace
Cause: models/llama4/modeling_llama4.py, 172: `Llama4TextMoe.forward` adds the experts' outputs to
    the shared expert's in place, `out.add_(...)`, and that is a view of a DTensor.
Fix: models/llama4/modeling_llama4.py, 172: the sum is a new tensor
Upstream: not found in transformers by searching for "llama4 tensor parallel view modified inplace"
"""

import inspect
import os
import sys
import tempfile
import textwrap

import torch
from transformers import Llama4ForCausalLM, Llama4TextConfig
from transformers.distributed import DistributedConfig
from transformers.models.llama4.modeling_llama4 import Llama4TextMoe


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
    routed = "routed_out.reshape(router_scores.shape[1], -1, routed_out.shape[-1]).sum(dim=0)"
    change(Llama4TextMoe.forward, (f"out.add_({routed})", f"out = out + {routed}"))


if "--fixed" in sys.argv:
    fix()

SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_local_experts": 2}
WIDTHS = {"intermediate_size": 64, "intermediate_size_mlp": 64, "pad_token_id": 0}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


def one_of_two(rank, folder):
    """Compute the gradients of the loss, in one of two processes."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = Llama4ForCausalLM.from_pretrained(folder, distributed_config=parallel)
    model(IDS, labels=IDS, use_cache=False).loss.backward()


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    result = "the gradients of the loss"
    with tempfile.TemporaryDirectory() as folder:
        Llama4ForCausalLM(Llama4TextConfig(**SIZES, **WIDTHS, **HEADS)).save_pretrained(folder)
        try:
            torch.multiprocessing.spawn(one_of_two, (folder,), nprocs=2)
        except torch.multiprocessing.ProcessRaisedException as error:
            result = str(error).strip().splitlines()[-1]
    print("expected: the gradients of the loss")
    print(f"observed: {result[:83]}")
    sys.exit(result.startswith("RuntimeError"))
