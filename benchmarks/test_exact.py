"""Exact search by whole prompts against token by token, and against trying the vocabulary.

One pass over the prompts, which verifies them, is timed alongside: no search takes less.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.benchmarks import operations, prompts
from assay.fixtures import texts
from assay.harness.checking.draws import Draws
from assay.harness.inversion import Target, default_folder, exact, linear_map, token_by_token
from assay.harness.models import capabilities

MODELS = ["reference", "geometry:gpt2"]
ROUNDS = 5

AFFORDED = {"cpu": 1e12, "cuda": 1e13}
"""Operations of a round of trying the vocabulary, by the kind of device; 0 where one place
already costs more."""

COUNTS = {"reference": 500}
"""Prompts of which all must be recovered; of other models, `COUNT`."""
COUNT = 256

LARGE, FEWER, LIMIT = 10**8, 20, 120.0
"""Parameters from which a model's prompts are so many in place of `COUNT`, one at a time and each
within so many seconds: to try the whole vocabulary at one place would take hours."""

COLD = 16
"""Prompts of a first batch, which the set-up is counted with."""

GOALS = {
    ("cpu", "reference", 1): 0.025,
    ("cpu", "reference", 16): 0.006,
    ("cpu", "geometry:gpt2", 1): 0.25,
    ("cpu", "geometry:gpt2", 16): 0.2,
    ("cuda", "geometry:gpt2", 1): 0.005,
    ("cuda", "geometry:gpt2", 1024): 0.0005,
}
"""Seconds a prompt of 20 tokens on two cores, or on an H200, by model and number of prompts."""

MANY = 256
"""So many prompts are timed only on an accelerator, and without token-by-token search."""

LENGTHS = (20, 40, 80, 160, 320, 512)


@pytest.mark.parametrize("rows", [1, 16, 1024])
def test_exact(race, report, stopwatch, model, rows):
    if rows >= MANY and model.device.type == "cpu":
        pytest.skip(f"{rows} prompts take too long on a processor")
    target, ids = Target(model.layers), prompts.fixed(model, rows)
    goal = target.output(model, ids)
    linear_map(model, target, ids.shape[1])  # timed by `test_set_up`

    def ours():
        return exact(model, target, goal)

    def one_by_one():
        return token_by_token.ranked(model, target, goal)

    others, places = {"token by token": one_by_one} if rows < MANY else {}, 0
    cost = 2 * operations.weights(model, target) * model.vocabulary * rows
    if (places := min(prompts.TOKENS, int(AFFORDED[model.device.type] / cost))) > 0:
        others["exhaustive"] = lambda: token_by_token.exhaustive(model, target, goal[:, :places])
    for find in (ours, *others.values()):
        result = find()
        assert result.ids.equal(ids[:, : result.ids.shape[1]]), "not every token is right"
        assert result.verified.all()
    result = ours()
    others["one pass"] = lambda: target.output(model, ids)

    def others_are_found_too():
        new = prompts.fixed(model, rows, seed=1)
        again = exact(model, target, target.output(model, new))
        assert again.ids.equal(new), "not every token of new prompts is right"
        assert again.verified.all()

    rounds = race(ours, ROUNDS, others, fresh=others_are_found_too)
    name = f"exact, {rows} prompt{'s' * (rows > 1)}, {model.name}"
    each = rounds.seconds / rows
    goal_seconds = GOALS.get((model.device.type, model.name, rows))
    report.figure(name, "seconds a prompt", each, goal_seconds, at_most=True)
    report.figure(name, "verified prompts / s, warm", 1 / each)
    report.figure(name, "passes", result.passes.double().cpu().numpy(), 2, at_most=True)
    # Nothing is verified without one pass, so that no search is faster than it.
    report.figure(name, "one pass / search", rounds.times("one pass"))
    if rows < MANY:
        slower = rounds.times("token by token")
        report.figure(name, "× token by token", slower, 20 if rows == 1 else 10)
        limit = np.array(rounds.others["token by token"]) / np.array(rounds.others["one pass"])
        report.figure(name, "limit: one pass × token by token", limit)
        report.also(passes_token_by_token=one_by_one().passes.tolist())
    if places:
        report.figure(
            name, "× exhaustive", rounds.times("exhaustive", prompts.TOKENS / places), 20
        )
    report.also(
        seconds_per_prompt=float(np.median(each)),
        passes=result.passes.tolist(),
        candidates_per_token=result.tried.double().mean().item(),
    )


def test_set_up(benchmark, report, stopwatch, model, tmp_path: Path):
    """What the search learns of a model once, and reading it from disk."""
    target = Target(model.layers)
    base = replace(model, digest=model.digest or "of this run")

    def fresh():
        linear_map(replace(base), target, prompts.TOKENS, tmp_path / "map")

    made = stopwatch.lap(fresh).seconds
    benchmark.pedantic(fresh, rounds=3)
    ids = prompts.fixed(model, COLD)
    goal, results = target.output(model, ids), []

    def cold():
        subject = replace(base)  # knows nothing yet
        linear_map(subject, target, prompts.TOKENS, tmp_path / "cold")
        results.append(exact(subject, target, goal))

    took = stopwatch.lap(cold).seconds
    assert results[0].ids.equal(ids), "not every token is right"
    assert results[0].verified.all()
    loaded = [stopwatch.lap(fresh).seconds for _ in range(3)]
    on_processor = model.device.type == "cpu"
    name = f"set-up of exact, {model.name}"
    report.figure(name, "seconds", np.array([made]), 15 if on_processor else 1, at_most=True)
    report.figure(name, "verified prompts / s, cold", np.array([COLD / took]))
    report.figure(name, "seconds, from disk", np.array(loaded), 1, at_most=True)
    report.also(states=linear_map(replace(base), target, prompts.TOKENS, tmp_path / "map").states)


@pytest.mark.parametrize("source", [texts.TEXT, texts.RANDOM])
def test_all_are_recovered(benchmark, report, model, source):
    """The share of prompts that are recovered, each verified, in batches of 16."""
    if source == texts.TEXT and "tokenizer" not in capabilities.probe(model):
        pytest.skip(f"{model.name} has no tokenizer")
    target, large = Target(model.layers), model.model.num_parameters() >= LARGE
    count = FEWER if large else COUNTS.get(model.name, COUNT)
    draw = texts.text if source == texts.TEXT else texts.random
    ids = draw(model, Draws(0, "recovered", range(count)), prompts.TOKENS)

    def all_of_them():
        keep = default_folder() if large else None
        limit = LIMIT if large else math.inf
        goals = [target.output(model, each) for each in ids.split(1 if large else 16)]
        return [exact(model, target, goal, keep=keep, limit=limit) for goal in goals]

    results = benchmark.pedantic(all_of_them, rounds=1)
    answer = torch.cat([each.ids for each in results])
    verified = torch.cat([each.verified for each in results]).all(1)
    same = linear_map(model, target).same  # of tokens with equal embeddings any is right
    right = (same[answer] == same[ids]).all(1) & verified
    passes = torch.cat([each.passes for each in results]).double().cpu()
    tokens = torch.cat([each.tried.sum(1) for each in results]).double().cpu() / ids.shape[1]
    name = f"exact, {count} prompts of {source}, {model.name}"
    report.figure(name, "% recovered", np.array([100 * right.double().mean().item()]), 100)
    report.figure(name, "passes", np.array([passes.mean().item()]), 2, at_most=True)
    report.figure(name, "tokens run, in passes of the prompt", np.array([tokens.mean().item()]))
    report.also(most_passes=int(passes.max()), most_tokens=tokens.max().item(), prompts=count)


def test_length(benchmark, report, model):
    """Passes by length, in batches of 4: they should grow slower than the logarithm."""
    target = Target(model.layers)
    lengths = [n for n in LENGTHS if n <= (model.context or n)]

    def passes_at(n):
        ids = prompts.fixed(model, 4, n)
        result = exact(model, target, target.output(model, ids))
        assert result.ids.equal(ids), "not every token is right"
        assert result.verified.all()
        return result.passes.double().mean().item()

    passes = benchmark.pedantic(lambda: [passes_at(n) for n in lengths], rounds=1)
    growth = (passes[-1] / passes[0]) / (np.log(lengths[-1]) / np.log(lengths[0]))
    name = f"exact, {lengths[0]} to {lengths[-1]} tokens, {model.name}"
    report.figure(name, "growth of passes / of log n", np.array([growth]), 1, at_most=True)
    report.also(lengths=lengths, passes=passes)
