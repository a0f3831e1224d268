"""The forward map and branches at unsure places, which trained models need."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.harness.inversion import (
    Target,
    branching,
    exact,
    forward_map,
    next_token,
    whole_prompts,
)
from assay.harness.inversion.linear import shrinkage
from assay.harness.inversion.regression import Part
from assay.harness.tests.support.toys import toy


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    monkeypatch.setattr(forward_map, "DRAWN", 128)
    monkeypatch.setattr(forward_map, "MORE", 128)
    monkeypatch.setattr(forward_map, "ALONE", 128)


def prompts(subject, rows=2, n=9):
    draw = torch.Generator().manual_seed(7)
    return subject.content(torch.randint(subject.vocabulary, (rows, n), generator=draw))


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "qwen2"])
@pytest.mark.parametrize("depth", [1, 2])
def test_every_token_is_found_and_verified_by_branches(monkeypatch, tmp_path, model_type, depth):
    monkeypatch.setattr(whole_prompts, "POOR", 2.0)
    monkeypatch.setattr(whole_prompts, "MANY", 0)
    monkeypatch.setattr(whole_prompts._Search, "_pass", None)  # nothing is left for it
    subject, target = toy(model_type), Target(depth)
    ids = prompts(subject)
    goal = target.output(subject, ids)
    found = exact(subject, target, goal, lengths=[9, 6], keep=tmp_path)
    assert torch.equal(found.ids[0], ids[0])
    assert torch.equal(found.ids[1, :6], ids[1, :6])
    assert found.verified.all()
    assert found.tried[0].ge(1).all()


def test_a_place_that_no_branch_finds_is_searched_token_by_token(monkeypatch):
    monkeypatch.setattr(whole_prompts, "POOR", 2.0)
    monkeypatch.setattr(whole_prompts, "MANY", 0)
    monkeypatch.setattr(branching, "ROUNDS", ())
    subject, target = toy("llama"), Target(2)
    ids = prompts(subject)
    found = exact(subject, target, target.output(subject, ids))
    assert torch.equal(found.ids, ids)
    assert found.verified.all()


def test_the_map_is_kept_in_a_folder(tmp_path):
    subject, target = toy("llama"), Target(2)
    made, path = forward_map.forward_map(subject, target), tmp_path / "map.safetensors"
    forward_map._write(path, made)
    read = forward_map._read(path, subject, target, tmp_path)
    for part in forward_map.PARTS:
        one, other = getattr(made, part), getattr(read, part)
        assert all(torch.equal(getattr(one, each), getattr(other, each)) for each in vars(one))
    assert (read.sink, read.states) == (made.sink, made.states)


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "opt"])
@pytest.mark.parametrize("depth", [1, 2])
def test_the_model_s_own_distribution_is_that_of_its_logits(model_type, depth):
    subject, target = toy(model_type), Target(depth)
    ids = prompts(subject, rows=1)
    own = next_token.own_distribution(subject, target)
    expected = subject.rows(ids, states=False)["logits"].log_softmax(-1)
    torch.testing.assert_close(own(target.output(subject, ids)[0]), expected[0])
    assert next_token.own_distribution(subject, Target(depth, "keys")) is None


def test_blocks_that_take_more_than_states_give_no_distribution(monkeypatch):
    subject, target = toy("llama"), Target(1)
    usual = Target.output
    monkeypatch.setattr(Target, "output", lambda *rest, **more: usual(*rest, **more) * 1.01)
    assert next_token._rest_of(subject, target) is None


def test_a_search_ends_at_its_limit_with_what_is_verified(monkeypatch):
    monkeypatch.setattr(whole_prompts, "POOR", 2.0)
    monkeypatch.setattr(whole_prompts, "MANY", 0)
    subject, target = toy("llama"), Target(2)
    ids = prompts(subject, rows=1)
    goal = target.output(subject, ids)
    ended = exact(subject, target, goal, limit=-1.0)
    assert ended.ended
    assert not ended.verified.any()
    found = exact(subject, target, goal)
    assert not found.ended
    assert found.verified.all()


def test_a_token_whose_state_rounding_changes_by_more_is_right():
    """Where much cancels, what rounding changes is more than `accepted`."""
    subject, target = toy("llama"), Target(2)
    ids = prompts(subject, rows=1)[0]
    goal = target.output(subject, ids[None])[0]
    row = branching._Row(subject, target, goal, forward_map.forward_map(subject, target))
    row.guess, row.close = ids.clone(), 1e-9
    assert row._right(ids[0], goal[0] * (1 + 1e-6))
    row.done, passes = 1, row.prefixes.passes
    assert row._right(ids[1], goal[1] * (1 + 1e-6))
    assert row.prefixes.passes == passes, "that run has the states of all places"
    row.done = 0
    assert not row._right(ids[0], goal[0] * (1 + 0.1))
    row.goal = goal * (1 + 5e-3)
    assert not row._right(ids[0], goal[0]), "rounding changes it by less"
    assert row.prefixes.passes == passes, "by far less"
    row.goal = goal * (1 + 1e-4)
    assert not row._right(ids[0], goal[0])
    assert row.prefixes.passes == passes + branching.CHANGES - 1
    assert not row._right(ids[0] + 1, goal[0])
    assert row.prefixes.passes == passes + branching.CHANGES - 1, "known for this place"


def test_a_round_has_the_likeliest_by_the_map_alone_and_by_the_model_s_distribution(monkeypatch):
    """Behind a sink, scores may put the right token behind hundreds of others."""
    subject, target = toy("llama"), Target(2)
    ids = prompts(subject, rows=1)[0]
    goal = target.output(subject, ids[None])[0]
    row = branching._Row(subject, target, goal, forward_map.forward_map(subject, target))
    row.scores[1] = torch.arange(subject.vocabulary)
    alone, row.prior[1] = torch.zeros(2, 1, subject.vocabulary)
    row.guess[1], alone[0, 70], row.prior[1, 80] = 3, 1.0, 1.0
    monkeypatch.setattr(row, "_by_part", lambda place: alone)
    assert row._round(1, 4).tolist() == [0, 1, 70, 80]
    row.prior[1] = 0.0
    assert row._round(1, 4).tolist() == [0, 1, 2, 70]


def test_a_regression_of_what_the_map_is_off_by_finds_what_the_map_does_not(monkeypatch):
    subject, target = toy("gpt2"), Target(2)
    ids = prompts(subject, rows=1, n=4)[0]
    goal = target.output(subject, ids[None])[0]
    made = forward_map.forward_map(subject, target)
    parts = {name: getattr(made, name) for name in forward_map.PARTS}
    parts = {
        name: replace(part, token=0 * part.token, halves=0 * part.halves)
        for name, part in parts.items()
    }

    def tried() -> int:
        row = branching._Row(subject, target, goal, replace(made, **parts))
        while row.done < 4:
            row.step()
            assert (row.here is None) == (len(row.tokens) < branching.ENOUGH)
        assert torch.equal(row.guess, ids)
        return int(row.tried.sum())

    some = tried()
    monkeypatch.setattr(branching, "ENOUGH", 10_000)
    assert some < 0.8 * tried(), "of a map that knows nothing of tokens"


@pytest.mark.parametrize("count", [6, 40])
def test_distances_by_the_corrected_regression_are_those_of_its_definition(count):
    draw = torch.Generator().manual_seed(4)
    table, states = (torch.randn(300, some, generator=draw) for some in (48, 32))
    part = Part.fit(table, torch.arange(300), states, None)
    ids, rest = torch.arange(100, 100 + count), torch.randn(32, generator=draw)
    left = torch.randn(count, 32, generator=draw) @ torch.randn(32, 32, generator=draw)
    misses, volume = part.corrected(table, ids, left, rest)

    rows, mean = table[ids] - table[ids].mean(0), left.mean(0)
    kernel = rows @ rows.T
    ridge = kernel + kernel.diagonal().mean() * torch.eye(count)
    every = (table - table[ids].mean(0)) @ rows.T
    expected = part.part(table) + mean + every @ torch.linalg.solve(ridge, left - mean)
    off = []
    for token in range(count):  # leaves the token out, but for the means
        others = torch.arange(count) != token
        weights = torch.linalg.solve(ridge[others][:, others], (left - mean)[others])
        off.append((left - mean)[token] - kernel[token, others] @ weights)
    sample = torch.stack(off).T @ torch.stack(off) / count
    trace = sample.diagonal().mean()
    share = shrinkage(sample.square().mean(), trace, count, 32)
    covariance = (1 - share) * sample + share * trace * torch.eye(32)
    away = rest - expected
    straight = (away @ torch.linalg.inv(covariance) * away).sum(1) / 2
    torch.testing.assert_close(misses, straight, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(volume, -torch.logdet(covariance) / 2, rtol=1e-3, atol=1e-3)
    assert all(each.isfinite().all() for each in part.corrected(table, ids, 0 * left, rest))


def test_massive_states_behind_the_first_are_sampled(monkeypatch):
    subject, target = toy("llama"), Target(2)
    alone = forward_map.forward_map(subject, target)
    monkeypatch.setattr(forward_map, "LONGER", 0.0)  # all states count as massive
    both = forward_map._estimate(subject, target, None)
    assert both.states == alone.states + forward_map.FIRST * (1 + forward_map.SECOND)
    ids = prompts(subject, rows=64, n=2)
    states = target.output(subject, ids)[:, 1]
    assert [len(each.at(1, states[0])) for each in (alone, both)] == [1, 2]
    misses = [each.massive.misses(each.table, each.massive.rest(states)) for each in (alone, both)]
    found = [int((each.argmin(1) == ids[:, 1]).sum()) for each in misses]
    assert found[1] > 1.5 * found[0], "first states alone say less of these"


@pytest.mark.parametrize("kind", ["massive", "later"])
def test_a_massive_state_is_judged_by_the_part_of_its_kind(kind):
    """Of two kinds of long states, both parts have some token that is nearest."""
    draw = torch.Generator().manual_seed(3)
    table, slope = torch.randn(60, 8, generator=draw), torch.randn(8, 8, generator=draw)
    noise = torch.randn(2, 60, 8, generator=draw) * 0.1
    ids, far = torch.arange(60), torch.tensor([300.0] + [0.0] * 7)
    states = {"massive": far + table @ slope + noise[0], "later": table @ slope.T + noise[1]}
    states["later"][:30] -= far.flip(0)  # as long as the first states, and of another direction
    parts = {name: Part.fit(table, ids, each, None) for name, each in states.items()}
    row = object.__new__(branching._Row)
    row.wide, row.parts = states[kind][:30], [(parts["later"], parts["massive"])] * 30
    row.map = forward_map.ForwardMap(table, parts["massive"], **parts, sink=100.0, states=120)
    row._rest = lambda part, place, rows: part.rest(rows)
    right = [int(row._evidence(place).argmax()) == place for place in range(30)]
    assert sum(right) >= 28
    # Tokens of the other kind do not shift it.
    others = states["later" if kind == "massive" else "massive"][:5]
    right = [int(row._evidence(place, ids[:5], others).argmax()) == place for place in range(30)]
    assert sum(right) >= 28


def test_in_16_bits_the_nearest_of_several_tokens_that_may_be_right_is_taken():
    subject, target = toy("llama"), Target(2)
    ids = prompts(subject, rows=1)[0]
    goal = target.output(subject, ids[None])[0]
    row = branching._Row(subject, target, goal, forward_map.forward_map(subject, target))
    row.close, size = 0.12, goal[0].norm() / goal.shape[1] ** 0.5
    off = torch.tensor([0.06, 0.02, 0.05])
    states = goal[0] + off[:, None] * size
    assert [row._surely(ids[0], each) for each in states] == [False, True, False]
    row.tokens, row.states, row.round = ids[:3], states, branching.DOUBTED
    row._settle_nearest()
    assert (row.done, row.round, row.guess[0]) == (1, 0, ids[1])
    row.tokens, row.states = ids[:1], goal[1:2] * 2  # too far off
    row._settle_nearest()
    assert row.done == 1


@pytest.mark.parametrize("is_text", [True, False])
def test_the_prior_is_a_mixture_with_shares_of_its_own_for_each_prompt(is_text):
    subject, target = toy("llama"), Target(2)
    ids = prompts(subject, rows=1)[0]
    goal = target.output(subject, ids[None])[0]
    row = branching._Row(subject, target, goal, forward_map.forward_map(subject, target))
    size, n = subject.vocabulary, len(ids)
    likely = torch.zeros(n - 1, size)
    likely[torch.arange(n - 1), ids[1:] if is_text else (ids[1:] + 7) % size] = 12.0
    evidence = torch.zeros(n, size)
    evidence[torch.arange(n), ids] = 5.0  # each token's state says what it is
    prior = row._prior(evidence, lambda states: likely.log_softmax(-1))
    assert prior[0].eq(0).all()
    torch.testing.assert_close(prior[1:].logsumexp(-1), torch.zeros(n - 1))
    at = torch.arange(2, n)
    own = (prior[at] - likely.log_softmax(-1)[at - 1]).exp()[at - 2, likely[at - 1].argmax(1)]
    assert own.gt(0.9).all() if is_text else own.lt(0.1).all()
    # The second token has the same shares in every prompt.
    assert float(prior[1, likely[0].argmax()].exp()) == pytest.approx(1 / 3, abs=0.02)
