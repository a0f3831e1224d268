"""Plain modules and functions from ids to logits, and models with a signature of their own."""

from __future__ import annotations

import copy
import functools
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

import assay
from assay.harness.models.loading.wrapping import wrap
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.nightly import nightly
from assay.harness.tests.support.plain_models import CONTEXT, VOCABULARY, PlainGPT

LAWS = ["C1", "C5", "C6", "C9", "C13"]

Returned = namedtuple("Returned", ["loss", "logits"])
GLOBAL = PlainGPT()


@dataclass
class Answer:
    """What a model of somebody's own may return."""

    logits: Tensor
    states: list[Tensor]


def returning(change: Callable[[Tensor], Any]) -> nn.Module:
    """A model whose logits come in another kind of output."""

    class Returning(PlainGPT):
        def forward(self, ids: Tensor) -> Any:
            return change(self.logits(ids))

    return Returning()


class NamesThemX(PlainGPT):
    """Takes its ids as ``x``, after nothing else."""

    def forward(self, x: Tensor, targets: Any = None) -> Any:
        return self.logits(x)


class ByPlace(PlainGPT):
    """Takes its ids by their place only."""

    def forward(self, *inputs: Tensor) -> Any:
        return self.logits(*inputs)


class WithCache(PlainGPT):
    """Has a cache of its own: the ids that it has read."""

    def forward(self, ids: Tensor, past: Tensor | None = None) -> Any:
        every = ids if past is None else torch.cat([past, ids], dim=1)
        return self.logits(every)[:, -ids.shape[1] :], every


class Object:
    """An object that can be called and holds its model."""

    def __init__(self) -> None:
        self.network = PlainGPT()

    def __call__(self, ids: Tensor) -> Tensor:
        return self.network(ids)


def in_closure() -> Callable[[Tensor], Tensor]:
    model = PlainGPT()
    return lambda ids: model.logits(ids)


def by_global(ids: Tensor) -> Tensor:
    return GLOBAL(ids)


def applied(model: nn.Module, ids: Tensor) -> Tensor:
    return model(ids)


def table(ids: Tensor) -> Tensor:
    """No module in it: the logits of a token are those of its number and of the numbers before."""
    tokens = torch.arange(VOCABULARY)
    return torch.cos(ids.cumsum(1)[..., None] * 0.37 * (1 + tokens)) * 3


SOUND: dict[str, Callable[[], Any]] = {
    "tensor": PlainGPT,
    "tuple": lambda: returning(lambda logits: (logits, None)),
    "loss first": lambda: returning(lambda logits: (torch.tensor(0.0), logits)),
    "dict": lambda: returning(lambda logits: {"logits": logits}),
    "dataclass": lambda: returning(lambda logits: Answer(logits, [])),
    "namedtuple": lambda: returning(lambda logits: Returned(None, logits)),
    "output of transformers": lambda: returning(lambda logits: CausalLMOutput(logits=logits)),
    "ids by another name": NamesThemX,
    "ids by their place": ByPlace,
    "cache of its own": WithCache,
    "closure": in_closure,
    "global": lambda: by_global,
    "bound method": lambda: PlainGPT().logits,
    "partial": lambda: functools.partial(applied, PlainGPT()),
    "object": Object,
    "function without modules": lambda: table,
    "sequential": lambda: nn.Sequential(PlainGPT()),
}


IN_THE_GATE = (
    "tensor",
    "dataclass",
    "ids by their place",
    "cache of its own",
    "closure",
    "object",
)


