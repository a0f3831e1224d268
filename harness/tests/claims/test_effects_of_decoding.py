"""Contrastive search against its definition, texts that end, and what E23 makes of them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from assay.claims.inversion import test_repetition as repetition
from assay.harness.operations import contrastive, generation
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.effects import saying, settled
from assay.harness.tests.support.toys import prompt, toy


def slowly(subject, ids, tokens, candidates, penalty):
    """Contrastive search of one row [1, n], every candidate recomputed without a cache."""
    for _ in range(tokens):
        states = subject.rows(ids)[f"state {subject.layers}"][0]
        probability, token = subject.rows(ids)["logits"][0, -1].softmax(-1).topk(candidates)
        scores = []
        for p, v in zip(probability, token, strict=True):
            longer = torch.cat([ids, v.view(1, 1)], dim=1)
            ahead = subject.rows(longer)[f"state {subject.layers}"][0, -1]
            alike = F.cosine_similarity(ahead[None], states, dim=-1).max()
            scores.append((1 - penalty) * p - penalty * alike)
        ids = torch.cat([ids, token[torch.stack(scores).argmax()].view(1, 1)], dim=1)
    return ids[:, -tokens:]


@pytest.mark.parametrize(("spec", "candidates", "penalty"), [("gpt2", 4, 0.6), ("llama", 3, 0.3)])
def test_contrastive_search_is_its_definition(spec, candidates, penalty):
    subject = toy(spec, "float64")
    ids = prompt(subject, 6, 3)
    fast = contrastive.contrastive_search(subject, ids, 8, candidates, penalty)
    slow = [slowly(subject, row[None], 8, candidates, penalty) for row in ids]
    assert torch.equal(fast, torch.cat(slow))


def test_without_a_penalty_or_a_choice_it_is_greedy():
    subject = toy("gpt2")
    ids = prompt(subject, 6, 3)
    greedy = generation.generate_ids(subject, ids, 8)
    assert torch.equal(contrastive.contrastive_search(subject, ids, 8, penalty=0.0), greedy)
    assert torch.equal(contrastive.contrastive_search(subject, ids, 8, candidates=1), greedy)
    assert not torch.equal(contrastive.contrastive_search(subject, ids, 8), greedy)


def ending(next_of, ends):
    """`saying`, with more tokens at which a text ends."""
    subject = saying(next_of)
    subject.model.generation_config.eos_token_id = ends
    return subject


def test_a_text_ends_at_its_end_token():
    subject = ending(lambda ids: ids + 1, [14])
    made = generation.generate_texts(subject, torch.tensor([[9, 10], [1, 2], [12, 13]]), 6)
    assert made == [[11, 12, 13], [3, 4, 5, 6, 7, 8], []]
    subject.model.generation_config.eos_token_id = None
    assert generation.cut_at_end(subject, [1, 14]) == [1, 14]


@pytest.mark.usefixtures("short_texts")
def test_what_would_come_after_the_end_is_not_counted():
    """With the end token held back this model says the same token again and again."""
    subject = ending(lambda ids: ids + 1, list(range(0, 4096, 6)))
    result = settled(repetition.test_greedy_text_repeats_itself, subject)
    assert result.sample["greedy"].max() == 0
    assert result.sample["tokens_greedy"].max() < 6
    assert result.verdict is not Verdict.UPHELD


def test_texts_are_compared_over_the_length_of_the_shorter():
    long = [1, 2, 3, 4, 5, 6, 7, 8, *[9] * 50]
    assert repetition.repetition(long, [1] * 8) == [0.0, pytest.approx(0.8)]
    assert repetition.repetition(long, []) == [0.0, 0.0]
