"""Answers about a subject: found once, and gone with it."""

from __future__ import annotations

import gc
import weakref

import pytest

from assay.harness.models.capabilities import recorded
from assay.harness.models.reference import precision
from assay.harness.models.subject import Subject, positions
from assay.harness.models.subject.memo import memo
from assay.harness.operations import variants
from assay.harness.tests.support.toys import fresh, toy


def test_each_subject_is_asked_once():
    subjects = []
    question = memo(lambda subject: subjects.append(subject) or len(subjects))
    one, other = fresh("gpt2"), fresh("gpt2")
    assert [question(one), question(other), question(one)] == [1, 2, 1]
    assert subjects == [one, other]


def test_no_answer_is_kept_of_a_question_that_failed():
    answers = iter([ZeroDivisionError, "an answer"])

    @memo
    def question(subject: Subject) -> str:
        answer = next(answers)
        if answer is ZeroDivisionError:
            raise ZeroDivisionError
        return answer

    subject = fresh("gpt2")
    with pytest.raises(ZeroDivisionError):
        question(subject)
    assert question(subject) == "an answer"


def test_answers_keep_no_model_in_memory():
    """A run on many models must not end with all of them loaded."""
    subject = Subject("gone", fresh("gpt2").model)
    recorded.reasons(subject)
    positions.first_position(subject)
    precision.all_float64(subject)
    variants.saved_and_loaded(subject)
    references = weakref.ref(subject), weakref.ref(subject.model)
    assert all(subject is not None for subject in (ref() for ref in references))
    del subject
    gc.collect()
    assert [ref() for ref in references] == [None, None]
    assert toy("gpt2") is toy("gpt2")
