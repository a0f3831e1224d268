"""Tables of vectors: cosines against closed forms, and the published table's pairs."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from assay.claims.positions import test_position_table as claims
from assay.harness.checking.draws import Draws
from assay.harness.models.subject import Subject, positions
from assay.harness.operations import structure
from assay.harness.results.encoding import encode
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import fresh, toy, verdict

DRAWS = Draws(0, "X1", range(5))


def noise(rows=40, columns=12, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


# Cosines.


def test_cosines_of_orthogonal_and_parallel_rows():
    table = torch.tensor([[1.0, 0.0], [0.0, 3.0], [2.0, 0.0], [-1.0, 0.0], [1.0, 1.0]])
    square = structure.cosines(table)
    assert square.dtype == torch.float64
    root = 0.5**0.5
    expected = torch.tensor([1.0, 0.0, 1.0, -1.0, root], dtype=torch.float64)
    assert torch.allclose(square[0], expected, atol=1e-15)
    assert torch.allclose(square, square.T, rtol=0, atol=1e-15)


def test_what_is_above_the_diagonal_is_taken_by_place_and_not_by_value():
    square = torch.tensor([[9.0, 1.0, 0.0], [8.0, 9.0, 2.0], [8.0, 8.0, 9.0]])
    assert structure.above_diagonal(square).tolist() == [1.0, 0.0, 2.0]


def test_columns_are_compared_and_not_rows():
    assert len(structure.between_columns(noise())) == 12 * 11 // 2
    table = noise()
    table[:, 11] = -2 * table[:, 0]
    assert structure.between_columns(table)[10] == pytest.approx(-1)


# Chance.


def test_a_shuffle_keeps_the_numbers_and_not_their_places():
    table = noise()
    shuffles = structure.shuffled(table, DRAWS)
    for shuffle in shuffles:
        assert shuffle.shape == table.shape
        assert torch.equal(shuffle.flatten().sort().values, table.flatten().sort().values)
        assert not torch.equal(shuffle, table)
    assert not torch.equal(shuffles[0], shuffles[1])
    assert torch.equal(structure.shuffled(table, DRAWS.only(lambda i: i == 3))[0], shuffles[3])


def test_p_values_tell_another_distribution_from_the_same():
    same = structure.log_p(noise(1, 500)[0], noise(1, 500, seed=1)[0])
    other = structure.log_p(noise(1, 500)[0], 3 * noise(1, 500, seed=1)[0])
    assert -4 < same <= 0
    assert other < -6
    assert structure.log_p(noise(1, 9000)[0], 9 + noise(1, 9000)[0]) == structure.LEAST_LOG_P


def test_kurtosis_is_beyond_the_normal_one():
    assert abs(structure.kurtosis(noise(1, 20000)[0])) < 0.2
    assert structure.kurtosis(torch.tensor([-1.0, 1.0]).repeat(50)) == pytest.approx(-2)
    assert structure.kurtosis(noise(1, 20000)[0] ** 3) > 10


def test_histograms_count_every_cosine_that_there_is():
    broken = torch.tensor([0.5, -0.5, torch.nan, 0.1])
    counts = structure.histograms({"one": torch.linspace(-0.9, 0.9, 50), "other": broken}, bins=20)
    assert len(counts["edges"]) == 21
    assert (counts["edges"][0], counts["edges"][-1]) == pytest.approx((-0.9, 0.9))
    assert (counts["one"].sum(), counts["other"].sum()) == (50, 3)
    nothing = structure.histograms({"none": torch.full((3,), torch.nan)})
    assert nothing["none"].sum() == 0
    assert np.isfinite(nothing["edges"]).all()


# The most similar pairs.


def injected(cosines, rows=300, columns=60):
    """A table whose columns are orthogonal but for pairs of a known cosine.

    Of a pair (i, j) column j is made from i, so each column stands second once at most.
    """
    table = torch.zeros(rows, columns, dtype=torch.float64)
    table[-columns:] = torch.eye(columns, dtype=torch.float64)
    for (i, j), cosine in cosines.items():
        own = table[:, j].clone()
        table[:, j] = cosine * table[:, i] + (1 - cosine**2) ** 0.5 * own
    return table


def test_the_top_pairs_are_those_that_were_planted():
    table = injected({(3, 9): 0.5, (1, 40): 0.9, (20, 21): 0.7})
    pairs = structure.top_pairs(table, (0, 1, 2))
    assert [(i, j) for i, j, _ in pairs] == [(1, 40), (20, 21), (3, 9)]
    assert [cosine for *_, cosine in pairs] == pytest.approx([0.9, 0.7, 0.5])
    assert structure.top_pairs(table, (2,))[0][:2] == (3, 9)


def test_a_pair_without_a_cosine_comes_last():
    table = injected({(0, 1): -0.99}, columns=4)
    table[:, 3] = 0
    pairs = structure.top_pairs(table, tuple(range(6)))
    assert pairs[2][:2] == (0, 1)
    assert all(3 in pair[:2] and math.isnan(pair[2]) for pair in pairs[3:])


# The published GPT-2.


def published(changes=None):
    """A table with the published one's shape, first numbers, and pairs at their ranks.

    Between each two printed pairs stand others: 21, of which (308, 356) follows from the two
    pairs with 528.  ``changes`` are other cosines by pair.
    """
    printed = dict(claims.PUBLISHED)
    cosines = printed | (changes or {})
    cosines[528, 308] = cosines.pop((308, 528))
    spare = (c for c in range(10, 760, 2) if not {c, c + 1} & {i for p in printed for i in p})
    values = sorted(printed.values(), reverse=True)
    for above, below in pairwise(values):
        count = 20 if below == 0.885 else 21
        for step in range(1, count + 1):
            first = next(spare)
            cosines[first, first + 1] = above + (below - above) * step / (count + 1)
    table = injected(cosines, *structure.PUBLISHED_SHAPE)
    rows = torch.tensor(structure.PUBLISHED_ROWS, dtype=torch.float64)
    table[:2, :3], table[:2, -3:] = rows[:, :3], rows[:, 3:]
    return table.float()


def with_table(table):
    """A small GPT-2 with ``table`` as its positions."""
    n, width = table.shape
    config = GPT2Config(vocab_size=50, n_positions=n, n_embd=width, n_layer=1, n_head=4)
    subject = Subject("injected", GPT2LMHeadModel(config).eval().requires_grad_(False))
    with torch.no_grad():
        positions.position_table(subject).weight.copy_(table)
    return subject


def test_the_published_table_is_known_in_every_dtype():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert structure.is_published_gpt2(published().to(dtype))


def test_another_table_is_not_the_published_one():
    table = published()
    assert not structure.is_published_gpt2(table[:, :-1])
    table[1, -2] += 1e-3
    assert not structure.is_published_gpt2(table)
    assert not structure.is_published_gpt2(noise(*structure.PUBLISHED_SHAPE))


def test_the_published_gpt2_upholds_what_document_002_prints():
    result = verdict(
        claims.test_the_published_gpt2_has_the_published_pairs, with_table(published())
    )
    assert (result.verdict, result.observed) == (Verdict.UPHELD, 0.0)
    assert result.details["control value"] == 5


@pytest.mark.parametrize("pair", [(107, 271), (356, 528), (365, 525)])
def test_a_published_gpt2_with_one_pair_changed_is_refuted(pair):
    changed = published({pair: dict(claims.PUBLISHED)[pair] - 0.002})
    result = verdict(claims.test_the_published_gpt2_has_the_published_pairs, with_table(changed))
    assert (result.verdict, result.observed) == (Verdict.REFUTED, 1.0)


def test_another_model_s_pairs_are_not_compared_with_the_published_ones():
    result = verdict(claims.test_the_published_gpt2_has_the_published_pairs, toy("gpt2"))
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert result.reason == "the position table is not that of the published GPT-2"


# Zeros.


@pytest.mark.parametrize(
    "claim",
    [
        claims.test_neighbouring_positions_are_similar,
        claims.test_nearer_positions_are_more_similar,
        claims.test_dimensions_are_correlated_beyond_chance,
        claims.test_cosines_of_dimensions_are_not_those_of_a_shuffle,
        claims.test_the_most_similar_dimensions_are_near_copies,
    ],
)
def test_a_table_of_zeros_decides_nothing_and_shows_no_nan(claim):
    subject = fresh("gpt2")
    with torch.no_grad():
        positions.position_table(subject).weight.zero_()
    result = verdict(claim, subject)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason.startswith("the effect is undefined")
    assert (result.observed, result.interval, result.bound) == (None, None, None)
    assert "NaN" not in encode(result)
