"""Types of every kind are built and run; what breaks is told and takes nothing else down."""

from __future__ import annotations

import os
import time

import pytest
import torch
from transformers import AutoConfig

from fixtures import families
from fixtures.families import KINDS, NotHere, kinds, model_types, survey, tiny
from fixtures.families.named import NAMED, NOT_ALONE
from harness.errors import BadInput
from harness.subject import Subject

SAMPLE = {
    # Hybrids, experts, latent and sparse attention, shared keys, a part of a larger configuration,
    # recurrences of several kinds, and types that the general table alone does not build.
    "causal": (
        *("bamba", "dbrx", "deepseek_v3", "dots3_note", "falcon_h1", "flint", "gemma3n_text"),
        *("lfm2", "mllama", "musicgen", "qwen3_next", "recurrent_gemma", "rwkv", "xlnet"),
        *("xlstm", "zamba2", "bart", "bert"),
    ),
    "masked": ("big_bird", "convbert", "deberta", "fnet", "neomme", "reformer", "xmod"),
    "seq2seq": ("bart", "led", "prophetnet", "switch_transformers"),
}
"""What is too slow for all 277 is done for these."""

PAIRS = [(model_type, kind) for kind, types in SAMPLE.items() for model_type in types]


@pytest.mark.parametrize(("model_type", "kind"), PAIRS)
def test_a_sample_of_every_kind_is_built_and_run(model_type, kind):
    row = survey.examined(model_type, kind)
    assert row.runs, row.why
    assert row.kind == kind
    assert row.parameters < 500_000
    assert set(row.ways) == {"ids", "embeddings", "batch"}


@pytest.mark.parametrize("model_type", ["bamba", "flint", "mllama", "qwen3_next", "falcon_h1"])
def test_every_kind_of_part_that_the_default_has_is_kept(model_type):
    assert parts(AutoConfig.for_model(model_type), model_type) <= parts(None, model_type)


def test_a_part_that_is_lost_would_be_noticed(monkeypatch):
    monkeypatch.delitem(NAMED, "flint")
    default = AutoConfig.for_model("flint")
    assert "FlintExperts" in parts(default, "flint") - parts(None, "flint")


def parts(config, model_type):
    """The classes of all modules of a causal model: of ``config``, or tiny."""
    if config is None:
        model = tiny(model_type, kind="causal")
    else:
        with torch.device("meta"):
            model = families._built(config, "causal")
    return {type(module).__name__ for module in model.modules()}


@pytest.mark.parametrize("model_type", sorted(NOT_ALONE))
def test_what_is_said_not_to_run_alone_does_not(model_type, monkeypatch):
    with pytest.raises(NotHere, match="cannot be run alone"):
        tiny(model_type)
    monkeypatch.delitem(NOT_ALONE, model_type)
    (kind,) = kinds(model_type)
    assert not survey.examined(model_type, kind).runs


def test_a_missing_package_is_told_apart_from_a_broken_type(monkeypatch):
    def lacking(*_):
        raise ImportError("needs abacus")

    monkeypatch.setattr(families, "shrunk", lacking)
    with pytest.raises(NotHere, match="needs abacus"):
        tiny("gpt2")
    monkeypatch.setattr(families, "shrunk", lambda *_: 1 / 0)
    with pytest.raises(BadInput, match="ZeroDivisionError") as broken:
        tiny("gpt2")
    assert not isinstance(broken.value, NotHere)


def test_an_encoder_can_be_asked_for_as_a_decoder():
    causal, usual = tiny("bert", kind="causal"), tiny("bert")
    assert type(causal).__name__ == "BertLMHeadModel"
    assert type(usual).__name__ == "BertForMaskedLM"
    ids = torch.arange(5, 15)[None]
    other = ids.clone()
    other[:, -1] += 1
    assert torch.equal(causal(ids).logits[:, :-1], causal(other).logits[:, :-1])
    assert not torch.equal(usual(ids).logits[:, :-1], usual(other).logits[:, :-1])


def test_every_entry_of_the_three_mappings_is_one_pair():
    pairs = survey.entries()
    assert len(pairs) == len(set(pairs)) == sum(len(model_types(kind)) for kind in KINDS)
    assert survey.entries(["bart"]) == [("bart", k) for k in ("causal", "masked", "seq2seq")]
    assert survey.entries(["bart"], "masked") == [("bart", "masked")]


@pytest.mark.parametrize(
    ("types", "kind", "words"),
    [
        (["lama"], None, "near: .*llama"),
        (["llama"], "masked", "'llama' has no masked model; it has causal"),
        ([], "sideways", "no kind 'sideways'"),
    ],
)
def test_what_is_not_there_is_refused(types, kind, words):
    with pytest.raises(BadInput, match=words):
        survey.entries(types, kind)


def test_a_model_that_gives_no_numbers_does_not_run():
    model = tiny("gpt2")
    torch.nn.init.constant_(model.transformer.ln_f.weight, float("nan"))
    ways = survey._ways(Subject("tiny:gpt2", model))
    assert ways["ids"] == "not finite: state 2, logits"


def test_a_type_that_crashes_or_hangs_does_not_take_the_others_down(monkeypatch):
    monkeypatch.setattr(survey, "_serve", misbehaving)
    rows = list(survey.survey([(t, "causal") for t in ("dies", "hangs", "a", "b")], limit=3.0))
    assert [row.model_type for row in rows] == ["dies", "hangs", "a", "b"]
    assert rows[0].why == "the process died (exit code 7)"
    assert rows[1].why == "did not end within 3 s"
    assert rows[2].runs
    assert rows[3].runs
    assert rows[2].name == rows[3].name  # one process for all that goes well
    assert rows[2].name != str(os.getpid())


def misbehaving(pipe):
    """As `survey._serve`: dies of one type and hangs at another."""
    pipe.send("ready")
    while True:
        model_type, kind, _probe = pipe.recv()
        if model_type == "dies":
            os._exit(7)
        if model_type == "hangs":
            time.sleep(60)
        pipe.send(survey.Row(model_type, kind, name=str(os.getpid())))
