"""Walks, against maps whose walks are known and against the document's loops, row by row."""

from __future__ import annotations

import pytest
import torch

from assay.harness.inversion import Target, embedded, nets, walks
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.randoms import seeded
from assay.harness.tests.support.toys import prompt, toy

ROWS, N, D = 3, 4, 9
WIDE = torch.empty(0, dtype=torch.float64)


def sources(rows=ROWS, seed=10):
    return [seeded(seed + row) for row in range(rows)]


def noise(*shape, seed=1):
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def net():
    """A map that is not linear, of all tokens of a row together, in float64."""
    return nets.flattened("contracting", N, D, seeded(), WIDE)


def times(matrix):
    """A linear map, token by token."""
    return lambda x: x @ matrix


# The orthogonal walk.


def tangent_walk(output, embedding, steps):
    """Document 003's `tangent_walk` and `layer_gradient`, for one row [n, d]."""
    for _ in range(steps):
        embedding = embedding.detach().requires_grad_()
        torch.sum(output(embedding[None])).backward()
        gradient = embedding.grad
        perp_vector = torch.linalg.svd(gradient).Vh[-1]
        embedding = embedding.detach() + 0.01 * perp_vector
    return embedding


def test_the_orthogonal_walk_is_the_document_s():
    output, start = net(), noise(ROWS, N, D)
    end = walks.orthogonal(output, start, 7)
    for row in range(ROWS):
        assert torch.allclose(end[row], tangent_walk(output, start[row], 7), atol=1e-12)


@pytest.mark.parametrize("along", ["last", "random"])
def test_a_linear_map_keeps_its_sum_and_every_token_goes_the_same_way(along):
    output, start = times(noise(D, 5, seed=2)), noise(ROWS, N, D)
    end = walks.orthogonal(output, start, 20, along=along, sources=sources())
    assert torch.allclose(output(end).sum((1, 2)), output(start).sum((1, 2)), atol=1e-12)
    moved = end - start
    assert torch.allclose(moved, moved[:, :1].expand_as(moved), atol=1e-12)
    assert float(moved.norm()) > 0.01
    first = torch.linalg.svd(walks.gradient_of_sum(output, start)).Vh[:, :1]
    assert not torch.allclose(output(start + first).sum((1, 2)), output(start).sum((1, 2)))


# The clamped walk.


def clamped_walk(output, embedding, steps, rand_eta, lr, source, descents=1):
    """Document 003's `clamped_walk` for one row [n, d]."""
    embedding = embedding.clone()
    target_output = output(embedding[None])
    for _ in range(steps):
        clamped = int(torch.randint(D, (1,), generator=source))
        embedding[:, clamped:] += rand_eta * torch.randn((N, D), generator=source)[:, clamped:]
        for _ in range(descents):
            leaf = embedding.clone().requires_grad_()
            (output(leaf[None]) - target_output).abs().sum().backward()
            embedding[:, :clamped] -= lr * leaf.grad[:, :clamped]
    return embedding


@pytest.mark.parametrize("descents", [0, 1, 3])
def test_the_clamped_walk_is_the_document_s(descents):
    output, start = net(), noise(ROWS, N, D)
    end = walks.clamped(output, start, 6, 0.5, 0.03, sources(), descents).end
    for row, source in enumerate(sources()):
        slow = clamped_walk(output, start[row], 6, 0.5, 0.03, source, descents)
        assert torch.allclose(end[row], slow, atol=1e-12)


def test_embeddings_are_kept_after_the_steps_that_are_watched():
    output, start = net(), noise(1, N, D)
    walk = walks.clamped(output, start, 5, 0.5, 0.03, sources(1), watch=(0, 2, 5, 9))
    assert list(walk.watched) == [0, 2, 5]
    assert torch.equal(walk.watched[0], start)
    assert torch.equal(walk.watched[5], walk.end)
    assert torch.equal(walk.watched[2], walks.clamped(output, start, 2, 0.5, 0.03, sources(1)).end)


