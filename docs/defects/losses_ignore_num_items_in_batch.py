"""Models that take any argument ignore the number by which their loss is to be divided.

Claims: G2 [counted over batches], G3 [counted together], G3 [several]
Types: albert, bart, bert, big_bird, bigbird_pegasus, blenderbot, blenderbot-small, camembert,
    convbert, data2vec-text, deberta, deberta-v2, distilbert, electra, encoder-decoder, ernie,
    flaubert, fnet, fsmt, funnel, granite_speech, granite_speech_plus, gte, ibert,
    jina_embeddings_v3, layoutlm, led, longformer, longt5, luke, m2m_100, marian, mbart,
    megatron-bert, mobilebert, modernvbert, mpnet, mra, mt5, mvp, nllb-moe, nomic_bert,
    nystromformer, pegasus, pegasus_x, plbart, qwen2_audio, reformer, rembert, roberta,
    roberta-prelayernorm, roc_bert, roformer, seamless_m4t, seamless_m4t_v2, squeezebert,
    switch_transformers, t5, tapas, trocr, ultravbert, umt5, whisper, xlm, xlm-roberta,
    xlm-roberta-xl, xlnet, xmod, yoso
Met by: whoever trains with Trainer and gradient_accumulation_steps: gradients are so many times
    larger
Seen in: transformers 5.23.0, 5.24.0
Expected: the loss of two halves, each divided by the labels of both, adds up to that of the whole
Observed: 2.0 times the loss of the whole
Cause: trainer.py, 521: a model whose forward takes ``**kwargs`` is taken to divide its loss by
    num_items_in_batch, and the trainer then does not divide it by the number of steps (2108);
    models/t5/modeling_t5.py, 1051: the loss is the mean over the batch's own labels.
Fix: models/t5/modeling_t5.py, 1051, and the same lines in each of the types, as shown here for t5,
    mt5 and umt5: the sum is divided by the number where it is given
Upstream: issue #47688 (open)
"""

import inspect
import sys
import textwrap

import torch
from transformers import (
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    UMT5ForConditionalGeneration,
)


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
    old = "loss_fct = CrossEntropyLoss(ignore_index=-100)"
    kind = '"mean" if kwargs.get("num_items_in_batch") is None else "sum"'
    new = f"loss_fct = CrossEntropyLoss(ignore_index=-100, reduction={kind})"
    mean = "loss = loss_fct(lm_logits.view(-1, lm_logits.size(-1)), labels.view(-1))"
    for model in (
        T5ForConditionalGeneration,
        MT5ForConditionalGeneration,
        UMT5ForConditionalGeneration,
    ):
        change(
            model.forward,
            (old, new),
            (mean, f'{mean} / (kwargs.get("num_items_in_batch") or 1)'),
        )


if "--fixed" in sys.argv:
    fix()

torch.manual_seed(0)
config = T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4)
config.decoder_start_token_id = 0
model = T5ForConditionalGeneration(config).eval()
ids = torch.randint(1, 64, (2, 6))
with torch.no_grad():
    whole = model(ids, labels=ids).loss
    halves = sum(model(h, labels=h, num_items_in_batch=ids.numel()).loss for h in ids.split(1))
times = (halves / whole).item()
print(
    "expected: the loss of two halves, each divided by the labels of both, adds up to the whole's"
)
print(f"observed: {times:.1f} times the loss of the whole")
sys.exit(abs(times - 1) > 1e-3)
