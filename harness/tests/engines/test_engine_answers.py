"""Answers of engines: as log-probabilities, how far apart, and which are rejected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import assay
from assay.harness.engines import middle, registry
from assay.harness.engines.interface import Engine, Generated, Sampling, Scores, parts
from assay.harness.engines.own import Own
from assay.harness.engines.sampling import misfit, places, processed
from assay.harness.engines.scores import Rows, apart, rows_of
from assay.harness.engines.subject import subject_of
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.engines import (
    documented,
    loaded,
    results,
    server,
)

LOGITS = torch.randn(3, 16, generator=torch.Generator().manual_seed(0)).double()
whole = partial(rows_of, vocabulary=16, name="x")


def test_logits_and_log_probabilities_are_the_same_scores() -> None:
    one, other = whole(Scores(LOGITS + 5.0)), whole(Scores(LOGITS.log_softmax(-1).tolist()))
    assert apart(one, other).error < 1e-12
    assert other.shift == pytest.approx(0.0, abs=1e-12)
    assert 0.01 < apart(whole(Scores(LOGITS * 1.01)), one).error < 0.02


def test_rows_are_compared_where_both_have_them() -> None:
    rows = whole(Scores(LOGITS))
    assert apart(rows.at(0, 2), rows.at(1, 3)).error == 0.0
    assert apart(rows.at(0, 1), rows.at(1, 3)) is None
    assert apart(rows, rows.moved(1)).error > 0.1


def test_a_best_k_is_compared_by_the_tokens_that_it_lists() -> None:
    rows = whole(Scores(LOGITS))
    values, tokens = (each.numpy() for each in torch.from_numpy(rows.values).topk(4))
    best = Rows(values, tokens)
    assert apart(best, rows).error == apart(rows, best).error == 0.0
    assert apart(best, Rows(values[:, :2], tokens[:, :2])).error == 0.0
    damaged = Rows(values + np.eye(4)[0], tokens)
    known = replace(best, spread=rows.spreads)
    for one, other in ((damaged, rows), (rows, damaged), (damaged, known), (known, damaged)):
        least = max(1.0, rows.spreads.min())
        assert apart(one, other).error == pytest.approx(0.5 / least, rel=0.2)
    wide = replace(best, spread=np.full(3, 4.0))
    assert apart(damaged, wide).error == pytest.approx(0.5 / 4.0)
    assert apart(damaged, best).error == pytest.approx(0.5 / values.std(1).clip(1.0).min())
    assert best.of(tokens[:, 1]) == pytest.approx(values[:, 1])


def test_a_chosen_token_beside_the_best_bounds_no_other() -> None:
    rows = whole(Scores(LOGITS))
    values, tokens = (each.numpy() for each in torch.from_numpy(rows.values).topk(4))
    worst, last = (each.numpy() for each in torch.from_numpy(rows.values).min(1, keepdim=True))
    chosen = Rows(np.hstack([values[:, :3], worst]), np.hstack([tokens[:, :3], last]))
    assert apart(chosen, Rows(values, tokens)).error == 0.0
    one, other = (Rows(values[:, i : i + 1], tokens[:, i : i + 1]) for i in (0, 1))
    assert apart(one, other).error > 0.0
    damaged = Rows(chosen.values + np.eye(4)[0], chosen.tokens)
    assert apart(damaged, Rows(values, tokens)).error > 0.3


def test_nan_is_infinitely_far() -> None:
    rows = whole(Scores(LOGITS))
    broken = Rows(np.where(np.arange(16) == 3, math.nan, rows.values))
    assert apart(broken, rows).error == math.inf


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (Scores([[0.0] * 15]), "rows have 15 scores and no tokens"),
        (Scores([0.0] * 16), "of shape"),
        (Scores([[-1.0, -1.0]], [[1, 16]]), "ids outside of 0 to 15"),
        (Scores([[-1.0, -1.0]], [[1]]), "tokens have"),
        (Scores([[3.0, 1.0]], [[1, 2]]), "add up to"),
    ],
)
def test_what_is_no_score_is_rejected(scores: Scores, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        whole(scores)


def test_types_by_the_names_of_libraries() -> None:
    names = ["f16", "q8_0", "fp8_e4m3", "int8", "q4_0", "bfloat16", "f32"]
    kinds = ["float16", *["8 bits"] * 3, "fewer bits", "bfloat16", "float32"]
    assert [middle.kind(each) for each in names] == kinds
    assert parts("a/model.gguf,cache=q8_0,threads=2") == (
        "a/model.gguf",
        {"cache": "q8_0", "threads": "2"},
    )


def test_places_of_sampled_tokens_are_uniform() -> None:
    chance = torch.Generator().manual_seed(0)
    logits = torch.randn(2000, 50, generator=chance)
    sampling = Sampling(1, temperature=0.7, top_k=20, top_p=0.9)
    asked = processed(logits, torch.zeros(2000, 1, dtype=torch.int64), sampling).softmax(-1)
    chosen = torch.multinomial(asked, 1, generator=chance)[:, 0]
    low, high = misfit.interval(places(asked, chosen, chance), 0.95)
    assert low == 0.0
    assert high < 0.02
    low, _ = misfit.interval(places(logits.double().softmax(-1), chosen, chance), 0.95)
    assert low > 0.05


def test_sampling_is_that_of_transformers() -> None:
    from transformers.generation import logits_process as library

    logits, ids = LOGITS.float()[:1], torch.tensor([[3, 3, 5]])
    theirs = library.RepetitionPenaltyLogitsProcessor(1.3)(ids, logits.clone())
    theirs = library.TemperatureLogitsWarper(0.7)(ids, theirs)
    theirs = library.TopKLogitsWarper(9)(ids, theirs)
    theirs = library.TopPLogitsWarper(0.8)(ids, theirs)
    mine = processed(logits, ids, Sampling(1, 0.7, 9, 0.8, 1.3))
    assert torch.allclose(mine.softmax(-1).float(), theirs.softmax(-1), atol=1e-6)


class Constant(Engine):
    """An engine whose every score is 0."""

    vocabulary = 16
    rows: Callable[[int], int] = staticmethod(lambda n: n)

    def scores(self, requests, *, cold=True):
        return [Scores(np.zeros((self.rows(len(ids)), 16))) for ids in requests]


class Opened(Constant):
    """The same, by a path."""

    def __init__(self, what: str) -> None:
        pass


def test_what_an_engine_lacks_is_named_and_its_claims_do_not_apply() -> None:
    rows = results(subject_of("constant", Constant()), ["I1", "I5", "I8"])
    reasons = {each.name: each.reason for each in rows}
    assert "engine does not implement generate" in str(reasons)
    assert "does not implement tokenize" in str(reasons)
    assert {each.verdict for each in rows if each.id != "I1"} == {Verdict.NOT_APPLICABLE}


def test_an_engine_that_says_nothing_breaks_no_law_unseen() -> None:
    """All scores are equal, so the control of I2 passes: the law is not upheld."""
    (law,) = results(subject_of("constant", Constant()), ["I2"])
    assert law.verdict is Verdict.INCONCLUSIVE
    assert "control passed" in law.reason


def test_bad_engines_are_rejected_in_one_line() -> None:
    short = type("Short", (Constant,), {"rows": staticmethod(lambda n: n - 1)})
    for engine, message in (
        (short(), "answers with 2 positions in place of 3"),
        (Engine(), "has a vocabulary of 0"),
        ("text", "is a str, and no Engine"),
    ):
        with pytest.raises(BadInput, match=message):
            subject_of("bad", engine)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("engine:nobodys:x", "no such engine; there are own"),
        ("engine:own:chat+stale", "no fault 'stale'; there are stale-entry"),
        ("engine:own:/no/such/folder", "no such folder"),
        ("engine:own:chat+no-normaliser", "its tokenizer has nothing that this changes"),
        ("engine:own:tiny:gpt2+bos-twice", "its tokenizer has nothing that this changes"),
        ("engine:", "names nothing"),
    ],
)
def test_unknown_engines_are_rejected(spec: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        loaded(spec)


def test_a_library_that_is_not_installed_is_named(monkeypatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "gone", "no_such_package.engine:Engine")
    with pytest.raises(BadInput, match="engine:gone: a package is not installed"):
        loaded("engine:gone:x")


def test_only_an_engine_has_a_model_against_it() -> None:
    with pytest.raises(BadInput, match="tiny:gpt2 is no engine"):
        loaded("tiny:gpt2", against="tiny:gpt2")
    with pytest.raises(BadInput, match="same ids cannot go to both"):
        loaded("engine:own:chat", against="tiny:gpt2")


def test_evidence_is_of_the_content_that_an_engine_serves(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "constant", f"{__name__}:Opened")
    digests = set()
    for content in ("one", "other", "one"):
        (tmp_path / "weights.bin").write_text(content)
        digests.add(loaded(f"engine:constant:{tmp_path},threads=1").digest)
    assert len(digests) == 2
    digests |= {loaded(f"engine:constant:{tmp_path / 'weights.bin'},threads=1").digest}
    model, moved = loaded("chat"), loaded("chat")
    moved.digest = "another"
    digests |= {subject_of("own", Own(each)).digest for each in (model, moved, model)}
    assert len(digests) == 5


# -- the class of docs/own-engine.md, and a server ------------------------------------------------


def test_the_documented_engine_keeps_the_laws_of_a_sound_server() -> None:
    model = loaded("chat")
    with server(loaded("engine:own:chat").engine) as address:
        subject = subject_of("mine", documented()(address), model)
        rows = results(subject, ["I1", "I2", "I5", "I6", "I8"])
    verdicts = {each.name: each.verdict.value for each in rows}
    assert set(verdicts.values()) == {"upheld", "not applicable"}
    assert sum(verdict == "upheld" for verdict in verdicts.values()) == 7


@pytest.mark.parametrize(
    ("damage", "claim", "verdict", "words"),
    [
        ("error", "I1", "inconclusive", "HTTP Error 500"),
        ("text", "I1", "inconclusive", "Expecting value"),
        ("slow", "I1", "inconclusive", "timed out"),
        ("rows", "I1", "inconclusive", "positions in place of"),
        ("NaN", "I1", "refuted", "observed inf"),
        ("ids", "I6", "inconclusive", "generates ids outside"),
        ("no log-probabilities", "I6", "inconclusive", "KeyError: 'logprobs'"),
    ],
)
def test_a_bad_server_is_the_reason_of_the_row(damage, claim, verdict, words) -> None:
    with server(loaded("engine:own:chat").engine, damage) as address:
        mine = documented()
        if damage == "slow":
            text = mine.post.__code__.co_consts
            mine.post.__code__ = mine.post.__code__.replace(
                co_consts=tuple(0.2 if each == 60.0 else each for each in text)
            )
        rows = results(subject_of("mine", mine(address)), [claim])
    assert rows[0].verdict.value == verdict
    assert words in rows[0].reason


def test_a_server_that_is_not_there_is_one_line() -> None:
    with pytest.raises(assay.BadInput, match="Connection refused"):
        documented()("http://127.0.0.1:9")


def test_an_engine_in_python() -> None:
    run = assay.check(assay.engine("own", "chat"), claims=["I2"], against="chat", profile="glance")
    assert run.require().upheld[0].id == "I2"
    with pytest.raises(assay.BadInput, match="no such claim here; there are I1"):
        assay.check(assay.engine("own"), claims=["C1"])
    with pytest.raises(assay.BadInput, match="is for engines"):
        assay.check("chat", against="chat")


def test_generated_text_is_given_with_its_scores() -> None:
    (text,) = loaded("engine:own:chat").generate([[3, 4, 5]], Sampling(4, temperature=0.0))
    assert len(text.ids) == len(text.scores) == 4
    assert text.scores.first == 2
    assert isinstance(Generated([1]).scores, type(None))
