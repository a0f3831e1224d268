"""The trainer counts the first label of each row for classes whose name names no loss.

Claims: G3
Types: bert, bert-generation, ctrl, gpt-sw3, gpt2, nemotron_h_omni, openai-gpt
Met by: whoever trains one of these models with Trainer, on labels that are the ids: gradients are
    smaller by the number of rows, divided by that of labels
Seen in: transformers 5.23.0, 5.24.0
Expected: the loss of a step is the model's own loss of its only batch
Observed: 0.75 times that loss, for two rows of four tokens
Cause: trainer.py, 543: whether a loss shifts its labels is looked up by ``loss_type``, which is
    None for a class such as GPT2LMHeadModel (modeling_utils.py, 1284); but the loss of such a
    class is ForCausalLMLoss by default (4773).
Fix: trainer.py, 543: the loss function of the model is asked, and not its name
Upstream: PR #46204 (merged) made the trainer count so for classes whose name names the loss; no
    thread found about the others
"""

import inspect
import logging
import sys
import tempfile
import textwrap

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainingArguments


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
    old = 'LOSS_MAPPING.get(\n        getattr(model_to_inspect, "loss_type", None)\n    )'
    change(Trainer.__init__, (old, 'getattr(model_to_inspect, "loss_function", None)'))


if "--fixed" in sys.argv:
    fix()

logging.disable()
torch.manual_seed(0)
config = GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=4)
config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
model = GPT2LMHeadModel(config)
ids = torch.randint(1, 64, (2, 4))
with torch.no_grad():
    own = model(ids, labels=ids).loss.item()
with tempfile.TemporaryDirectory() as folder:
    quiet = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    settings = TrainingArguments(folder, max_steps=1, logging_steps=1, use_cpu=True, **quiet)
    rows = [{"input_ids": row, "labels": row} for row in ids]
    trainer = Trainer(model, settings, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
times = trainer.state.log_history[0]["loss"] / own
print("expected: the loss of a step is the model's own loss of its only batch")
print(f"observed: {times:.2f} times that loss, for two rows of four tokens")
sys.exit(abs(times - 1) > 1e-3)