@pytest.mark.parametrize(
    "make",
    [make if name in IN_THE_GATE else nightly(make) for name, make in SOUND.items()],
    ids=SOUND,
)
def test_what_maps_ids_to_logits_is_judged(make: Callable[[], Any]) -> None:
    model = make()
    before = copy.deepcopy(model.state_dict()) if isinstance(model, nn.Module) else {}
    run = assay.check(model, claims=LAWS, attends="causal", profile="glance")
    judged = {each.id for each in run.results if str(each.verdict) == "upheld"}
    assert not [each.reason for each in run.results if str(each.verdict) == "refuted"]
    assert not [each.reason for each in run.results if str(each.verdict) == "inconclusive"]
    assert {"C1", "C5", "C6", "C13"} <= judged
    if isinstance(model, nn.Module):
        assert model.training
        assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())


class ChangesItself(PlainGPT):
    """Its weights drift with every pass."""

    def forward(self, ids: Tensor) -> Any:
        self.head.weight.data.mul_(1.001)
        return self.logits(ids)


class RaisesOnRepeats(PlainGPT):
    """Raises where a token occurs twice."""

    def forward(self, ids: Tensor) -> Any:
        if any(len(set(row)) < len(row) for row in ids.tolist()):
            raise IndexError("twice")
        return self.logits(ids)


class Infinite(PlainGPT):
    """Gives NaN for one token."""

    def forward(self, ids: Tensor) -> Any:
        return self.logits(ids).masked_fill((ids == 7)[..., None], torch.nan)


BROKEN = {
    "a leak of the next token": (lambda: PlainGPT(leak=1e-4), {"C1", "C6"}),
    "mixed rows": (lambda: PlainGPT(mix=1e-4), {"C5"}),
    "weights that change": (ChangesItself, {"C6"}),
    "raising": (RaisesOnRepeats, {"C1"}),
    "not finite": (Infinite, {"C13"}),
}


@pytest.mark.parametrize(("make", "refuted"), BROKEN.values(), ids=BROKEN)
def test_a_broken_one_is_refuted_by_the_claim_about_it(
    make: Callable[[], Any], refuted: set[str]
) -> None:
    run = assay.check(make(), claims=sorted(refuted), attends="causal", profile="quick")
    assert refuted == {each.id for each in run.refuted}


OWN = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=CONTEXT,
)


class OwnSignature(PreTrainedModel):
    """A model of transformers with ``forward(input_ids, labels)``, which returns logits alone."""

    config_class = LlamaConfig

    def __init__(self, config: LlamaConfig, leak: float = 0.0) -> None:
        super().__init__(config)
        self.gpt = PlainGPT(leak=leak)

    def forward(self, input_ids: Tensor, labels: Any = None) -> Any:
        return self.gpt.logits(input_ids)


class AnyArguments(OwnSignature):
    """The same that takes anything, and ignores it."""

    def forward(self, input_ids: Tensor, **kwargs: Any) -> Any:
        return {"logits": self.gpt.logits(input_ids)}


@pytest.mark.parametrize("kind", [OwnSignature, AnyArguments])
@pytest.mark.parametrize("leak", [0.0, 1e-4])
def test_a_model_of_transformers_may_have_any_signature(
    kind: type[OwnSignature], leak: float
) -> None:
    run = assay.check(kind(OWN, leak), claims=["C1", "C5", "C6"], profile="quick")
    assert {each.id for each in run.refuted} == ({"C1", "C6"} if leak else set())
    assert "C1" in {each.id for each in run.results if str(each.verdict) != "not applicable"}


def test_the_model_in_an_adapter_of_peft_is_judged_with_it() -> None:
    base = LlamaForCausalLM(OWN)
    adapted = peft.get_peft_model(base, peft.LoraConfig(target_modules=["q_proj"]))
    model = wrap("adapted", adapted)
    assert model is base
    assert any("lora_A" in name for name, _ in model.named_parameters())


