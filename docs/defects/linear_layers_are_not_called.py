"""Mamba, Jamba, LongCat Flash and MobileBERT use a layer's weight without calling the layer.

Claims: G10 [linear layers], G10 [ranks and scales], G10 [DoRA], G11 [8 bits]
Types: mamba, falcon_mamba, jamba, longcat_flash, mobilebert
Met by: whoever trains an adapter (LoRA) on all linear layers: these have no effect and no
    gradient until they are merged, and the merged model is not the trained one. Whoever loads in
    8 bits: Mamba breaks, and MobileBERT takes the integers for numbers (logits off 80 times)
Seen in: transformers 5.23.0, 5.24.0
Expected: a pass calls Mamba's dt_proj, LongCat Flash's router and MobileBERT's last dense layer
Observed: 0 of 3 are called
Cause: the product is written with the layer's weight: `self.dt_proj.weight @ …`
    (models/mamba/modeling_mamba.py, 438; models/falcon_mamba/modeling_falcon_mamba.py, 476;
    models/jamba/modeling_jamba.py, 577), `F.linear(…, self.classifier.weight…)`
    (models/longcat_flash/modeling_longcat_flash.py, 144), `torch.cat([self.decoder.weight.t(),
    self.dense.weight])` (models/mobilebert/modeling_mobilebert.py, 505). peft refuses adapters on
    Mamba's out_proj and conv1d, which its kernels read in the same way, and not on dt_proj.
Fix: models/mamba/modeling_mamba.py, 438, models/falcon_mamba/modeling_falcon_mamba.py, 476, and
    models/jamba/modeling_jamba.py, 577: the layer is called and its bias taken away, as two of
    them do for quantized models. models/longcat_flash/modeling_longcat_flash.py, 144: it is
    called in its own dtype, which is float32 where it was loaded. models/mobilebert/
    modeling_mobilebert.py, 499 and 505: the dense layer maps forwards, and both parts are called
    and added; 685 and 785: it is resized forwards; conversion_mapping.py: checkpoints keep its
    weight transposed, which one saved in 8 bits cannot be. Mamba's kernels still read weights in
    training (385)
Upstream: peft issue #2274 (closed) is about out_proj of Mamba2. The others: not found by searching
    for "mamba LoRA dt_proj.weight used directly"
"""

import inspect
import sys
import textwrap

import torch
from transformers import (
    LongcatFlashConfig,
    LongcatFlashForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MobileBertConfig,
    MobileBertForMaskedLM,
    MobileBertForPreTraining,
)
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import Transpose, WeightConverter
from transformers.models.falcon_mamba.modeling_falcon_mamba import FalconMambaMixer
from transformers.models.jamba.modeling_jamba import JambaMambaMixer
from transformers.models.longcat_flash.modeling_longcat_flash import LongcatFlashTopkRouter
from transformers.models.mamba.modeling_mamba import MambaMixer
from transformers.models.mobilebert.modeling_mobilebert import MobileBertLMPredictionHead


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
    product = "self.dt_proj.weight @ time_step.transpose(1, 2)"
    called = "(self.dt_proj(time_step) - self.dt_proj.bias).transpose(1, 2)"
    for mixer in (MambaMixer, FalconMambaMixer, JambaMambaMixer):
        change(mixer.forward, (product, called))
    change(
        LongcatFlashTopkRouter.forward,
        (
            "F.linear(hidden_states.type(torch.float32), "
            "self.classifier.weight.type(torch.float32))",
            "self.classifier(hidden_states.to(self.classifier.weight.dtype)).float()",
        ),
    )
    change(
        MobileBertLMPredictionHead.__init__,
        (
            "nn.Linear(config.vocab_size, config.hidden_size - config.embedding_size, bias=False)",
            "nn.Linear(config.hidden_size - config.embedding_size, config.vocab_size, bias=False)",
        ),
    )
    change(
        MobileBertLMPredictionHead.forward,
        (
            "hidden_states.matmul(torch.cat([self.decoder.weight.t(), self.dense.weight], dim=0))",
            "hidden_states.tensor_split([self.decoder.in_features], dim=-1)",
        ),
        (
            "hidden_states += self.decoder.bias",
            "hidden_states = self.decoder(hidden_states[0]) + self.dense(hidden_states[1])",
        ),
    )
    for model in (MobileBertForMaskedLM, MobileBertForPreTraining):
        change(model.resize_token_embeddings, (", transposed=True", ""))
    name = "cls.predictions.dense.weight"
    turned = WeightConverter(name, name, operations=[Transpose(0, 1)])
    register_checkpoint_conversion_mapping("mobilebert", [turned])


if "--fixed" in sys.argv:
    fix()

mamba = MambaForCausalLM(MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1))
longcat = LongcatFlashForCausalLM(
    LongcatFlashConfig(
        **{"vocab_size": 64, "hidden_size": 32, "ffn_hidden_size": 64, "num_layers": 1},
        **{"num_attention_heads": 2, "q_lora_rank": 8, "kv_lora_rank": 8, "v_head_dim": 8},
        **{"qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "head_dim": 8, "moe_topk": 2},
        **{"n_routed_experts": 4, "zero_expert_num": 2, "expert_ffn_hidden_size": 16},
    )
)
mobilebert = MobileBertForMaskedLM(
    MobileBertConfig(
        **{"vocab_size": 64, "hidden_size": 32, "embedding_size": 16, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "intermediate_size": 32, "intra_bottleneck_size": 16},
    )
)
layers = (
    (mamba, mamba.backbone.layers[0].mixer.dt_proj),
    (longcat, longcat.model.layers[0].mlp.router.classifier),
    (mobilebert, mobilebert.cls.predictions.dense),
)
called = []
for model, layer in layers:
    layer.register_forward_hook(lambda module, inputs, output: called.append(module))
    with torch.no_grad():
        model.eval()(torch.randint(1, 64, (1, 6)))
print("expected: a pass calls Mamba's dt_proj, LongCat's router and MobileBERT's last dense layer")
print(f"observed: {len(set(called))} of {len(layers)} are called")
sys.exit(len(set(called)) < len(layers))
