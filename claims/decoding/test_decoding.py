"""Decoding embeddings into tokens (document 003, equation 3)."""

from __future__ import annotations

import functools

import torch
from hypothesis import strategies as st

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.checking.work import Work
from assay.harness.inversion.decoding import PseudoInverse, nearest
from assay.harness.models.subject import positions
from assay.harness.models.subject.memo import memo
from assay.harness.operations.equal_rows import has_duplicate
from assay.harness.operations.factors import gram, triangle
from assay.harness.operations.likeliest import (
    BYTES_AT_ONCE,
    in_chunks,
    std,
    times_rows,
    times_table,
)
from assay.harness.results.errors import Missing

MANY = 256
"""Most tokens to decode at once: each is compared with the whole vocabulary."""


@memo
def pseudo_inverse(subject):
    """The subject's W⁺, factored once; `Missing` where all rows of W are equal."""
    table = subject.embedding_table.detach()
    if bool((table == table[:1]).all()):
        raise Missing("all rows of the embedding matrix are equal")
    return PseudoInverse.of(table)


@memo
def duplicated(subject):
    """Whether each token's row is in W more than once: [V]."""
    return has_duplicate(subject.embedding_table.detach())


@law(
    "D2",
    "nearest-row decoding recovers every token whose row is its own",
    source="beyond 003: linear algebra",
    control="a duplicate of the token's row at a smaller id",
    work=Work.VOCABULARY,
)
def test_the_nearest_row_is_the_token(subject, draw, check):
    ids = draw(prompts(subject, longest=MANY, rows=1), "tokens").ids[0].unique()
    table, own = subject.embedding_table.detach(), ~duplicated(subject)[ids]
    lost = ids[(nearest(table, table[ids]) != ids) & own]
    check.judge(len(lost) / len(ids), 0.0, f"tokens {lost.tolist()[:5]}")
    if check.wants() and int(ids[-1]) > 0 and bool(own[-1]):
        doubled = table.clone()
        doubled[0] = table[ids[-1]]
        lost = ids[(nearest(doubled, doubled[ids]) != ids) & own]
        check.judge_control(len(lost) / len(ids), 0.0)
        check.sees_one("token that is not recovered", len(lost) / len(ids))


@law(
    "D3",
    "positions can be added to an embedding and subtracted again",
    needs=["added-positions"],
    source="003, 'the positional weight matrix is invariant'",
    control="the row of the next position subtracted",
)
def test_positions_can_be_added_and_subtracted(subject, draw, check):
    ids = draw(prompts(subject, rows=1), "prompt").ids[0]
    table, position_embeddings = (
        subject.embedding_table.detach(),
        positions.position_table(subject),
    )
    first = positions.position_offset(subject)
    at = position_embeddings.weight[first : first + len(ids)]
    there_and_back = (table[ids] + at) - at
    rounding = (there_and_back - table[ids]).double().norm(dim=1)
    size = table[ids].double().norm(dim=1) + at.double().norm(dim=1)
    size = size.clamp_min(torch.finfo(torch.float64).tiny)  # both rows may be zero
    check.judge(float((rounding / size).max()), check.tolerance.floor, "rounding")
    displaced = ((table[ids] + at) - at.roll(1, 0) - table[ids]).double().norm(dim=1)
    check.judge_control(float((displaced / size).max()), check.tolerance.floor)
    check.sees(lambda leak: (float((rounding / size).max()) + leak, check.tolerance.floor))
    clear = rounding < room_around(table, ids)
    back = nearest(table, there_and_back)
    plain = nearest(table, table[ids])
    check.judge(changed(back[clear], plain[clear]), 0.0, "some token")
    left_in = check.details.setdefault("tokens that change with positions left in", [])
    left_in.append(changed(nearest(table, table[ids] + at), plain))


