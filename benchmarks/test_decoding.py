"""Decoding by the pseudo-inverse of embedding matrices of real sizes, and by torch's own.

Any decoder that forms the Gram matrix is at most as fast as that product alone: the limit.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.harness.inversion.decoding import PseudoInverse
from assay.harness.inversion.own_rows import recovered_after, recovery
from assay.harness.models.machine import memory

TOKENS = 20
GOAL, SHARE = 20, 0.8
"""Times `torch.linalg.pinv`; where one Gram matrix does not allow that, a share of its limit."""

ROUNDS, FEW_ROUNDS = 5, 3
NOISE = 0.1
"""Noise on the rows to decode, over the matrix's own standard deviation."""

ROOM = 6
"""Matrices that must fit: the one to decode, and those of pinv."""

GIB = 2**30

PATIENCE = {"cpu": 1e11, "cuda": 1e12}
"""Largest V d² to run `torch.linalg.pinv` on, by the kind of device."""


def table(v: int, d: int, condition: float, device: torch.device) -> Tensor:
    """Rows [V, d] in float32 whose singular values span about this condition."""
    generator = torch.Generator(device).manual_seed(0)
    scales = torch.logspace(0, 1, d, base=1 / condition, device=device)
    turned = torch.linalg.qr(torch.randn(d, d, generator=generator, device=device)).Q
    rows = torch.randn(v, d, generator=generator, device=device).mul_(scales)
    return (rows @ turned).mul_(0.1)


@pytest.mark.parametrize(
    ("v", "d", "condition", "tokens"),
    [
        (2048, 128, 1, TOKENS),
        (50257, 768, 1, TOKENS),
        (50257, 768, 50, TOKENS),
        (50257, 768, 1, 1),
        (50257, 768, 1, 64),
        (128256, 4096, 1, TOKENS),
        (256000, 3584, 1, TOKENS),
    ],
)
def test_decoding(race, report, device, v, d, condition, tokens):
    waited_for = v * d**2 <= PATIENCE.get(device.type, float("inf"))
    needed = 4 * v * d * (ROOM if waited_for else 2)
    if (free := memory.free(device)) < needed:
        pytest.skip(f"{v} × {d}: {needed / GIB:.1f} GiB are needed, and {free / GIB:.1f} are free")
    w = table(v, d, condition, device)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(v, (tokens,), generator=generator).to(device)
    noise = torch.randn(tokens, d, generator=generator).to(device)
    e = w[ids] + NOISE * w.std() * noise

    def ours():
        return PseudoInverse.of(w).decode(e)

    def theirs():
        return (e @ torch.linalg.pinv(w)).argmax(-1)

    assert ours().equal(ids)
    factored = PseudoInverse.of(w)
    assert factored.condition > 0  # factored here
    assert factored.decode(e).equal(ids)
    others = {"again": lambda: factored.decode(e), "Gram": lambda: w.T @ w}
    if waited_for:
        assert theirs().equal(ids)
        others["pinv"] = theirs
    rounds = race(ours, ROUNDS if waited_for else FEW_ROUNDS, others)
    name = f"decoding, {v} × {d}, condition {factored.condition:.2g}, {tokens} points"
    if waited_for:
        limit = np.array(rounds.others["pinv"]) / np.array(rounds.others["Gram"])
        goal = min(GOAL, SHARE * float(np.median(limit)))
        report.figure(name, "× torch.linalg.pinv", rounds.times("pinv"), goal)
        report.figure(name, "limit: one Gram matrix × pinv", limit)
    report.figure(name, "of the speed of one Gram matrix", rounds.times("Gram"))
    report.figure(name, "seconds", rounds.seconds)
    report.figure(name, "seconds once factored", np.array(rounds.others["again"]))
    report.also(method=factored.method, condition=factored.condition)


def like_trained(v: int, d: int) -> Tensor:
    """Rows [v, d] around a common mean, of lengths and directions with wide spectra."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.arange(1, d + 1) ** -0.5 * torch.randn(v, d, generator=generator)
    turned = directions @ torch.linalg.qr(torch.randn(d, d, generator=generator)).Q
    rows = turned / turned.std() * torch.exp(0.3 * torch.randn(v, 1, generator=generator))
    return 0.1 * (rows + 3 * torch.randn(1, d, generator=generator))


@pytest.mark.parametrize("kind", ["random", "like a trained one"])
def test_every_row(race, report, device, kind):
    """All of D1: every token decoded from its own row, and again with a row changed."""
    v, d = 50257, 768
    if v * d**2 > PATIENCE.get(device.type, float("inf")):
        pytest.skip(f"no baseline on {device}")
    w = (table(v, d, 1, device) if kind == "random" else like_trained(v, d)).to(device)
    doubled = w.clone()
    doubled[1] = 2 * doubled[0]
    changed = torch.tensor([1], device=device)

    def ours():
        inverse = PseudoInverse.of(w)
        result = recovery(inverse)
        return result, recovered_after(PseudoInverse.of(doubled), changed, inverse, result)

    def theirs():
        return torch.linalg.pinv(w.double())

    (result, after), inverse, some = ours(), theirs(), slice(0, 512)
    for matrix, recovered in ((w, result.recovered), (doubled, after)):
        other = inverse if matrix is w else torch.linalg.pinv(matrix.double())
        decoded = (matrix[some].double() @ other).argmax(1)
        assert recovered[some].equal(decoded == torch.arange(512, device=device))
    rounds = race(ours, FEW_ROUNDS, {"pinv": theirs})
    name = f"every row decoded, {v} × {d}, {kind}"
    report.figure(name, "× torch.linalg.pinv alone", rounds.times("pinv"))
    report.figure(name, "seconds", rounds.seconds, 15, at_most=True)
    report.also(recovered=float(result.recovered.double().mean()), decoder=result.decoder)
