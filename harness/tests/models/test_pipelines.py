"""What the stages of a tokenizer keep, and what its tokens stand for."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from assay.harness.models.capabilities import pipelines
from assay.harness.tests.support import text_models
from assay.harness.tests.support.toys import toy


def test_bytes_have_the_letters_of_byte_level_tokens():
    assert len(pipelines.LETTERS) == 256
    assert sorted(pipelines.LETTERS.values()) == list(range(256))
    assert pipelines.LETTERS["Ġ"] == ord(" ")
    assert pipelines.LETTERS["Ċ"] == ord("\n")


@pytest.mark.parametrize(
    ("content", "text", "token", "written"),
    [
        (text_models.byte_level(), " é", "Ã©", "é"),
        (text_models.metaspace(), "€", "<0xE2>", "€"),
        (text_models.word_piece(), "fox", "fox", "fox"),
    ],
)
def test_a_token_stands_for_bytes(content, text, token, written):
    tokenizer = Tokenizer.from_str(content)
    expected = written.encode()[: len(pipelines.written(tokenizer, token))]
    assert pipelines.written(tokenizer, token) == expected


def test_stages_are_told_one_by_one():
    tokenizer = Tokenizer.from_str(text_models.metaspace("normaliser"))
    assert [stage["type"] for stage in pipelines.stages(tokenizer.normalizer)] == [
        "Prepend",
        "Replace",
    ]
    assert pipelines.stages(tokenizer.pre_tokenizer) == []


def test_signs_for_spaces_are_no_normalisation():
    marked = pipelines.normaliser(Tokenizer.from_str(text_models.metaspace("normaliser")))
    assert marked("a b") == "a b"
    lower = pipelines.normaliser(Tokenizer.from_str(text_models.word_piece()))
    assert lower("Été") == "ete"


def test_the_models_own_file_is_known():
    assert pipelines.own_file(toy("chat")).name == pipelines.FILE
    assert pipelines.contradiction(toy("chat")) == ""
