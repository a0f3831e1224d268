"""Setting add_eos_token removes the begin-of-sequence token.

Claims: H2
Types: *
Met by: whoever sets add_eos_token for training, on a tokenizer whose tokenizer.json adds the
    begin-of-sequence token: the model is trained without that token, and then used with it
Seen in: transformers 5.23.0, 5.24.0
Expected: after add_eos_token = True a text has the same ids, followed by the end-of-sequence token
Observed: the end-of-sequence token is added, and the begin-of-sequence token is gone
Cause: tokenization_utils_tokenizers.py, 456: `_add_bos_token` is False unless it is an argument,
    even if the file's post-processor adds the token; setting add_eos_token makes a new
    post-processor from both attributes (642). With `_add_bos_token` read from the file's
    post-processor the difference is gone.
Fix: tokenization_utils_tokenizers.py, 456: without such arguments, the first and the last token
    that the file's post-processor adds to an empty text decide both attributes
Upstream: PR #46722 (open) reads both from the post-processor
"""

import sys

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast


def fix():
    """Apply the fix to transformers as it is installed."""
    made = PreTrainedTokenizerFast.__init__

    def init(self, *args, **kwargs):
        made(self, *args, **kwargs)
        added = self._tokenizer.encode("", add_special_tokens=True).ids
        if "add_bos_token" not in kwargs and "add_eos_token" not in kwargs and added:
            self._add_bos_token = added[0] == self.bos_token_id
            self._add_eos_token = added[-1] == self.eos_token_id

    PreTrainedTokenizerFast.__init__ = init


if "--fixed" in sys.argv:
    fix()

inner = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "<unk>": 2, "one": 3}, "<unk>"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
inner.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>")
before = tokenizer("one").input_ids
tokenizer.add_eos_token = True
after = tokenizer("one").input_ids
print(f"expected: {[*before, tokenizer.eos_token_id]}")
print(f"observed: {after}")
sys.exit(after != [*before, tokenizer.eos_token_id])