def room_around(table, ids):
    """Half the distance from each token's row to the nearest other row: [n]."""
    points, chunks = table[ids].double(), in_chunks(table, torch.float64)
    distances = torch.cat([torch.cdist(points, rows) for _, rows in chunks], dim=1)
    distances[torch.arange(len(ids)), ids] = torch.inf
    return distances.amin(1) / 2


def changed(ids, plain):
    """The share of tokens that differ."""
    return float((ids != plain).double().mean()) if len(ids) else 0.0


@law(
    "D4",
    "the fast decoder is the pseudo-inverse, in values and in tokens",
    source="003, equation 3; beyond: linear algebra",
    control="the Gram matrix solved in spite of a repeated column",
    work=Work.VOCABULARY,
)
def test_the_fast_decoder_is_the_pseudo_inverse(subject, draw, check):
    fast = pseudo_inverse(subject)
    check.details["decoder"] = f"{fast.method}, condition {fast.condition:.3g}, rank {fast.rank}"
    seed = draw(st.integers(0, 2**16), "seed")
    points = random(seed, 8, subject.hidden, like=fast.matrix) * std(fast.matrix)
    slow = slow_inverse(subject)(points)
    logits = fast.logits(points)
    check.judge(relative(logits, slow), allowed(fast), "values")
    check.judge(untied(logits, slow, allowed(fast)), 0.0, "tokens")
    leak = logits.roll(1, 0) / logits.norm() * slow.norm()
    check.sees(lambda size: (relative(logits + size * leak, slow), allowed(fast)))
    if check.wants():
        check.judge_control(blind_solve_error(fast.matrix), allowed(fast))


@law(
    "D4",
    "the fast decoder meets the four Penrose conditions",
    source="003, 'the Moore-Penrose pseudo-inverse'",
    control="the transpose in place of the pseudo-inverse",
    work=Work.VOCABULARY,
)
def test_the_fast_decoder_meets_the_penrose_conditions(subject, draw, check):
    fast, seed = pseudo_inverse(subject), draw(st.integers(0, 2**16), "seed")
    a, b = random(seed, 2, subject.hidden, like=fast.matrix)
    x, y = random(seed + 1, 2, subject.vocabulary, like=fast.matrix)
    for name, error in penrose(fast.matrix, fast.apply, a, b, x, y).items():
        check.judge(error, allowed(fast), name)
    worst = max(penrose(fast.matrix, lambda v: times_table(v, fast.matrix), a, b, x, y).values())
    check.judge_control(worst, allowed(fast))
    longer = functools.partial(penrose, fast.matrix, a=a, b=b, x=x, y=y)
    check.sees(
        lambda size: (
            max(longer(inverse=lambda v: (1 + size) * fast.apply(v)).values()),
            allowed(fast),
        )
    )


@law(
    "D4",
    "the fast decoder is the limit of the regularised inverse, and of least norm",
    source="003, definition of the pseudo-inverse",
    control="a regularisation as large as the spectrum",
    work=Work.VOCABULARY,
)
def test_the_fast_decoder_is_the_limit_and_of_least_norm(subject, draw, check):
    fast, seed = pseudo_inverse(subject), draw(st.integers(0, 2**16), "seed")
    alpha = fast.least * draw(st.sampled_from([1e-1, 1e-2, 1e-3]), "alpha")
    x = times_rows(random(seed, 1, subject.hidden, like=fast.matrix)[0], fast.matrix)
    exact, bound = fast.apply(x), alpha / fast.least + allowed(fast)
    other = random(seed + 1, 1, subject.vocabulary, like=fast.matrix)[0]
    right = times_table(torch.stack([x, other]), fast.matrix)
    regular = regularised(square_of(subject), right[0], alpha)
    check.judge(relative(regular, exact), bound, f"alpha {alpha:.2g}")
    solution, reached = fast.logits(right)
    null = other - reached
    # Relative to all of it: with independent rows there is one solution, and null is noise.
    part = (solution @ null).abs() / (solution.norm() * other.norm())
    check.judge(float(part), allowed(fast), "least norm")
    blurred = regularised(square_of(subject), right[0], 1e3 * fast.least)
    check.judge_control(relative(blurred, exact), bound)
    if fast.rank == subject.vocabulary:
        return  # no vector that could leak: the null space is empty
    along = solution.norm() * null / null.norm()
    check.sees(
        lambda size: (
            float(((solution + size * along) @ null).abs() / (solution.norm() * other.norm())),
            allowed(fast),
        )
    )