def test_steepness_of_a_linear_map_is_its_own():
    matrix = torch.diag(torch.full((D,), 3.0, dtype=torch.float64))
    steep = walks.steepness(times(matrix), noise(ROWS, N, D), 0.1, sources())
    assert torch.allclose(steep, torch.full((ROWS,), 3.0, dtype=torch.float64))


# What came of it.


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_a_map_that_doubles_changes_the_output_twice_as_much(norm):
    start, end = noise(ROWS, N, D), noise(ROWS, N, D, seed=2)
    twice = torch.full((ROWS,), 2.0, dtype=torch.float64)
    assert torch.allclose(walks.change(lambda x: 2 * x, start, end, norm), twice)
    assert torch.allclose(walks.stability(lambda x: 2 * x, start, end), 1 / twice)


def test_a_subject_s_blocks_are_an_output():
    subject = toy("llama")
    x = embedded(subject)[prompt(subject, N)]
    output = walks.output_function(subject, Target(subject.layers))
    assert torch.equal(output(x), subject.block_output(subject.layers, embeddings=x))
    half = toy("llama", "bfloat16")
    assert walks.output_function(half, Target(half.layers))(x).dtype == torch.float32
    assert walks.orthogonal(walks.output_function(half, Target(1)), x, 2).isfinite().all()


# What cannot be used.


def orthogonal(start=None, steps=2, **options):
    return walks.orthogonal(net(), noise(ROWS, N, D) if start is None else start, steps, **options)


def clamped(start=None, steps=2, scale=0.5, rate=0.03, rows=ROWS, **options):
    start = noise(ROWS, N, D) if start is None else start
    return walks.clamped(net(), start, steps, scale, rate, sources(rows), **options)


NAN = torch.full((ROWS, N, D), torch.nan, dtype=torch.float64)


@pytest.mark.parametrize(
    ("walk", "said"),
    [
        (lambda: orthogonal(noise(1, D, D)), "gradients of 9 tokens in 9 dimensions have no null"),
        (lambda: orthogonal(NAN), "the start holds numbers that are not finite"),
        (lambda: clamped(NAN), "the start holds numbers that are not finite"),
        (lambda: orthogonal(steps=0), "steps 0: at least 1 is needed"),
        (lambda: clamped(steps=0), "steps 0, descents 1: at least 1 and 0 are needed"),
        (lambda: clamped(descents=-1), "steps 2, descents -1"),
        (
            lambda: orthogonal(along="next"),
            "unknown direction 'next': choose from last, several, first, ran",
        ),
        (lambda: orthogonal(along="random"), "3 rows need as many sources and not 0"),
        (lambda: clamped(rows=2), "3 rows need as many sources and not 2"),
        (lambda: orthogonal(noise(N, D)), r"\[rows, n, d\] are needed and not \[4, 9\]"),
        (lambda: orthogonal(noise(0, N, D)), r"\[rows, n, d\] are needed and not \[0, 4, 9\]"),
        (lambda: clamped(scale=torch.nan), "the noise or rate holds numbers that are not finite"),
        (lambda: clamped(rate=torch.inf), "the noise or rate holds numbers that are not finite"),
    ],
)
def test_what_cannot_be_walked_is_one_clear_line(walk, said):
    with pytest.raises(BadInput, match=said) as error:
        walk()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("fails", [torch.sqrt, torch.log])
def test_a_gradient_that_is_none_is_one_clear_line(fails):
    def output(x):
        return fails(x - x.detach())  # its gradient at 0 has no end

    with pytest.raises(BadInput, match="the gradient holds numbers that are not finite"):
        walks.orthogonal(output, noise(1, N, D), 2)
    with pytest.raises(BadInput, match="holds numbers that are not finite"):
        walks.clamped(output, noise(1, N, D), 2, 0.5, 0.03, sources(1))
