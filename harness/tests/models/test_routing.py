"""How clearly experts are chosen, held against probabilities worked out by hand."""

from __future__ import annotations

import pytest
import torch

from assay.harness.models.subject import routing, selection
from assay.harness.tests.support.toys import fresh, prompt, toy


def scores(*rows):
    """Scores whose softmax is ``rows``, [tokens, experts]."""
    return torch.tensor(rows, dtype=torch.float64).log()


CLEAR, NEAR, TIED = (0.7, 0.2, 0.1), (0.5, 0.26, 0.24), (0.6, 0.2, 0.2)


def gap(*layers, taken=2, ahead=False):
    """The gaps of one prompt, as numbers."""
    gaps = routing.gap([*layers], taken, batch=1, ahead=ahead)
    assert gaps.shape == (1, len(layers[0]), 1)
    return [round(float(each), 6) for each in gaps.flatten()]


def test_a_row_is_as_clear_as_the_least_clear_that_it_sees():
    assert gap(scores(CLEAR, NEAR, CLEAR)) == [0.1, 0.02, 0.02]
    assert gap(scores(CLEAR, NEAR, CLEAR), ahead=True) == [0.02] * 3


def test_the_least_clear_layer_counts():
    assert gap(scores(CLEAR, CLEAR), scores(NEAR, TIED)) == [0.02, 0.0]


def test_the_gap_is_between_the_last_expert_taken_and_the_first_left():
    assert gap(scores(TIED), taken=1) == [0.4]
    assert gap(scores(TIED), taken=2) == [0.0]


def test_rows_of_a_batch_do_not_see_each_other():
    gaps = routing.gap([scores(TIED, CLEAR, NEAR, CLEAR)], top_k=2, batch=2, ahead=False)
    assert [round(float(each), 6) for each in gaps.flatten()] == [0.0, 0.0, 0.02, 0.02]


def test_where_all_experts_are_taken_nothing_is_near():
    assert routing.gap([scores(TIED)], top_k=3, batch=1, ahead=False).flatten().tolist() == [1.0]


def test_only_a_mixture_of_experts_is_listened_to():
    for model_type, routed in (("mixtral", True), ("llama", False)):
        subject = toy(model_type)
        assert selection.routes(subject) is routed
        with routing.listening(subject) as heard:
            subject.model(prompt(subject))
        assert len(heard) == (subject.layers if routed else 0)
        assert ("router gap" in subject.rows(prompt(subject)).tensors) is routed


def test_a_body_that_is_not_called_as_the_model_says_is_asked_all_the_same(monkeypatch):
    subject = fresh("mixtral")
    monkeypatch.setattr(type(subject.model), "base_model_prefix", "transformer")
    assert subject.model.base_model is subject.model
    with routing.listening(subject) as scores:
        subject.model(torch.arange(6)[None])
    assert len(scores) == subject.layers


def test_choices_are_heard_of_a_model_that_returns_no_scores():
    subject = toy("aria_text")
    assert not selection.routes(subject)
    ids = prompt(subject)
    with routing.choosing(subject) as gaps:
        subject.model(ids)
    assert [len(each) for each in gaps] == [ids.numel()] * subject.layers
    assert subject.rows(ids)["router gap"].shape == (*ids.shape, 1)


def test_a_choice_is_as_clear_as_the_last_chosen_is_ahead_of_the_next():
    with routing._Choices(most=3) as choices:
        torch.topk(torch.tensor([CLEAR, NEAR, TIED]), 2)
        torch.tensor([CLEAR, NEAR]).argmax(-1)
        scores(TIED).topk(2, dim=-1)  # logits
        torch.tensor([[0.7, 0.2, -torch.inf]]).topk(2)  # masked
    assert [[round(float(each), 6) for each in gaps] for gaps in choices.gaps] == [
        [0.1, 0.02, 0.0],
        [0.5, 0.24],
        [0.0],
        [0.377541],
    ]


def test_other_choices_are_not_heard():
    with routing._Choices(most=3) as choices:
        torch.rand(2, 4).topk(2)  # of keys, which are more than there are experts
        torch.rand(2, 3).topk(3)  # all of them
        torch.rand(2, 3).topk(1, dim=0)
        torch.rand(2, 3).argmax()
    assert choices.gaps == []


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        *((spec, True) for spec in ("doge", "reformer", "mra", "mixtral", "deepseek_v32")),
        *(
            (spec, False)
            for spec in ("llama", "gpt2", "t5", "bart", "bert", "mamba", "longformer")
        ),
    ],
)
def test_what_chooses_by_its_largest_numbers_is_known_by_its_code(spec, chosen):
    assert selection.selects(toy(spec)) is chosen


def test_rows_of_a_model_that_chooses_keys_can_be_undecided():
    rows = toy("doge").rows(torch.tensor([[5, 7, 9]]))
    assert rows["router gap"].shape == (1, 3, 1)
    assert "router gap" not in toy("llama").rows(torch.tensor([[5, 7, 9]])).tensors
