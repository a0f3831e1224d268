"""What users reported (docs/coverage.md): laws that catch it, on sound and on damaged models."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AttentionInterface, GenerationMixin
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from assay.claims.cache import test_execution
from assay.claims.running import test_drafts, test_serving
from assay.harness.operations import generation
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import budget, fresh, verdict, with_settings

TRAINED = test_serving.test_a_model_that_is_served_is_trained_as_otherwise
KEPT = test_drafts.test_drafts_change_nothing_on_a_kept_prefix
DRAFTS = test_drafts.test_drafted_tokens_change_nothing
ATTENTION = test_execution.test_attention_implementations_agree


def test_a_model_that_sees_the_future_while_it_is_served_is_refuted():
    """docs/defects/served_eager_models_see_the_future.py; 5.23 refuses such passes."""
    result = verdict(TRAINED, fresh("gpt_oss"), budget(3))
    assert result.verdict is Verdict.REFUTED, result.reason


@pytest.fixture(params=[0, 1], ids=["as wide", "one wider"])
def windowed(request):
    """An implementation of attention that makes its window itself, as flash attention does."""
    name = f"windowed_{request.param}"

    def attend(module: Any, query: Any, key: Any, value: Any, mask: Any, **named: Any) -> Any:
        width = named.get("sliding_window")
        if width is not None and mask is not None:
            n, keys = query.shape[-2], key.shape[-2]
            apart = torch.arange(keys - n, keys)[:, None] - torch.arange(keys)
            mask = (apart >= 0) & (apart < width + request.param) & mask.any(-2, keepdim=True)
        elif mask is None:
            mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
        return AttentionInterface()["sdpa"](module, query, key, value, mask, **named)

    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, sdpa_mask)
    yield name, request.param
    AttentionInterface._global_mapping.pop(name, None)
    AttentionMaskInterface._global_mapping.pop(name, None)


def test_a_backend_whose_window_is_longer_is_caught(windowed):
    name, longer = windowed
    result = verdict(ATTENTION, fresh("mistral"), budget(6), arguments={"implementation": name})
    wanted = Verdict.REFUTED if longer else Verdict.UPHELD
    assert result.verdict is wanted, result.reason


def test_bitwise_drafts_must_choose_the_same_tokens_in_near_ties(monkeypatch):
    usual = generation.scores

    def tied(subject, ids, mode, cached, **options):
        """Of drafted tokens the last is another, which is nearly as likely."""
        made = usual(subject, ids, mode, cached, **options)
        if mode != "assisted":
            return made
        best = made.rows["logits"][:, -1].topk(2).indices[:, 1:]
        return replace(made, ids=torch.cat([made.ids[:, :-1], best.to(made.ids)], 1))

    monkeypatch.setattr(generation, "scores", tied)
    monkeypatch.setattr(generation, "near_tie", lambda *_: 1.0)
    arguments = {"drafter": "early exit"}
    allowed = verdict(DRAFTS, fresh("llama"), budget(3), arguments=arguments)
    assert "tokens: share that differ" not in allowed.reason
    strict = with_settings(fresh("llama"), bitwise=True)
    result = verdict(DRAFTS, strict, budget(3), arguments=arguments)
    assert result.verdict is Verdict.REFUTED
    assert "tokens: share that differ" in result.reason


def test_drafts_read_a_kept_prefix_again_until_that_is_fixed():
    script = Path(__file__).parents[3] / "docs/defects/drafts_read_a_kept_prefix_again.py"
    broken = verdict(KEPT, fresh("llama"), budget(3))
    assert broken.verdict is Verdict.REFUTED, broken.reason
    function = inspect.unwrap(GenerationMixin._assisted_decoding)
    usual = function.__code__
    scope: dict[str, Any] = {}
    exec(script.read_text().partition('if "--fixed"')[0], scope)
    scope["fix"]()
    try:
        fixed = verdict(KEPT, fresh("llama"), budget(3))
    finally:
        function.__code__ = usual
    assert fixed.verdict is Verdict.UPHELD, fixed.reason
