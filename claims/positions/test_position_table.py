"""Structure of the table of positions (document 002)."""

from __future__ import annotations

import torch

from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import exact, highest, mean, median, rank_correlation
from assay.harness.models.capabilities import Missing
from assay.harness.operations import structure, variants
from assay.harness.operations.position_rows import rows_used

SHUFFLES = 100
"""Minimum number of shuffles to estimate chance."""

PUBLISHED = (
    ((356, 528), 0.992),
    ((320, 540), 0.943),
    ((308, 528), 0.915),
    ((107, 271), 0.885),
    ((365, 525), 0.864),
)
"""Pairs of dimensions of the published GPT-2 and their cosines, as document 002 prints them."""


@finding(
    "A10",
    "neighbouring positions are more similar than random pairs",
    needs=["learned-positions"],
    source="002, exercise 1",
    bound=Bound(mean, above=0.2),
    control="the same rows in another order",
)
def test_neighbouring_positions_are_similar(subject, draws, sample):
    table = rows_used(subject)
    at, pairs = neighbours(table, draws), random_pairs(table, draws)
    for name, rows in {"effect": table, "control": reordered(table, draws)}.items():
        square = structure.cosines(rows)
        sample.add(**{name: square[at, at + 1] - square[pairs[:, 0], pairs[:, 1]]})
    maps(sample, table)


@finding(
    "A10",
    "the nearer two positions, the more similar",
    needs=["learned-positions"],
    source="002, exercise 1",
    bound=Bound(rank_correlation, above=0.3),
    control="the same rows in another order",
)
def test_nearer_positions_are_more_similar(subject, draws, sample):
    table = rows_used(subject)
    pairs = random_pairs(table, draws)
    nearness = -(pairs[:, 0] - pairs[:, 1]).abs().double()
    for name, rows in {"effect": table, "control": reordered(table, draws)}.items():
        cosine = structure.cosines(rows).cpu()[pairs[:, 0], pairs[:, 1]]
        sample.add(**{name: torch.stack([cosine, nearness], dim=1)})


@finding(
    "A11",
    "dimensions of the position table are correlated three times as much as by chance",
    needs=["learned-positions"],
    source="002, exercise 2",
    bound=Bound(median, at_least=3.0),
    control="the untrained twin's table, for which the ratio is about 1",
    control_bound=Bound(median, at_least=0.8, at_most=1.25),
    draws=SHUFFLES,
)
def test_dimensions_are_correlated_beyond_chance(subject, draws, sample):
    for name, table in tables_of(subject).items():
        cosines = structure.between_columns(table)
        chance = [structure.between_columns(t) for t in structure.shuffled(table, draws)]
        sample.add(**{name: [float(cosines.std() / each.std()) for each in chance]})
        if name == "effect":
            sample.details["kurtosis"] = structure.kurtosis(cosines)
            sample.details["kurtosis of a shuffle"] = structure.kurtosis(chance[0])
            histograms(sample, table, cosines, chance[0], draws)


@finding(
    "A11",
    "cosines between dimensions are distributed otherwise than in a shuffled table",
    needs=["learned-positions"],
    source="002, exercise 2",
    bound=Bound(median, below=-6.0),
    control="the untrained twin's table against its own shuffle",
    draws=SHUFFLES,
)
def test_cosines_of_dimensions_are_not_those_of_a_shuffle(subject, draws, sample):
    for name, table in tables_of(subject).items():
        cosines = structure.between_columns(table)
        chance = [structure.between_columns(t) for t in structure.shuffled(table, draws)]
        sample.add(**{name: [structure.log_p(cosines, each) for each in chance]})


@finding(
    "A12",
    "the most similar dimensions are near copies",
    needs=["learned-positions"],
    source="002, exercise 3",
    bound=Bound(exact, at_least=0.8),
    control="shuffled tables: each top cosine over 0.8, or half of a near copy's, below 1",
    control_bound=Bound(highest, below=1.0),
    draws=SHUFFLES,
)
def test_the_most_similar_dimensions_are_near_copies(subject, draws, sample):
    table = rows_used(subject)
    pairs = structure.top_pairs(table)
    sample.details["top pairs"] = [f"{cosine:.3f} in ({i}, {j})" for i, j, cosine in pairs]
    top = pairs[0][2]
    chance = [structure.top_pairs(t, (0,))[0][2] for t in structure.shuffled(table, draws)]
    limit = min(0.8, top / 2) if top >= 0.8 else 0.8
    sample.add(effect=top, control=[by_chance / limit for by_chance in chance])
    points = {f"({i}, {j}), {cosine:.3f}": table[:, [i, j]] for i, j, cosine in pairs}
    sample.plot("The most similar pairs of dimensions", "scatter", points, "one", "the other")


@finding(
    "A12",
    "the published GPT-2's most similar dimensions are those that document 002 prints",
    needs=["learned-positions"],
    source="002, exercise 3, its output",
    bound=Bound(exact, at_most=0.0),
    control="the same table with its first dimension moved to the end",
    draws=1,
)
def test_the_published_gpt2_has_the_published_pairs(subject, draws, sample):
    table = rows_used(subject)
    if not structure.is_published_gpt2(table):
        raise Missing("the position table is not that of the published GPT-2")
    for name, rows in {"effect": table, "control": table.roll(-1, 1)}.items():
        pairs = [((i, j), round(cosine, 3)) for i, j, cosine in structure.top_pairs(rows)]
        sample.add(**{name: len(PUBLISHED) - len(set(pairs) & set(PUBLISHED))})
        sample.details[name] = [str(pair) for pair in pairs]


def neighbours(table, draws):
    """Two neighbouring positions for each draw: the first of the two, [draws]."""
    return draws.integers(0, len(table) - 1, "neighbours")


def random_pairs(table, draws):
    """Two different positions for each draw: [draws, 2]."""
    if len(table) < 3:
        raise Missing(f"a table of {len(table)} positions has no pairs to compare")
    one = draws.integers(0, len(table), "one")
    other = (one + draws.integers(1, len(table), "other")) % len(table)
    return torch.stack([one, other], dim=1)


def reordered(table, draws):
    """The rows of ``table`` in an order drawn from the first draw's seed."""
    return table[draws.only(lambda i: i == draws.numbers[0]).orders(len(table))[0]]


def tables_of(subject):
    """The subject's position embeddings, and those of its untrained twin as the control."""
    untrained = variants.untrained(subject)
    return {"effect": rows_used(subject), "control": rows_used(untrained)}


def maps(sample, table):
    """Record the maps of cosines between positions and between dimensions."""
    for what, rows in {"positions": table, "dimensions": table.T}.items():
        square = {"cosine": structure.cosines(rows)}
        sample.plot(f"Cosines between {what}", "map", square, what, what)


def histograms(sample, table, cosines, chance, draws):
    """Record both histograms of cosines, of dimensions and of positions, with the shuffle's."""
    rows = structure.above_diagonal(structure.cosines(table))
    by_chance = structure.shuffled(table, draws.only(lambda i: i == draws.numbers[0]))[0]
    rows_by_chance = structure.above_diagonal(structure.cosines(by_chance))
    for what, own, other in (
        ("dimensions", cosines, chance),
        ("positions", rows, rows_by_chance),
    ):
        counts = structure.histograms({what: own, "shuffled": other})
        title = f"Cosines between {what}, and in a shuffled table"
        sample.plot(title, "histograms", counts, "cosine", "pairs")
