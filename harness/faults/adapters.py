"""Faults of low-rank adapters, in peft's own functions: they are wherever an adapter is."""

from __future__ import annotations

from typing import Any

import torch

from assay.harness.faults.bed import Bed
from assay.harness.faults.catalogue import fault

LEAK = 1e-3
"""Share of an adapter's change to a layer that is wrong."""


@fault(
    "new-adapters-act",
    "a new adapter's B is a thousandth in place of zero",
    caught_by=["G10"],
    needs=["adapters"],
)
def _act(bed: Bed) -> None:
    from peft.tuners.lora import LoraLayer

    usual: Any = LoraLayer.reset_lora_parameters

    def reset(self: Any, adapter_name: str, init_lora_weights: Any) -> None:
        usual(self, adapter_name, init_lora_weights)
        if adapter_name in self.lora_B:
            torch.nn.init.constant_(self.lora_B[adapter_name].weight, LEAK)

    bed.set(LoraLayer, "reset_lora_parameters", reset)


@fault(
    "disabled-adapters-act",
    "adapters act on where they are disabled",
    caught_by=["G10"],
    needs=["adapters"],
)
def _act_on(bed: Bed) -> None:
    from peft.tuners.tuners_utils import BaseTunerLayer

    bed.set(BaseTunerLayer, "disable_adapters", property(lambda self: False))


@fault(
    "merged-adapters-larger",
    "a merged adapter changes a layer a thousandth more than an unmerged one",
    caught_by=["G10"],
    needs=["adapters"],
)
def _larger(bed: Bed) -> None:
    from peft.tuners.lora import Linear

    usual = Linear.get_delta_weight

    def delta(self: Any, adapter: str) -> Any:
        return (1 + LEAK) * usual(self, adapter)

    bed.set(Linear, "get_delta_weight", delta)


@fault(
    "saved-adapters-lose-a-number",
    "the last number of a saved adapter's first weight is zero",
    caught_by=["G10"],
    needs=["adapters"],
)
def _lose(bed: Bed) -> None:
    from peft import peft_model

    owner: Any = peft_model
    usual = owner.get_peft_model_state_dict

    def state(*args: Any, **kwargs: Any) -> Any:
        tensors = dict(usual(*args, **kwargs))
        first = min(tensors)
        tensors[first] = tensors[first].clone()
        tensors[first].view(-1)[-1:].zero_()
        return tensors

    bed.set(peft_model, "get_peft_model_state_dict", state)


@fault(
    "loaded-adapters-lose-magnitudes",
    "DoRA's magnitudes of a loaded adapter are those of a new one",
    caught_by=["G10"],
    needs=["adapters"],
)
def _lose_magnitudes(bed: Bed) -> None:
    from peft import peft_model

    owner: Any = peft_model
    usual = owner.set_peft_model_state_dict

    def load(model: Any, state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        left = {name: each for name, each in state.items() if "lora_magnitude" not in name}
        return usual(model, left, *args, **kwargs)

    bed.set(peft_model, "set_peft_model_state_dict", load)


@fault(
    "loaded-adapters-share-a-scale",
    "a loaded adapter has the same scale in every layer",
    caught_by=["G10"],
    needs=["adapters"],
)
def _share_a_scale(bed: Bed) -> None:
    from peft import LoraConfig

    usual: Any = LoraConfig.from_pretrained

    def read(*args: Any, **kwargs: Any) -> Any:
        config = usual(*args, **kwargs)
        config.alpha_pattern = {}
        return config

    bed.set(LoraConfig, "from_pretrained", staticmethod(read))


@fault(
    "adapters-add-up",
    "where one of two adapters is chosen, both act",
    caught_by=["G10"],
    needs=["adapters"],
)
def _add_up(bed: Bed) -> None:
    from peft.tuners.lora import LoraLayer

    bed.set(LoraLayer, "active_adapters", property(lambda self: sorted(self.lora_A)))
