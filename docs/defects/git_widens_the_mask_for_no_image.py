"""GIT makes room for an image in the mask of a prompt that has none.

Claims: C4, C5
Types: git
Met by: whoever calls generate() on a left-padded batch of text without images
Seen in: transformers 5.23.0, 5.24.0
Expected: generate() continues a left-padded prompt of text as it does alone
Observed: the second token's logits are off by 1.7, uncached by 5e-07
Cause: models/git/modeling_git.py, 841–852: with a filled cache and a mask, places for
    `image_patch_tokens` are put before the mask whether or not an image is in the cache, so the
    mask's zeros fall beside the padding, which is then attended to. With image_patch_tokens set to
    0 the difference is gone (2e-6).
Fix: models/git/modeling_git.py, 848: the mask is widened by what the cache holds beyond it, which
    is nothing without an image
Upstream: not found by searching for "GIT attention mask cache text only image_patch_tokens"
"""

import inspect
import sys
import textwrap

import torch
from transformers import GitConfig, GitForCausalLM
from transformers.models.git.modeling_git import GitModel


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
    arguments = inspect.signature(GitModel.forward).parameters
    cache = "cache" if "cache" in arguments else "past_key_values"
    change(
        GitModel.forward,
        (
            "(attention_mask.shape[0], self.encoder.layer[0].attention.self.image_patch_tokens),",
            f"(attention_mask.shape[0], max({cache}_length + embedding_output.shape[1]"
            " - attention_mask.shape[1], 0)),",
        ),
    )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = GitConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    initializer_range=0.3,
    vision_config=dict(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4
    ),
    bos_token_id=1,
    eos_token_id=2,
)
model = GitForCausalLM(config).eval()
ids, mask = torch.tensor([[0, 0, 0, 5, 6], [7, 8, 9, 10, 11]]), torch.ones(2, 5).long()
mask[0, :3] = 0
given = dict(min_new_tokens=2, max_new_tokens=2, output_logits=True, return_dict_in_generate=True)


def off(**cache):
    """How far the logits of the second token after a padded prompt are from the prompt's alone."""
    padded = model.generate(ids, attention_mask=mask, do_sample=False, **given, **cache)
    alone = model.generate(padded.sequences[:1, 3:6], do_sample=False, **given)
    return (padded.logits[1][0] - alone.logits[0][0]).abs().max().item()


with_cache, without = off(), off(use_cache=False)
print("expected: generate() continues a left-padded prompt of text as it does alone")
print(
    f"observed: the second token's logits are off by {with_cache:.2g}, uncached by {without:.0e}"
)
sys.exit(with_cache > 1e-3)
