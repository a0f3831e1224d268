"""Assay's own engine: a model of transformers in this process, which errs as it is told.

It has a prefix cache, batches requests, and decodes with a cache, each in the plainest way.  Its
faults are those of real engines; tests inject each and see which law breaks.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from assay.harness.engines.interface import (
    PROCESSED,
    Chat,
    Engine,
    Generated,
    Ids,
    Sampling,
    Scores,
)
from assay.harness.engines.sampling import processed
from assay.harness.models import capabilities
from assay.harness.models.machine.devices import dtype_name
from assay.harness.models.machine.shortage import ENDS, pass_on
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput

SLOTS = 4
"""Requests whose caches are kept."""

FROM = 8
"""Requests from which on the fault ``mixed-rows`` strikes."""

NARROW = 12
"""Tokens that the fault ``cut`` samples from."""


class Own(Engine):
    """A model as an engine, with a ``fault`` (`harness.faults.engines`) or without."""

    name = "Assay's own engine"

    def __init__(self, model: Subject, fault: str | None = None) -> None:
        self.model, self.fault = model, fault
        self.vocabulary, self.context = model.vocabulary, model.context
        self.dtype, self.identity = dtype_name(model.dtype), f"{model.digest} {fault}"
        self.routed = "router gap" in model.rows(torch.tensor([[1, 2]]), states=False).tensors
        self.lacks: dict[str, str] = {}
        has = capabilities.probe(model)
        if (why := has.why_missing("chunks-beside-cache")) is not None:
            self.lacks |= {"engine-prefix-cache": why}
        self._steps = "recurrence" in has
        if model.tokenizer is None:
            without = f"{model.name} has no tokenizer"
            self.lacks |= {"engine-tokens": without, "engine-chats": without}
        elif not getattr(model.tokenizer, "chat_template", None):
            self.lacks |= {"engine-chats": f"{model.name} has no chat template"}
        if fault == "reports-otherwise":
            self.reports = PROCESSED
        if fault == "moved-weight":
            self.model = replace(model, model=_with_a_moved_weight(model.model))
        if fault in ("no-normaliser", "bos-twice") and not self._has(fault):
            raise BadInput(f"{model.name}+{fault}: its tokenizer has nothing that this changes")
        self._calls = 0
        self.restart()

    def _has(self, fault: str) -> bool:
        """Whether the tokenizer has the normaliser, or BOS, that a fault is about."""
        tokenizer: Any = self.model.tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        has = getattr(backend, "normalizer", None), getattr(tokenizer, "bos_token_id", None)
        return has[fault == "bos-twice"] is not None

    def restart(self) -> None:
        """Forget all prefixes."""
        self._kept: list[tuple[Ids, Any]] = []

    # -- scores -------------------------------------------------------------------------------

    def scores(self, requests: Sequence[Ids], *, cold: bool = True) -> Sequence[Scores]:
        """One padded pass for all, or one for each after its longest cached prefix."""
        if not cold:
            return [self._warm(list(ids)) for ids in requests]
        longest = max(map(len, requests))
        ids = torch.tensor([[*each, *[0] * (longest - len(each))] for each in requests])
        logits = self._pass(ids)[0]
        if self.fault == "mixed-rows" and len(requests) >= FROM:
            logits = 0.9 * logits + 0.1 * logits.roll(1, 0)
        rows = zip(logits, requests, strict=True)
        return [Scores(self._said(row[: len(each)])) for row, each in rows]

    def _pass(self, ids: Tensor, past: int = 0, cache: Any = None) -> tuple[Tensor, Any]:
        """Logits [batch, n, V] and the cache after ``ids``, after ``past`` ids in ``cache``."""
        positions = torch.arange(past, past + ids.shape[1])[None]
        if self.fault == "positions-from-end":
            positions = positions.flip(1)
        if self.fault == "shifted-positions" and past:
            positions = positions + 1
        output = self.model(
            ids, positions=positions.expand_as(ids), cache=cache, keep=True, states=False
        )
        return output.rows["logits"], output.cache

    def _said(self, logits: Tensor) -> Tensor:
        if self.fault != "noise":
            return logits
        self._calls += 1
        chance = torch.Generator().manual_seed(self._calls)
        return logits + 1e-3 * torch.randn(logits.shape, generator=chance)

    def _warm(self, ids: Ids) -> Scores:
        begun = [(_common(ids, kept), kept, each) for kept, each in self._kept]
        past, kept, cache = max(begun, key=lambda each: each[0], default=(0, [], None))
        stale = self.fault == "stale-entry" and past > 0
        past = min(past + stale, len(ids) - 1, len(kept))
        if past and (cache := self._cut(cache, len(kept) - past)) is None:
            past = 0
        cache = cache if past else None
        # After several tokens at once, models of transformers begin a new recurrent state.
        rest, rows = torch.tensor([ids[past:]]), list[Tensor]()
        for chunk in rest.split(1 if past and self._steps else len(ids), 1):
            logits, cache = self._pass(chunk, past + len(rows), cache)
            rows += logits[0]
        self._kept = [*self._kept[1 - SLOTS :], (ids, cache)]
        return Scores(self._said(torch.stack(rows)), first=past)

    def _cut(self, cache: Any, surplus: int) -> Any:
        """A copy of a cache without its last ``surplus`` tokens; None where it cannot forget."""
        cache = copy.deepcopy(cache)
        try:
            if surplus:
                cache.crop(-surplus)
        except ENDS as error:  # some layers keep a window, or a state
            pass_on(error)
            return None
        self._damaged(cache)
        return cache

    def _damaged(self, cache: Any, decoding: bool = False) -> None:
        for layer in cache.layers:
            if self.fault == "cache-8-bits":
                layer.keys, layer.values = map(_in_8_bits, (layer.keys, layer.values))
            elif self.fault == "last-entry" and decoding:
                layer.keys, layer.values = layer.keys.clone(), layer.values.clone()
                layer.keys[..., -1, :] *= 1.01
                layer.values[..., -1, :] *= 1.01

    # -- text ---------------------------------------------------------------------------------

    def generate(self, requests: Sequence[Ids], sampling: Sampling) -> Sequence[Generated]:
        """Decode with a cache, requests of one length together."""
        lengths = {len(each) for each in requests}
        if len(lengths) > 1:
            return [self.generate([each], sampling)[0] for each in requests]
        ids, start = torch.tensor([list(each) for each in requests]), lengths.pop()
        chance = torch.Generator().manual_seed(sampling.seed)
        logits, cache = self._pass(ids)
        rows = []
        for step in range(sampling.tokens):
            if step:
                self._damaged(cache, decoding=True)
                logits, cache = self._pass(ids[:, -1:], start + step - 1, cache)
            row = self._said(logits[:, -1])
            rows.append(row)
            ids = torch.cat([ids, self._chosen(row, ids, sampling, chance)], 1)
        scores = torch.stack(rows, 1)
        return [
            Generated(new[start:].tolist(), Scores(each, first=start - 1))
            for new, each in zip(ids, scores, strict=True)
        ]

    def _chosen(
        self, row: Tensor, ids: Tensor, sampling: Sampling, chance: torch.Generator
    ) -> Tensor:
        if not sampling.temperature:
            return (
                row.topk(2).indices[:, 1:] if self.fault == "second" else row.argmax(-1)[:, None]
            )
        logits = row / sampling.temperature if self.fault == "temperature-twice" else row
        scores = processed(logits, ids, sampling)
        if self.fault == "cut":
            least = scores.topk(NARROW).values[:, -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        return torch.multinomial(scores.softmax(-1), 1, generator=chance)

    def tokenize(self, text: str) -> Ids:
        """By the model's tokenizer."""
        return self._begun(list(self._tokenizer(text)["input_ids"]))

    def chat(self, messages: Chat) -> Ids:
        """By the model's template."""
        tokenizer = self._tokenizer
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return self._begun(list(tokenizer(text, add_special_tokens=False)["input_ids"]))

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer: Any = copy.deepcopy(self.model.tokenizer)
        if self.fault == "no-normaliser":
            tokenizer.backend_tokenizer.normalizer = None
        return tokenizer

    def _begun(self, ids: Ids) -> Ids:
        return [self._tokenizer.bos_token_id, *ids] if self.fault == "bos-twice" else ids


def _common(one: Ids, other: Ids) -> int:
    """How many ids two requests begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _with_a_moved_weight(model: Any) -> Any:
    model = copy.deepcopy(model)
    weight = model.get_output_embeddings().weight
    with torch.no_grad():
        weight.view(-1)[weight.numel() // 2] += 0.5
    return model


def _in_8_bits(tensor: Tensor) -> Tensor:
    scale = tensor.abs().amax() / 127
    return (tensor / scale).round() * scale
