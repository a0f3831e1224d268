"""Measures of a model's output: closed forms, and the model's own numbers."""

from __future__ import annotations

import math

import pytest
import torch

from assay.harness.checking import measures
from assay.harness.checking.draws import Draws
from assay.harness.models.machine import batches
from assay.harness.models.reference.tolerances import TOLERANCES
from assay.harness.models.subject import Subject, masks, positions
from assay.harness.operations import generation
from assay.harness.operations.position_rows import rows_replaced, rows_used
from assay.harness.tests.support.toys import prompt, toy

MODELS = ("gpt2", "opt", "llama")


@pytest.fixture
def passes(monkeypatch):
    """What every pass through a subject is asked for, and the rows that it gives."""
    calls, plain = [], Subject.__call__

    def call(subject, *arguments, **how):
        output = plain(subject, *arguments, **how)
        calls.append((how, output.rows))
        return output

    monkeypatch.setattr(Subject, "__call__", call)
    return calls


def log_probabilities(*rows):
    return torch.tensor(rows, dtype=torch.float64).log()


def drawn(rows=200, columns=30, scale=3.0, seed=0):
    """Log-probabilities [rows, columns] of random logits."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return logits.log_softmax(-1)


# Distances between distributions.


def test_kl_of_two_coins_and_torch_s():
    p, q = log_probabilities([0.5, 0.5], [0.75, 0.25]), log_probabilities([0.25, 0.75], [0.5, 0.5])
    expected = [0.5 * math.log(4 / 3), 0.75 * math.log(1.5) + 0.25 * math.log(0.5)]
    assert measures.kl(p, q).tolist() == pytest.approx(expected, rel=1e-14)
    assert measures.kl(q, p).tolist() != pytest.approx(expected, rel=1e-3)
    p, q = drawn(), drawn(seed=1)
    theirs = torch.nn.functional.kl_div(q, p, reduction="none", log_target=True).sum(-1)
    assert torch.allclose(measures.kl(p, q), theirs, rtol=1e-12)


def test_kl_is_never_negative_and_zero_of_the_same():
    p = drawn()
    assert (measures.kl(p, drawn(seed=1)) > 0).all()
    assert measures.kl(p, p).tolist() == [0.0] * 200
    almost = (p + 1e-13 * drawn(seed=1)).log_softmax(-1)
    assert (measures.kl(p, almost) >= 0).all()
    assert ((p.exp() * (p - almost)).sum(-1) < 0).any()


def test_the_same_top_token_is_compared_with_that_of_its_own_row():
    p = log_probabilities([0.7, 0.2, 0.1], [0.1, 0.2, 0.7])
    q = log_probabilities([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])
    assert measures.same_top(p, q).tolist() == [True, True]
    assert measures.same_top(p, q.flip(0)).tolist() == [False, False]
    assert measures.same_top(p, q[:, [1, 0, 2]]).tolist() == [False, True]


def test_rows_are_apart_relative_to_the_other():
    one, other = torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([[3.0, 4.0], [2.0, 0.0]])
    assert measures.apart(one, other).tolist() == [0.0, 0.5]


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_what_is_far_apart_is_so_many_tolerances_and_never_nearly_all(dtype):
    subject = toy("gpt2", str(dtype).removeprefix("torch."))
    floor = TOLERANCES[dtype].floor
    assert measures.far_distance(subject, 1) == floor
    assert measures.far_distance(subject, 100) == min(100 * floor, 0.3)
    assert measures.far_distance(subject, 1e12) == measures.FAR_AT_MOST


# The next token.


@pytest.mark.parametrize("model_type", MODELS)
def test_the_next_token_is_the_model_s_own(model_type):
    subject = toy(model_type)
    ids = prompt(subject)
    with torch.no_grad():
        theirs = subject.model(input_ids=ids).logits[:, -1].double().log_softmax(-1)
    ours = measures.next_token(subject, ids)
    assert ours.dtype == torch.float64
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert ours.exp().sum(-1).tolist() == pytest.approx([1.0, 1.0])
    assert not torch.allclose(measures.next_token(subject, prompt(subject, seed=1)), theirs)


@pytest.mark.parametrize("model_type", MODELS)
def test_embeddings_and_usual_positions_change_nothing(model_type):
    subject = toy(model_type)
    ids = prompt(subject)
    plain = measures.next_token(subject, ids)
    still = torch.arange(9).expand_as(ids)
    embeddings = subject.model.get_input_embeddings()(ids).detach()
    placed = measures.next_token(subject, ids, places=measures.permuted_positions(subject, still))
    assert torch.allclose(placed, plain, atol=1e-5)
    assert torch.allclose(measures.next_token(subject, embeddings=embeddings), plain, atol=1e-5)


def test_without_the_causal_mask_the_next_token_is_another():
    subject = toy("gpt2")
    ids = prompt(subject)
    causal, full = (measures.next_token(subject, ids, causal=how) for how in (True, False))
    assert measures.kl(causal, full).min() > 1e-3


# Many rows.


@pytest.mark.parametrize("at_once", [2, 100])
def test_rows_in_batches_are_the_rows_of_one(monkeypatch, at_once):
    subject = toy("gpt2")
    ids, orders = prompt(subject, batch=5), Draws(0, "X1", range(5)).orders(9)
    places = measures.permuted_positions(subject, orders)
    whole = measures.next_token(subject, ids, places=places)
    monkeypatch.setattr(measures, "rows_that_fit", lambda subject, n: at_once)
    assert torch.allclose(measures.next_token(subject, ids, places=places), whole, atol=1e-5)


# Moving.


def test_gathered_tokens_come_from_where_the_order_says():
    ids = torch.tensor([[10, 11, 12], [20, 21, 22]])
    orders = torch.tensor([[2, 0, 1], [0, 2, 1]])
    assert measures.reorder(ids, orders).tolist() == [[12, 10, 11], [20, 22, 21]]


@pytest.mark.parametrize("model_type", ["gpt2", "opt"])
def test_moved_positions_are_moved_rows_of_the_table(model_type):
    """A7: both ways of permuting positions agree."""
    subject = toy(model_type)
    ids, orders = prompt(subject), Draws(0, "X1", range(2)).orders(9)
    by_places = measures.next_token(
        subject, ids, places=measures.permuted_positions(subject, orders)
    )
    for row, order in enumerate(orders):
        with rows_replaced(subject, rows_used(subject)[order]):
            by_rows = measures.next_token(subject, ids[row : row + 1])
        assert torch.allclose(by_rows[0], by_places[row], atol=1e-5)
    assert not torch.allclose(measures.next_token(subject, ids), by_places, atol=1e-3)


# Continuing, and repeating.


@pytest.mark.parametrize("model_type", MODELS)
def test_a_continuation_from_the_usual_positions_is_greedy_generation(model_type):
    subject = toy(model_type)
    ids = prompt(subject)
    usual = positions.usual(subject, 9).expand_as(ids)
    ours = measures.continue_greedily(subject, ids, usual, 8)
    assert torch.equal(ours, generation.generate_ids(subject, ids, 8))
    assert measures.continue_greedily(subject, ids, usual, 1).tolist() == ours[:, :1].tolist()


@pytest.mark.parametrize("model_type", ["gpt2", "opt"])
def test_a_continuation_from_other_positions_looks_back_at_those(model_type):
    subject = toy(model_type)
    ids, orders = prompt(subject, batch=4), Draws(0, "X1", range(4)).orders(9)
    places = measures.permuted_positions(subject, orders)
    ours = measures.continue_greedily(subject, ids, places, 4)
    for step in range(4):
        whole = torch.cat([ids, ours[:, :step]], dim=1)
        after = positions.usual(subject, 9 + step)[9:].expand(4, -1)
        slow = measures.next_token(subject, whole, places=torch.cat([places, after], dim=1))
        assert torch.equal(slow.argmax(-1), ours[:, step])
    usual = positions.usual(subject, 9).expand_as(ids)
    assert not torch.equal(measures.continue_greedily(subject, ids, usual, 4), ours)


def test_repeated_grams_of_known_rows():
    once, always = list(range(12)), [7] * 12
    twice = list(range(6)) * 2
    shares = measures.repeated_share(torch.tensor([once, always, twice]))
    assert shares.tolist() == pytest.approx([0, 8 / 9, 3 / 9])


def test_repeated_grams_of_other_lengths():
    row = torch.tensor([[1, 2, 1, 2, 1]])
    assert measures.repeated_share(row, gram=2).item() == 0.5
    assert measures.repeated_share(row, gram=1).item() == pytest.approx(0.6)
    assert measures.repeated_share(row, gram=5).item() == 0
    assert math.isnan(measures.repeated_share(row, gram=6).item())
    assert measures.repeated_share(row).dtype == torch.float64


# What a pass is asked for.


@pytest.mark.parametrize("model_type", MODELS)
def test_nothing_but_the_last_logits_is_asked_of_a_model_that_can_give_them_alone(
    passes, model_type
):
    subject = toy(model_type)
    places = positions.usual(subject, 9).expand(2, -1)
    measures.next_token(subject, prompt(subject), places=places)
    (options, rows) = passes[-1]
    assert [(name, tensor.shape[1]) for name, tensor in rows.tensors.items()] == [("logits", 1)]
    assert options["mask"].equal(masks.causal(9, torch.float32))


def test_a_continuation_is_one_pass_for_each_token_and_each_sees_the_past_only(passes):
    """Whatever a model would make of positions out of order: it is told."""
    subject = toy("gpt2", "bfloat16")
    places = measures.permuted_positions(subject, Draws(0, "X1", range(2)).orders(9))
    passes.clear()
    measures.continue_greedily(subject, prompt(subject), places, 3)
    causal_masks = [options["mask"] for options, _ in passes]
    assert causal_masks[0].equal(masks.causal(9, torch.bfloat16))
    assert [tuple(mask.shape) for mask in causal_masks[1:]] == [(1, 1, 1, 10), (1, 1, 1, 11)]
    assert all(mask.dtype == torch.bfloat16 and not mask.any() for mask in causal_masks[1:])
    assert [list(rows.tensors) for _, rows in passes] == [["logits"]] * 3


@pytest.mark.parametrize("model_type", ["gpt2", "opt"])
def test_everything_is_made_where_the_subject_is(model_type):
    subject = toy(model_type)
    ids, orders = prompt(subject), Draws(0, "X1", range(2)).orders(9)

    def measured():
        places = measures.permuted_positions(subject, orders)
        return (
            measures.continue_greedily(subject, ids, places, 3),
            measures.next_token(subject, ids, places=places),
            measures.next_token(subject, ids, causal=False),
        )

    usual = measured()
    with torch.device("meta"):  # where what is made without a device would be, and be nothing
        assert all(one.equal(other) for one, other in zip(measured(), usual, strict=True))


@pytest.mark.parametrize("heads", [None, 3])
def test_rows_are_counted_by_their_states_logits_and_scores(monkeypatch, heads):
    subject = toy("mamba" if heads is None else "llama", "bfloat16")
    calls = []
    monkeypatch.setattr(batches, "rows_that_fit", lambda *arguments: calls.append(arguments) or 7)
    if heads:
        monkeypatch.setattr(subject.config, "num_attention_heads", heads)
    assert measures.rows_that_fit(subject, 5) == 7
    numbers = 12 * subject.hidden + 3 * subject.vocabulary + 3 * (heads or 1) * 5
    assert calls == [(subject.device, 2 * 5 * numbers)]
