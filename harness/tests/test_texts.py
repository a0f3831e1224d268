"""Prompts of findings: where they come from, how long they are, and when there are none."""

from __future__ import annotations

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from fixtures import reference, texts
from fixtures.texts import LENGTHS, RANDOM, TEXT, prompts
from harness.capabilities import Missing
from harness.draws import Draws
from harness.findings import Bound, finding
from harness.statistics import share
from harness.subject import Subject
from harness.tests.toys import fresh, toy, verdict
from harness.verdicts import Verdict

DRAWS = Draws(0, "X1", range(40))
SOURCES = pytest.mark.parametrize("source", [TEXT, RANDOM])


def reader():
    """An untrained model with the reference's tokenizer."""
    return toy("untrained:small:0")


def drawn(subject, source, draws=DRAWS, **how):
    """Every prompt by the number of its draw."""
    given = prompts(subject, source, draws, **how)
    return {i: row.tolist() for each in given for i, row in zip(each.draws, each.ids, strict=True)}


def with_tokenizer(tokenizer):
    return Subject("odd", reader().model, tokenizer)


# What is drawn.


@SOURCES
def test_every_draw_has_a_prompt_of_its_number_s_length(source):
    found = drawn(reader(), source)
    assert sorted(found) == list(range(40))
    assert all(len(row) == LENGTHS[i % 4] for i, row in found.items())


@SOURCES
def test_prompts_of_one_length_come_together(source):
    given = list(prompts(reader(), source, DRAWS))
    assert [each.length for each in given] == list(LENGTHS)
    assert [each.ids.shape for each in given] == [(10, n) for n in LENGTHS]
    assert list(given[1].draws)[:3] == [1, 5, 9]


@SOURCES
def test_lengths_that_no_draw_has_are_left_out(source):
    assert [each.length for each in prompts(reader(), source, Draws(0, "X1", [2, 6]))] == [24]
    assert {len(row) for row in drawn(reader(), source, lengths=[30]).values()} == {30}


@SOURCES
def test_a_prompt_is_the_same_in_every_block_and_another_by_seed_and_claim(source):
    whole = drawn(reader(), source)
    parts = [drawn(reader(), source, Draws(0, "X1", range(k, k + 8))) for k in range(0, 40, 8)]
    assert whole == {i: row for part in parts for i, row in part.items()}
    for other in (Draws(1, "X1", range(40)), DRAWS.of("X2")):
        assert sum(drawn(reader(), source, other)[i] == whole[i] for i in whole) < 4


def inside_a_document(row, documents):
    """Whether the ids of ``row`` stand one after another in a document."""
    words = f" {' '.join(map(str, row))} "
    return any(words in f" {' '.join(map(str, ids.tolist()))} " for ids in documents)


def test_text_lies_inside_one_held_out_document():
    documents = texts.held_out(reader())
    found = drawn(reader(), TEXT).values()
    assert all(inside_a_document(row, documents) for row in found)
    assert not any(inside_a_document(row, documents) for row in drawn(reader(), RANDOM).values())


def test_a_prompt_over_the_end_of_a_document_is_not_inside_one():
    one, other = texts.held_out(reader())[:2]
    across = torch.cat([one[-6:], other[:6]]).tolist()
    assert inside_a_document(across[:6], texts.held_out(reader()))
    assert not inside_a_document(across, texts.held_out(reader()))


def test_held_out_text_is_what_the_tokenizer_makes_of_it():
    tokenizer = reader().tokenizer
    document, ids = reference.held_out_sample()[0], texts.held_out(reader())[0]
    assert tokenizer.decode(ids) == document.text
    assert not set(ids.tolist()) & set(tokenizer.all_special_ids)


def test_prompts_come_from_many_documents_and_places():
    starts = {tuple(row[:5]) for row in drawn(reader(), TEXT).values()}
    assert len(starts) > 35


@pytest.mark.parametrize("spec", ["gpt2", "llama", "untrained:small:0"])
def test_random_tokens_are_in_the_vocabulary_and_none_is_padding(spec):
    subject = toy(spec)
    ids = torch.cat([each.ids.flatten() for each in prompts(subject, RANDOM, DRAWS)])
    assert ids.min() >= 0
    assert ids.max() < subject.vocabulary
    assert len(ids.unique()) > 0.5 * min(len(ids), subject.vocabulary)
    assert subject.config.pad_token_id not in ids.unique().tolist()


# When there are none.


def test_without_a_tokenizer_there_is_no_text_and_there_are_random_tokens():
    with pytest.raises(Missing, match=r"^tokenizer: no tokenizer came with the model"):
        drawn(toy("gpt2"), TEXT)
    assert len(drawn(toy("gpt2"), RANDOM)) == 40


def test_a_finding_on_text_names_the_missing_tokenizer():
    def body(subject, draws, sample):
        for prompt in prompts(subject, TEXT, draws):
            sample.add(effect=prompt.ids[:, 0] >= 0, control=prompt.ids[:, 0] < 0)

    bound = Bound(share, at_least=0.9)
    test = finding("X1", "says", source="here", bound=bound, control="the control")(body)
    missing = verdict(test, toy("gpt2"))
    assert missing.verdict is Verdict.NOT_APPLICABLE
    assert missing.reason.startswith("tokenizer: ")
    assert verdict(test, reader()).verdict is Verdict.UPHELD


def emptied():
    """A tokenizer that has no token for anything."""
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))


def test_a_tokenizer_that_makes_nothing_of_text_is_a_missing_one():
    subject = with_tokenizer(emptied())
    assert subject.tokenizer("some words")["input_ids"] == []
    with pytest.raises(Missing, match=r"^tokenizer: no held-out document has 5 of its tokens"):
        drawn(subject, TEXT)


def test_a_tokenizer_of_more_tokens_than_the_model_has_is_a_missing_one():
    """Its text has ids that the embedding has no row for."""
    subject = Subject("small", fresh("gpt2").model, reader().tokenizer)
    assert subject.vocabulary < len(subject.tokenizer)
    with pytest.raises(Missing, match=r"^tokenizer: no held-out document"):
        drawn(subject, TEXT)


def test_a_length_that_no_document_has_is_named():
    with pytest.raises(Missing, match="no held-out document has 100000 of its tokens"):
        texts.text(reader(), DRAWS, 100_000)


@SOURCES
def test_lengths_beyond_the_context_are_left_out(source):
    found = drawn(of_context(30), source)
    assert {i: len(row) for i, row in found.items()} == {i: LENGTHS[i % 3] for i in range(40)}
    assert {len(row) for row in drawn(of_context(48), source).values()} == set(LENGTHS)


@SOURCES
def test_a_context_shorter_than_every_prompt_is_named(source):
    with pytest.raises(Missing, match="the context of 4 tokens is shorter than 5"):
        drawn(of_context(4), source)
    with pytest.raises(Missing, match="shorter than 132"):
        drawn(of_context(131), source, lengths=[132])


def of_context(tokens):
    subject = with_tokenizer(reader().tokenizer)
    subject.context = tokens
    return subject
