"""What a model's tokenizer makes of text (beyond the documents)."""

from __future__ import annotations

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from assay.fixtures import writing
from assay.harness.checking.laws import law
from assay.harness.models.capabilities import pipelines
from assay.harness.operations import corpus, tokens


@law(
    "H2",
    "a tokenizer gives a text the ids of its own file",
    needs=["tokenizer-file"],
    source="beyond the documents; transformers#45812, #45920, #45701",
    control="the file without the longest token of a fixed text",
)
@pytest.mark.parametrize("special", ["special tokens read", "special tokens as text"])
def test_ids_are_those_of_the_tokenizers_own_file(subject, special, draw, check):
    texts, file = draw(writing.many(subject), "texts"), pipelines.by_file(subject)
    drawn_and_fixed = [*texts, *corpus.LINES, *writing.texts_with_added(subject)]
    texts = [text for text in drawn_and_fixed if tokens.shared_texts(subject, text, file)]
    split = special == "special tokens as text"
    for text in texts:
        mine = tokens.ids(subject, text, split_special_tokens=split)
        theirs = tokens.in_library(file, text, split)
        check.judge(tokens.unlike(mine, theirs), 0.0, tokens.where(text, mine, theirs))
        if not split and not tokens.adds_its_own(subject):
            mine = tokens.of(subject.tokenizer, text)
            theirs = tokens.in_library(file, text, tokens.splits(subject), special=True)
            check.judge(tokens.unlike(mine, theirs), 0.0, tokens.where(text, mine, theirs))
    if check.wants():
        check.judge_control(tokens.unlike(*tokens.with_and_without(file, corpus.WHOLE)), 0.0)


@law(
    "H2",
    "each added token has the id that the checkpoint gives it, and is decoded to itself",
    needs=["stated-tokens"],
    source="beyond the documents; transformers#45356",
    control="the token of the next id",
    enough=1,
)
def test_each_added_token_has_the_id_that_the_checkpoint_gives_it(subject, draw, check):
    stated = pipelines.stated_tokens(subject)
    ids = tokens.added(subject, stated)
    check.judge(tokens.unlike([*ids], [*stated]), 0.0, "ids of added tokens")
    back = [tokens.decoded(subject, [number]) for number in stated]
    for number, text, token in zip(stated, back, stated.values(), strict=True):
        check.judge(tokens.unlike(text, token), 0.0, f"{number}, {token!r}, decoded to {text!r}")
    check.judge_control(tokens.unlike([number + 1 for number in ids], [*stated]), 0.0)


@law(
    "H2",
    "a text in a batch has the ids that it has alone",
    needs=["padding-token"],
    source="beyond the documents",
    control="the ids of the text before in the batch",
)
@pytest.mark.parametrize("cut", ["whole", "truncated"])
def test_a_text_in_a_batch_has_the_ids_that_it_has_alone(subject, cut, draw, check):
    texts = draw(writing.batches(subject), "texts")
    side = draw(st.sampled_from(["right", "left"]), "side of the padding")
    multiple, options = 1, {}
    if cut == "whole":
        multiple = draw(st.sampled_from([1, 8]), "multiple")
    else:
        most = draw(st.integers(1, 12), "most tokens") + tokens.added_number(subject)
        options = {"truncation": True, "max_length": most}
    tokenizer = subject.tokenizer
    alone = [tokens.of(tokenizer, text, **options) for text in texts]
    rows, masks = tokens.padded(alone, side, tokenizer.pad_token_id, multiple)
    batch = tokens.batch(subject, texts, side, multiple, **options)
    check.judge(tokens.unlike(batch["input_ids"], rows), 0.0, "rows of ids")
    check.judge(tokens.unlike(batch["attention_mask"], masks), 0.0, "rows of the mask")
    if cut == "truncated":
        for text, row in zip(texts, alone, strict=True):
            check.judge(max(0, len(row) - most), 0.0, f"tokens too many, of {text!r}")
            wanted = tokens.cut(subject, tokens.ids(subject, text), most)
            check.judge(tokens.unlike(tokens.ids(subject, text, **options), wanted), 0.0, "cut")
    before, _ = tokens.padded([*alone[1:], alone[0]], side, tokenizer.pad_token_id, multiple)
    check.judge_control(tokens.unlike(batch["input_ids"], before), 0.0)


@law(
    "H2",
    "the tokens of a normalised text give it back",
    needs=["lossless-tokens"],
    source="beyond the documents",
    control="the tokens without the last one",
)
def test_the_tokens_of_a_normalised_text_give_it_back(subject, draw, check):
    texts = tokens.normalised(subject, draw(writing.many(), "texts"))
    assume(texts := [text for text in texts if tokens.comes_back(subject, text)])
    for text in texts:
        ids = tokens.ids(subject, text)
        back = tokens.decoded(subject, ids)
        check.judge(tokens.unlike(back, text), 0.0, f"letters of {text!r}, decoded to {back!r}")
        check.judge_control(tokens.unlike(tokens.decoded(subject, ids[:-1]), text), 0.0)