def test_a_model_in_which_transformers_put_an_adapter_is_judged_whole(tmp_path: Path) -> None:
    base = LlamaForCausalLM(OWN)
    base.save_pretrained(tmp_path / "base")
    adapted = peft.get_peft_model(base, peft.LoraConfig(target_modules=["q_proj"]))
    adapted.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    adapted.save_pretrained(tmp_path / "adapter")
    model = LlamaForCausalLM.from_pretrained(tmp_path / "adapter")
    assert wrap("adapted", model) is model
    run = assay.check(model, claims=["C4", "G2"], profile="glance")
    assert not run.refuted
    assert {each.id for each in run.results if str(each.verdict) == "upheld"} == {"C4", "G2"}


def test_a_body_without_a_head_is_judged_by_its_states() -> None:
    run = assay.check(LlamaModel(OWN), claims=["C1", "C2", "C5", "A7"], profile="glance")
    assert not run.refuted
    upheld = {each.id for each in run.results if str(each.verdict) == "upheld"}
    assert upheld == {"C1", "C2", "C5", "A7"}


class Text:
    """Returns no tensor."""

    def __call__(self, ids: Tensor) -> str:
        return "no logits"


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Text(), "returns a str for ids"),
        (7, "is int; give a model"),
        (LlamaForCausalLM, "is the class LlamaForCausalLM"),
        (lambda: 7, "takes 0 positional arguments"),
        (nn.Linear(4, 4), "cannot run ids [1, 4]"),
        (lambda ids: ids, "a tensor [1, 4] of torch.int64"),
        (PlainGPT(), 'PlainGPT is meant to be causal; say attends="causal" or attends="both"'),
    ],
)
def test_what_cannot_be_judged_is_rejected_in_one_line(model: Any, why: str) -> None:
    with pytest.raises(BadInput) as rejected:
        assay.check(model)
    assert why in str(rejected.value)
    assert "\n" not in str(rejected.value)


@pytest.mark.parametrize(
    ("make", "claims"),
    [nightly(lambda: table, "all"), (PlainGPT, "laws")],
    ids=["function", "module"],
)
def test_every_claim_has_a_row_on_a_model_that_lacks_most_of_what_others_have(
    make: Callable[[], Any], claims: str
) -> None:
    """No cache, generation, tokenizer, mask or positions; the function has no parts at all."""
    run = assay.check(make(), claims=claims, attends="causal", profile="glance")
    assert len(run.results) > (200 if claims == "all" else 70)
    assert not [each.reason for each in run.results if each.ended_in_error]
    assert not [each.reason for each in run.unexpected if each.kind.value == "law"]


class RowByRow(PlainGPT):
    """Embeds and runs each prompt of a batch alone."""

    def forward(self, ids: Tensor) -> Tensor:
        return torch.cat([self.logits(row[None]) for row in ids])


class StepByStep(PlainGPT):
    """Computes every position from the tokens up to it, as generation without a cache does."""

    def forward(self, ids: Tensor) -> Tensor:
        ends = range(1, ids.shape[1] + 1)
        return torch.cat([self.logits(ids[:, :end])[:, -1:] for end in ends], dim=1)


class ComputesAgain(PlainGPT):
    """Keeps nothing for the gradient, and runs again instead."""

    def forward(self, ids: Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint(self.logits, ids, use_reentrant=False)


class Remembers(PlainGPT):
    """Returns the logits of a prompt that it has seen, without running its blocks."""

    def forward(self, ids: Tensor) -> Tensor:
        kept = self.__dict__.setdefault("kept", {})
        key = ids.shape, ids.numpy().tobytes(), self.head.weight.dtype, torch.is_grad_enabled()
        if key not in kept:
            kept[key] = self.logits(ids)
        return kept[key].clone()


@pytest.mark.parametrize("model", [RowByRow(), StepByStep(), ComputesAgain(), Remembers()])
def test_models_that_compute_in_another_order_are_not_accused(model: nn.Module) -> None:
    claims = ["C1", "C6", "C9", "F1", "F2"]
    run = assay.check(model, claims=claims, profile="glance", attends="causal")
    assert not run.refuted
    assert {result.id for result in run.upheld} >= {"C1", "C6"}
