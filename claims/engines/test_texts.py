"""What an engine generates is by its own scores, and its ids are the tokenizer's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from assay.fixtures import writing
from assay.fixtures.engines import requests
from assay.fixtures.serving import rejects, same
from assay.harness.checking.comparing import Unsettled
from assay.harness.checking.laws import law
from assay.harness.engines.bounds import plain
from assay.harness.engines.interface import PROCESSED, Sampling
from assay.harness.operations import corpus, tokens
from assay.harness.results.errors import Missing

TOKENS = 8
"""Of a text that an engine generates."""

TIE = 1e-5
"""Nats by which two log-probabilities in float32 of equal scores may differ."""

GREEDY = Sampling(TOKENS, temperature=0.0)


def generated(subject, ids, sampling):
    """The answer to one request; raises `Unsettled` if it is empty, `Missing` without scores."""
    (text,) = subject.generate([ids], sampling)
    if not text.ids:
        raise Unsettled("the text ended before its first token")
    if text.scores is None:
        raise Missing("engine-generated-scores: it gives none for the text that it generates")
    return text


@law(
    "I5",
    "scores while decoding are those of the finished text read again",
    needs=["engine-scores", "engine-generation", "engine-generated-scores"],
    source="beyond the documents; trl#4772, verl#2996",
    control="the scores of one position later",
)
@pytest.mark.parametrize("how", ["greedy", "sampled"])
def test_scores_while_decoding_are_those_of_the_finished_text(subject, how, draw, check):
    (ids,) = draw(requests(subject), "request")
    sampling = (
        GREEDY if how == "greedy" else Sampling(TOKENS, seed=draw(st.integers(0, 99), "seed"))
    )
    if how == "greedy" and subject.engine.reports == PROCESSED:
        raise Missing("engine-generated-scores: greedy search makes processed scores certain")
    text = generated(subject, ids, sampling)
    again, allowed = plain(subject, [*ids, *text.ids])
    if again.tokens is not None and text.scores.values.shape[1] == 1:
        raise Missing("engine-scores: the best scores alone need not have the chosen token")
    same(check, again, text.scores, allowed)
    rejects(check, again, text.scores.moved(1), allowed)


@law(
    "I6",
    "greedy search takes a token of its own largest score",
    needs=["engine-generation", "engine-generated-scores"],
    source="beyond the documents",
    control="the token of the second largest score",
)
def test_greedy_search_takes_a_token_of_its_own_largest_score(subject, draw, check):
    (ids,) = draw(requests(subject), "request")
    text = generated(subject, ids, GREEDY)
    values = text.scores.values
    if values.shape[1] == 1:
        raise Missing("engine-generated-scores: it gives the score of the chosen token alone")
    second, largest = np.partition(values, -2, axis=1)[:, -2:].T
    lost = largest - text.scores.of(text.ids)
    worst = int(np.argmax(lost))
    check.judge(float(lost[worst]), TIE, f"token {worst} of the text: nats below the largest")
    if check.wants():
        check.judge_control(float((largest - second).max()), TIE)


@law(
    "I8",
    "a text gets the ids of the model's tokenizer",
    needs=["engine-tokens", "engine-model-tokens"],
    source="beyond the documents; llama.cpp#23252",
    control="the first id twice",
)
def test_a_text_gets_the_ids_of_the_models_tokenizer(subject, draw, check):
    model = subject.against
    for text in [*draw(writing.many(model), "texts"), *corpus.LINES]:
        mine, theirs = subject.tokenize(text), tokens.of(model.tokenizer, text)
        check.judge(tokens.unlike(mine, theirs), 0.0, tokens.where(text, mine, theirs))
        if theirs:
            check.judge_control(tokens.unlike([*theirs[:1], *theirs], theirs), 0.0)


@law(
    "I8",
    "a chat gets the ids of the model's template",
    needs=["engine-chats", "engine-model-chats"],
    source="beyond the documents; sglang#26555",
    control="the first id twice",
)
def test_a_chat_gets_the_ids_of_the_models_template(subject, draw, check):
    chat = draw(writing.chats("user"), "chat")
    mine = subject.chat(chat)
    theirs = tokens.of_chat(subject.against, chat, add_generation_prompt=True)
    text = tokens.rendered(subject.against, chat, add_generation_prompt=True)
    check.judge(tokens.unlike(mine, theirs), 0.0, tokens.where(text, mine, theirs))
    check.judge_control(tokens.unlike([*theirs[:1], *theirs], theirs), 0.0)
