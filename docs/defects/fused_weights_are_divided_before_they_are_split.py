"""Under tensor parallelism a fused weight is divided among processes before it is split.

Claims: G12
Types: hrm_text, sarvam_moe
Met by: whoever loads HRM Text or Sarvam MoE with DistributedConfig(tp_size=2) or more
Seen in: transformers 5.23.0, 5.24.0
Expected: the logits of one process
Observed: off by 142 % of the largest
Cause: core_model_loading.py, 1799: a tensor of a checkpoint that a `WeightConverter` splits (HRM
    Text's gate, queries, keys and values) is read as this process's contiguous part of it. `Chunk`
    then splits that part: the first process takes halves of the gate for its gate and its queries.
    Sarvam MoE's queries, keys and values are split by their sizes as a whole (`Split`, line 154 in
    5.24, which warns of it): the part is too small, and loading fails.
Fix: core_model_loading.py, 1799: what is split along the dimension that is divided is read as a
    whole, and its parts are divided
Upstream: PR #48519 (open) reads what is transposed or permuted as a whole, and not what is split
"""

import inspect
import os
import sys
import tempfile
import textwrap

import torch
from transformers import HrmTextConfig, HrmTextForCausalLM, core_model_loading, modeling_utils
from transformers.distributed import DistributedConfig


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


def is_split(mapping):
    """Whether a converter splits what is divided."""
    steps = getattr(mapping, "operations", None) or []
    kinds = [getattr(core_model_loading, name, ()) for name in ("Chunk", "Split")]  # 5.24 has both
    return any(isinstance(step, tuple(kinds)) and step.dim == 0 for step in steps)


def divided(mapping, model, name, tensor):
    """The part that this process has of a parameter that was split from a whole."""
    parameter = dict(model.named_parameters()).get(name)
    if not is_split(mapping) or not core_model_loading.is_dtensor(parameter):
        return tensor
    return core_model_loading.DtensorShardOperation(parameter).shard_tensor(tensor)


def fix():
    """Apply the fix to transformers as it is installed."""
    core_model_loading.is_split, core_model_loading.divided = is_split, divided
    for name in ("PreTrainedModel", "LoadStateDictConfig"):  # named for type checkers alone
        setattr(core_model_loading, name, getattr(modeling_utils, name))
    first = "param = param[0] if isinstance(param, list) else param"
    change(
        core_model_loading.convert_and_load_state_dict_in_model,
        ("if is_dtensor(empty_param):", "if is_dtensor(empty_param) and not is_split(mapping):"),
        (first, f"param = divided(mapping, model, target_name, {first.partition('= ')[2]})"),
    )


if "--fixed" in sys.argv:
    fix()

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10]])


def one_of_two(rank, folder):
    """Save the logits that one of two processes gives."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = HrmTextForCausalLM.from_pretrained(folder, distributed_config=parallel)
    torch.save(model(IDS).logits.detach(), f"{folder}/{rank}.pt")


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.manual_seed(0)
    model = HrmTextForCausalLM(HrmTextConfig(**SIZES, **HEADS, initializer_range=0.5)).eval()
    alone = model(IDS).logits.detach()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        torch.multiprocessing.spawn(one_of_two, (folder,), nprocs=2)
        off = ((torch.load(f"{folder}/0.pt") - alone).abs().max() / alone.abs().max()).item()
    print("expected: the logits of one process")
    print(f"observed: off by {off:.0%} of the largest")
    sys.exit(off > 1e-3)