@memo
def slow_inverse(subject):
    """E [..., d] → e W⁺ [..., V] by SVD in float64, with a cut-off at the size of rounding.

    By torch's own pseudo-inverse of a table of which there is room for several copies; of a larger
    one by the SVD W = U S Vᵀ of a triangle, with U = W V S⁻¹.
    """
    table = subject.embedding_table.detach()
    cut = max(table.shape) * torch.finfo(torch.float64).eps
    if table.numel() * torch.float64.itemsize <= BYTES_AT_ONCE // 4:
        inverse = torch.linalg.pinv(table.double(), rtol=cut)
        return lambda points: points @ inverse
    _, sizes, turned = torch.linalg.svd(triangle(table), full_matrices=False)
    large = sizes > cut * sizes[0]
    turned = turned[large] / sizes[large, None]
    return lambda points: times_rows(points @ turned.T @ turned, table)


def random(seed, rows, columns, like):
    """Standard normal numbers from a seed: [rows, columns]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64).to(like.device)


def relative(observed, exact):
    """‖observed − exact‖ / ‖exact‖."""
    return float((observed - exact).norm() / exact.norm())


def allowed(fast):
    """The error that rounding in float64 explains, with the tolerance table's factor."""
    from assay.harness.models.reference.tolerances import TOLERANCES

    return TOLERANCES[torch.float64].allowed(fast.rounding)


def untied(logits, slow, tie):
    """The share of points decoded to another token although the two were not tied."""
    mine, theirs = logits.argmax(-1), slow.argmax(-1)
    gap = slow.gather(-1, theirs[:, None]) - slow.gather(-1, mine[:, None])
    return float((gap[:, 0] > tie * slow.abs().amax(-1)).double().mean())


def blind_solve_error(table):
    """The error of ``W⁺ W = identity on the range`` if a repeated column is not noticed."""
    broken = table.clone()
    broken[:, -1] = broken[:, 0]
    square = gram(broken, torch.float64)
    solved, failed = torch.linalg.solve_ex(square, square[:, :1])
    if int(failed) or not bool(torch.isfinite(solved).all()):
        return float("inf")
    right = PseudoInverse.of(broken)
    return relative(solved[:, 0], right.apply(broken[:, 0]))


def penrose(table, inverse, a, b, x, y):
    """The relative errors of the four conditions on vectors a, b [d] and x, y [V]."""
    w = functools.partial(times_rows, table=table)
    # Together, as each product reads the whole table.
    wa, wb = w(torch.stack([a, b]))
    a_again, b_again, vx, vy = inverse(torch.stack([wa, wb, x, y]))
    wa_again, wvx, wvy = w(torch.stack([a_again, vx, vy]))
    inner = ((a @ b_again) - (a_again @ b)).abs() / (a.norm() * b.norm())
    outer = ((x @ wvy) - (wvx @ y)).abs() / (x.norm() * y.norm())
    return {
        "W W⁺ W = W": relative(wa_again, wa),
        "W⁺ W W⁺ = W⁺": relative(inverse(wvx), vx),
        "W⁺ W is symmetric": float(inner),
        "W W⁺ is symmetric": float(outer),
    }


def regularised(square, right, alpha):
    """(WᵀW + αI)⁻¹Wᵀ x, from ``square`` = WᵀW and ``right`` = Wᵀ x."""
    square = square.clone()
    square.diagonal().add_(alpha)
    return torch.linalg.solve(square, right)


@memo
def square_of(subject):
    """WᵀW of the embedding matrix, in float64."""
    return gram(subject.embedding_table.detach(), torch.float64)
