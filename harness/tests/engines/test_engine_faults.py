"""Every fault of an engine is caught by a law that it breaks; sound engines keep all of them."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
from tokenizers import normalizers

from assay.claims.engines import test_scores
from assay.harness.engines.own import Own
from assay.harness.engines.subject import subject_of
from assay.harness.faults.engines import ENGINE_FAULTS
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.engines import loaded, results

MODELS = {"positions-from-end": "tiny:gpt2"}
"""Models on which a fault shows, where that is not `chat`: rotary positions are relative."""


def normalising() -> Subject:
    """The model `chat` with a tokenizer that normalises text."""
    model = loaded("chat")
    tokenizer = deepcopy(model.tokenizer)
    tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()
    return replace(model, tokenizer=tokenizer)


def caught(fault: str, beside: bool) -> None:
    """Each law that must catch the fault is refuted, beside the model or alone."""
    claims = ENGINE_FAULTS[fault].caught_by
    model = normalising() if fault == "no-normaliser" else loaded(MODELS.get(fault, "chat"))
    subject = subject_of("engine:own", Own(model, fault), model if beside else None)
    rows = results(subject, claims)
    for claim in claims:
        verdicts = [each.verdict for each in rows if each.id == claim]
        assert Verdict.REFUTED in verdicts, (claim, verdicts)
        assert claim != "I8" or {*verdicts} == {Verdict.REFUTED}, "texts and chats"


def kept(model: str, dtype: str) -> None:
    """No law or finding is refuted or undecided on a sound engine."""
    rows = results(loaded(f"engine:own:{model}", model, dtype))
    bad = (Verdict.REFUTED, Verdict.INCONCLUSIVE)
    assert {each.name: each.reason for each in rows if each.verdict in bad} == {}
    assert sum(each.verdict is Verdict.UPHELD for each in rows) >= 21


@pytest.mark.parametrize("fault", ENGINE_FAULTS)
def test_a_fault_breaks_the_law_that_must_catch_it(fault: str) -> None:
    caught(fault, beside=True)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "fault",
    [name for name, fault in ENGINE_FAULTS.items() if not {"I8", "I9"} & {*fault.caught_by}],
)
def test_a_fault_is_caught_without_a_model_to_compare_with(fault: str) -> None:
    caught(fault, beside=False)


def test_a_sound_engine_keeps_every_law() -> None:
    kept("chat", "float32")


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("model", ["tiny:qwen3", "tiny:mistral", "tiny:gpt_neox", "tiny:olmo2"])
def test_sound_engines_of_other_types_keep_every_law(model: str, dtype: str) -> None:
    kept(model, dtype)


@pytest.mark.parametrize("model", ["tiny:mamba", "tiny:jamba"])
def test_a_recurrent_state_is_continued_after_a_cached_prefix(model: str) -> None:
    rows = results(loaded(f"engine:own:{model}", model), ["I4"])
    assert {each.verdict for each in rows} == {Verdict.UPHELD}


def test_the_histories_of_a_prefix_end_with_the_request() -> None:
    ids, changed = [1, 2, 3, 4, 5], [1, 2, 6, 7, 8]
    for before, history in test_scores.HISTORIES.items():
        assert history(ids, 2, changed)[-1] == ids, before
