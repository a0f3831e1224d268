"""A tokenizer that is told to add a token for the end no longer adds the one for the beginning.

Claims: H2
Types: *
Met by: whoever sets add_eos_token to train on a tokenizer whose tokenizer.json adds the token for
    the beginning: the model is trained without that token, and then used with it
Seen in: transformers 5.23.0
Expected: after add_eos_token = True a text has the ids that it had, and the token for the end
Observed: the token for the end, and the one for the beginning is gone
Cause: tokenization_utils_tokenizers.py, 456: `_add_bos_token` is False unless an argument says
    otherwise, whatever the file's post-processor adds; setting add_eos_token makes a new
    post-processor from both (642). With `_add_bos_token` read from the file's post-processor the
    difference is gone.
Fix: tokenization_utils_tokenizers.py, 456: where no argument says so, the first and the last token
    that the file's post-processor adds to an empty text say what is added
Upstream: PR #46722 (open) reads both from the post-processor; it changes no ids until one is set
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
