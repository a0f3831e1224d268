"""A folder's tokenizer is loaded with it, or refused if it does not fit the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.harness.models.loading.loading import load
from assay.harness.tests.support.folders import VOCABULARY, byte_pairs
from assay.harness.tests.support.loading import PLAIN, refused


def test_the_tokenizer_of_a_folder_comes_with_it(saved: dict[str, Path]) -> None:
    tokenizer = load(str(saved["gpt2"]), **PLAIN).tokenizer
    text = "the cat sat on the rug"
    assert tokenizer is not None
    assert tokenizer(text)["input_ids"] == byte_pairs()(text)["input_ids"]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_a_folder_may_have_no_tokenizer(saved: dict[str, Path]) -> None:
    assert load(str(saved["llama"]), **PLAIN).tokenizer is None


def test_a_tokenizer_whose_ids_exceed_the_embedding_is_refused(folder: Path) -> None:
    tokenizer = byte_pairs()
    tokenizer.add_tokens([f"<extra {n}>" for n in range(VOCABULARY - len(tokenizer))])
    tokenizer.save_pretrained(folder)
    assert load(str(folder), **PLAIN).tokenizer is not None, "the last row is used and no more"
    tokenizer.add_tokens(["<one too many>"])
    tokenizer.save_pretrained(folder)
    message = refused(folder)
    assert f"id {VOCABULARY} ('<one too many>')" in message
    assert f"{VOCABULARY} rows" in message


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("tokenizer.json", '{"version": "1.0", ', "tokenizer.json is not valid JSON"),
        ("tokenizer.json", "", "tokenizer.json is not valid JSON"),
        ("tokenizer.json", "{}", "its tokenizer cannot be read"),
        ("tokenizer_config.json", "{", "tokenizer_config.json is not valid JSON"),
    ],
)
def test_a_broken_tokenizer_is_refused(folder: Path, file: str, content: str, said: str) -> None:
    (folder / file).write_text(content)
    assert said in refused(folder)


def test_a_tokenizer_without_its_vocabulary_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    assert "tokenizer" in refused(folder)
