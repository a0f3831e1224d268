"""A tokenizer that gives a fixed text other ids in another run is reported by the text."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from assay.claims.loading import test_tokens
from assay.harness import faults
from assay.harness.comparison.document import document
from assay.harness.comparison.judging import compare
from assay.harness.operations import corpus
from assay.harness.report.compared import headline, notes
from assay.harness.tests.support.compared import side
from assay.harness.tests.support.toys import budget, toy, verdict

AFTER = test_tokens.test_a_fixed_text_has_the_same_ids_after_calls


def run(subject):
    result = verdict(AFTER, subject, budget(2))
    return replace(result, subject="chat")


@pytest.fixture(scope="module")
def before():
    return run(toy("chat"))


@pytest.fixture(scope="module")
def after():
    with faults.injected(faults.named("words-as-in-gpt2"), toy("chat")) as other:
        return run(other)


def test_the_ids_of_a_fixed_text_are_kept_in_the_evidence(before):
    record = before.details[corpus.KEY]
    assert len(record["ids"]) == len(record["starts"]) == len(corpus.LINES)
    first = [int(number) for number in record["ids"][0].split()]
    assert toy("chat").tokenizer.decode(first) == corpus.LINES[0]


def test_a_run_has_the_same_ids_as_itself(before):
    comparison = compare(side([before]), side([before]))
    assert not comparison.token_changes
    assert not comparison.worse


def test_other_ids_are_a_regression_told_by_the_text_where_they_begin(before, after):
    comparison = compare(side([before]), side([after]))
    (change,) = comparison.token_changes
    line = corpus.LINES[change.change.line]
    assert change.change.text == line[change.change.letter :][: corpus.EXCERPT]
    assert comparison.worse
    assert "1 tokenizer changed" in headline(comparison, 0.1)
    assert any(repr(change.change.text) in note for note in notes(comparison, 0.1))
    (written,) = json.loads(document(comparison, 0.1))["other_ids"]
    assert written["text"] == change.change.text
    assert written["before"] != written["after"]


@pytest.mark.parametrize("record", [None, 3, {}, {"text": "other"}])
def test_what_is_no_record_of_this_text_is_not_compared(before, record):
    assert corpus.change(before.details[corpus.KEY], record) is None
    assert corpus.change(record, before.details[corpus.KEY]) is None


def test_a_token_more_at_the_end_of_a_line_is_a_change(before):
    record = before.details[corpus.KEY]
    longer = {**record, "digest": "other", "ids": [record["ids"][0] + " 7", *record["ids"][1:]]}
    change = corpus.change(record, longer)
    assert (change.line, change.before, change.after, change.lines) == (0, [], [7], 1)