@law(
    "H2",
    "the offsets of a token point at its text",
    needs=["fast-tokenizer"],
    source="beyond the documents",
    control="offsets that are one letter later",
)
def test_the_offsets_of_a_token_point_at_its_text(subject, draw, check):
    texts, added = draw(writing.many(), "texts"), tokens.added_texts(subject)
    texts = [t for t in tokens.normalised(subject, texts) if not any(each in t for each in added)]
    assume(texts)
    for text in texts:
        spans = tokens.offsets(subject, text)
        wrong = tokens.misplaced(subject, text, spans)
        check.judge(len(wrong), 0.0, f"{', '.join(wrong[:3])} of {text!r}")
        check.judge_control(len(tokens.misplaced(subject, text, tokens.shifted(spans))), 0.0)


@law(
    "H2",
    "a tokenizer is saved and loaded with all that it holds",
    needs=["tokenizer"],
    source="beyond the documents",
    control="the ids of the text and one letter more",
    enough=8,
)
def test_a_tokenizer_is_saved_and_loaded_with_all_that_it_holds(subject, draw, check):
    texts = draw(st.lists(writing.texts(subject), min_size=4, max_size=12), "texts")
    other, names = tokens.reloaded(subject), tokens.kept_settings(subject)
    before, after = tokens.settings(subject.tokenizer, names), tokens.settings(other, names)
    lost = [name for name, value in before.items() if after[name] != value]
    check.judge(len(lost), 0.0, f"settings: {', '.join(lost)}")
    for text in (*texts, *writing.texts_with_added(subject)):
        mine, theirs = tokens.of(subject.tokenizer, text), tokens.of(other, text)
        check.judge(tokens.unlike(mine, theirs), 0.0, tokens.where(text, mine, theirs))
        both = [tokenizer.decode(mine) for tokenizer in (subject.tokenizer, other)]
        check.judge(tokens.unlike(*both), 0.0, f"letters of {text!r}, decoded")
    more = tokens.of(other, f"{corpus.WHOLE}x")
    check.judge_control(tokens.unlike(tokens.of(subject.tokenizer, corpus.WHOLE), more), 0.0)


@law(
    "H2",
    "a tokenizer's saved file gives a text the ids that the tokenizer gives it",
    needs=["fast-tokenizer"],
    source="beyond the documents",
    control="the saved file without the longest token of a fixed text",
    enough=8,
)
def test_a_saved_file_gives_a_text_the_ids_of_the_tokenizer(subject, draw, check):
    texts = draw(st.lists(writing.texts(subject), min_size=4, max_size=12), "texts")
    file = tokens.saved_file(subject)
    for text in texts:
        mine = tokens.of(subject.tokenizer, text)
        stored = tokens.in_library(file, text, tokens.splits(subject), special=True)
        check.judge(tokens.unlike(mine, stored), 0.0, tokens.where(text, mine, stored))
    if check.wants():
        check.judge_control(tokens.unlike(*tokens.with_and_without(file, corpus.WHOLE)), 0.0)


@law(
    "H2",
    "add_eos_token appends the end-of-sequence token, and changes nothing else",
    needs=["fast-tokenizer"],
    source="beyond the documents; transformers#46722",
    control="the ids without the end-of-sequence token",
    enough=4,
)
def test_add_eos_token_appends_the_token(subject, draw, check):
    other, text = tokens.with_eos_token(subject), draw(writing.texts(subject), "text")
    before, after = tokens.of(subject.tokenizer, text), tokens.of(other, text)
    wanted = [*before, other.eos_token_id]
    check.judge(tokens.unlike(after, wanted), 0.0, tokens.where(text, after, wanted))
    check.judge_control(tokens.unlike(before, wanted), 0.0)


@law(
    "H4",
    "a fixed text has the same ids after calls with other texts and options",
    needs=["tokenizer"],
    source="beyond the documents",
    control="its ids with truncation left on",
    enough=6,
)
def test_a_fixed_text_has_the_same_ids_after_calls(subject, draw, check):
    text = draw(writing.texts(subject), "text")
    options = draw(st.sampled_from(list(tokens.CALLS)), "call")
    before = corpus.ids(subject)
    if corpus.KEY not in check.details:  # `assay compare` compares them
        check.details[corpus.KEY] = corpus.record(subject)
    for other in (text, *(f"a{token}b" for token in writing.special_texts(subject))):
        tokens.of(subject.tokenizer, other, **tokens.CALLS[options])
    after = corpus.ids(subject)
    check.judge(tokens.unlike(before, after), 0.0, "lines of the fixed text")
    short = [line[:1] for line in before]
    check.judge_control(tokens.unlike(short, before), 0.0)
