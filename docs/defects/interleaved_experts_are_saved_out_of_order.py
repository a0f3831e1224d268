"""A model that was divided among processes saves Inkling 2's experts with their rows out of order.

Claims: G12
Types: inkling2_text
Met by: whoever saves Inkling 2 after loading it with DistributedConfig(tp_size=2) or more, and
    whoever gathers gradients of its experts
Seen in: transformers 5.23.0, 5.24.0
Expected: the weights that were loaded
Observed: gate_up_proj off by 100 %
Cause: models/inkling2/configuration_inkling2.py, 71: the plan calls gate_up_proj divided into
    contiguous parts. A checkpoint interleaves the gate's rows and the others, a process reads a
    contiguous part of them, and `Interleave` then puts the gate's first: a process has part of
    each, which serves it well, but whoever gathers the parts puts them one after another.
Fix: models/inkling2/configuration_inkling2.py, 71: the plan is packed_colwise, which says what a
    process has; core_model_loading.py, 1799: what `Interleave` will rearrange is still read as a
    contiguous part
Upstream: not found in transformers by searching for "inkling tensor parallel gate_up_proj
    Interleave save_pretrained colwise packed_colwise"
"""

import inspect
import os
import sys
import tempfile
import textwrap

import torch
from torch.distributed.tensor import Shard
from transformers import (
    Inkling2ForCausalLM,
    Inkling2TextConfig,
    core_model_loading,
    modeling_utils,
)
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


def as_read(mapping, sharding):
    """How a process reads its part of a tensor that may be interleaved."""
    steps = getattr(mapping, "operations", None) or []
    if any(isinstance(step, core_model_loading.Interleave) for step in steps):
        sharding.placements = tuple(
            Shard(each.dim) if hasattr(each, "dim") else each for each in sharding.placements
        )
    return sharding


def fix():
    """Apply the fix to transformers as it is installed."""
    Inkling2TextConfig.base_model_tp_plan["layers.*.mlp.experts.gate_up_proj"] = "packed_colwise"
    core_model_loading.as_read = as_read
    for name in ("PreTrainedModel", "LoadStateDictConfig"):  # named for type checkers alone
        setattr(core_model_loading, name, getattr(modeling_utils, name))
    read = "DtensorShardOperation(empty_param)"
    change(
        core_model_loading.convert_and_load_state_dict_in_model,
        (f"sharding_op = {read}", f"sharding_op = as_read(mapping, {read})"),
    )


if "--fixed" in sys.argv:
    fix()

SIZES = {"vocab_size": 64, "hidden_size": 32, "moe_intermediate_size": 16, "num_hidden_layers": 2}
ROUTES = {"n_routed_experts": 4, "num_experts_per_tok": 2, "unpadded_vocab_size": 64}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
LOCAL = {f"swa_{name}": number for name, number in HEADS.items()}


def one_of_two(rank, folder):
    """Load a model in one of two processes and save it."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    store = torch.distributed.FileStore(f"{folder}/store", 2)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    parallel = DistributedConfig(tp_size=2)
    model = Inkling2ForCausalLM.from_pretrained(folder, distributed_config=parallel)
    model.save_pretrained(f"{folder}/again")


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.manual_seed(0)
    model = Inkling2ForCausalLM(Inkling2TextConfig(**SIZES, **ROUTES, **HEADS, **LOCAL))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        torch.multiprocessing.spawn(one_of_two, (folder,), nprocs=2)
        again = Inkling2ForCausalLM.from_pretrained(f"{folder}/again")
    own, saved = (each.model.layers[0].mlp.experts.gate_up_proj for each in (model, again))
    off = ((saved - own).norm() / own.norm()).item()
    print("expected: the weights that were loaded")
    print(f"observed: gate_up_proj off by {off:.0%}")
    sys.exit(off > 1e-3)
