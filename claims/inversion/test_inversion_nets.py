"""Whether descent inverts fully connected networks, expanding and contracting ones (003)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from assay.fixtures import texts
from assay.harness.checking import measures
from assay.harness.checking.draws import Draws
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import model_mean
from assay.harness.inversion import DECODERS, Rule, decode, descend, nets, start
from assay.harness.models import capabilities
from assay.harness.models.subject.memo import memo

TOKENS = 5
"""Those of 'This is a prompt sentence.' without its full stop, which `FCNet` reads."""

FEW, MOST = 60, 200
"""Steps of a descent, and of a second one where the first does not recover the prompt."""

LOOKED_AT = (0, 20, 40, 45, 50, 60)
"""The start, and the steps whose tokens document 003 shows."""

GRID = (0.3, 1.0, 3.0, 10.0)
"""Learning rates to try, in units of `start.unit`."""

TUNED_ON, PER_NET = 2, 8
"""Prompts that choose the learning rate, on a network of their own; draws that share one."""

DRAWS = 64
"""Eight networks: fewer draws cannot decide a share of 0.9, and each costs a second."""


@dataclass(frozen=True)
class Way:
    """Where a descent starts, and how its result is decoded."""

    start: str
    decoder: str

    def first(self, subject, normal):
        """The start of standard ``normal`` numbers; a network adds no positions."""
        if self.start == "documented":
            return start.MEAN + start.STD * normal.to(subject.device)
        return start.scaled(subject, normal)


WAYS = Way("documented", "pseudo-inverse"), Way("scaled", "nearest")

both_ways = pytest.mark.parametrize("way", WAYS, ids=["as documented", "controlled"])


@finding(
    "E1",
    "an expanding fully connected net is inverted exactly",
    source="003, FCNet",
    bound=Bound(model_mean, at_least=0.9),
    control="a net whose layers narrow to a quarter of the input",
    draws=DRAWS,
    costly=True,
    toy=True,
)
@both_ways
def test_an_expanding_net_is_inverted_exactly(subject, way, draws, sample):
    wide, narrow = (inverted(subject, kind, way, draws) for kind in ("expanding", "narrowing"))
    sample.add(effect=wide.by_net(wide.exact), control=narrow.by_net(narrow.exact))
    record(sample, {"expanding": wide, "narrowing": narrow})


@finding(
    "E1",
    "the more steps, the more tokens are recovered from an expanding net",
    source="003, FCNet: a_20 to a_60",
    bound=Bound(model_mean, at_least=0.9),
    control="the same tokens held against another prompt's",
    draws=DRAWS,
    costly=True,
    toy=True,
)
@both_ways
def test_recovery_rises_along_the_steps(subject, way, draws, sample):
    wide = inverted(subject, "expanding", way, draws)
    right, other = (rises(wide.hits(ids)) for ids in (wide.ids, wide.ids.roll(1, 0)))
    sample.add(effect=wide.by_net(right), control=wide.by_net(other))
    record(sample, {"expanding": wide})


@finding(
    "E2",
    "a contracting fully connected net typically is not inverted exactly",
    source="003, FCNet with its last layer cut back",
    bound=Bound(model_mean, below=0.5),
    control="an expanding net",
    draws=DRAWS,
    costly=True,
    toy=True,
)
@both_ways
def test_a_contracting_net_is_not_inverted_exactly(subject, way, draws, sample):
    cut, wide = (inverted(subject, kind, way, draws) for kind in ("contracting", "expanding"))
    sample.add(effect=cut.by_net(cut.exact), control=wide.by_net(wide.exact))
    sample.add(next_token_kept_where_not_exact=next_token_kept(subject, cut))
    record(sample, {"contracting": cut, "expanding": wide})


@dataclass(frozen=True)
class Inversions:
    """The results of some draws' descents.

    ``ids`` [draws, n] are the prompts; ``tokens`` [draws, steps, n] the tokens decoded after the
    steps `LOOKED_AT`; ``last`` [draws, n] those decoded at the end, by the other decoder
    ``other`` [draws, n]; ``nets`` [draws] the numbers of their networks; ``rate`` the learning
    rate, and ``tuned`` the recovery of the prompts that it was chosen with, by learning rate in
    units of `start.unit`.
    """

    ids: torch.Tensor
    tokens: torch.Tensor
    last: torch.Tensor
    other: torch.Tensor
    nets: torch.Tensor
    rate: float
    tuned: dict[str, float]

    @property
    def exact(self):
        """Whether all tokens of a prompt were recovered: [draws]."""
        return (self.last == self.ids).all(1)

    def by_net(self, values):
        """``values`` [draws] with the numbers of their networks: [draws, 2]."""
        return torch.stack([values.cpu().double(), self.nets.double()], dim=1)

    def hits(self, ids):
        """The share of tokens that are those of ``ids``, by step: [draws, steps]."""
        return (self.tokens == ids[:, None]).double().mean(2)


def inverted(subject, kind, way, draws):
    """Invert the output of networks of a ``kind``.

    Draws are inverted once for all claims, both ways of a network in one batch.
    """
    draws = draws.for_claim("E1, E2")
    tuned = tuning(subject, kind, draws.seed)
    results = results_by_net(subject).setdefault((draws.seed, kind), {})
    missing = draws.only(lambda i: i not in results)
    for group in sorted({i // PER_NET for i in missing}):
        group_draws = missing.only(lambda i, group=group: i // PER_NET == group)
        rows = searched(subject, kind, group_draws, group_draws.generator(group, kind))
        results |= dict(zip(group_draws, rows, strict=True))
    columns = zip(*(results[i][way] for i in draws), strict=True)
    ids, tokens, last, other = map(torch.stack, columns)
    of_nets = torch.tensor([i // PER_NET for i in draws])
    return Inversions(ids, tokens, last, other, of_nets, *tuned[way])


def searched(subject, kind, draws, generator):
    """By draw and way: prompt, tokens by step, last tokens, and those of the other decoder.

    Each descent has `FEW` steps; where its tokens are not all right, another one has `MOST`.
    """
    ids, net, first = drawn(subject, kind, draws, generator)
    ids, tuned = ids.repeat(len(WAYS), 1), tuning(subject, kind, draws.seed)
    rates = torch.tensor([tuned[way][0] for way in WAYS]).repeat_interleave(len(draws))
    descent = descended(subject, net, ids, first, rates, FEW)

    def decode_rows(embeddings, others=False):
        parts = zip(WAYS, embeddings.chunk(len(WAYS)), strict=True)
        return torch.cat([decode(subject, e, other(w) if others else w.decoder) for w, e in parts])

    tokens = torch.stack([decode_rows(descent.watched[step]) for step in LOOKED_AT], 1)
    last, missed = descent.embeddings, (tokens[:, -1] != ids).any(1)
    if bool(missed.any()):
        again = descended(subject, net, ids[missed], first[missed], rates[missed.cpu()], MOST)
        last = last.index_put((missed,), again.embeddings)
    rows = list(zip(ids, tokens, decode_rows(last), decode_rows(last, others=True), strict=True))
    return [dict(zip(WAYS, rows[i :: len(draws)], strict=True)) for i in range(len(draws))]


def tuning(subject, kind, seed):
    """The learning rate of each way for a ``kind`` of networks, and the recovery by learning rate.

    It recovers the most of other prompts; of equal ones it has the least loss.
    """
    results = results_by_net(subject)
    if ("tuned", seed, kind) not in results:
        draws = Draws(seed, "E1, E2 tuning", range(TUNED_ON))
        ids, net, first = drawn(subject, kind, draws, draws.generator(0, kind))
        ids = ids.repeat(len(WAYS) * len(GRID), 1)
        unit = start.unit(subject, net, net.output(subject, ids[: len(first)]), first, Rule())
        rates = unit * torch.tensor(GRID)
        every = rates.repeat_interleave(len(first))
        descent = descended(subject, net, ids, first.repeat(len(GRID), 1, 1), every, FEW)
        shape = len(GRID), len(WAYS), TUNED_ON
        ends, losses = descent.embeddings.unflatten(0, shape), descent.final.view(shape)
        results["tuned", seed, kind] = {
            way: best(subject, way, rates, ends[:, i], losses[:, i], ids[:TUNED_ON])
            for i, way in enumerate(WAYS)
        }
    return results["tuned", seed, kind]


def best(subject, way, rates, ends, losses, ids):
    """The best of the ``rates`` [grid], and the recovery of each by its size in the grid.

    ``ends`` [grid, prompts, n, d] are the results for ``ids`` [prompts, n], with ``losses``.
    """
    shares = (decode(subject, ends, way.decoder) == ids).double().mean((1, 2)).tolist()
    loss = losses.mean(1).tolist()
    chosen = max(range(len(GRID)), key=lambda i: (shares[i], -loss[i]))
    return float(rates[chosen]), {str(s): each for s, each in zip(GRID, shares, strict=True)}


def drawn(subject, kind, draws, generator):
    """Prompts [draws, n], a net, and where descents start, way by way [ways × draws, n, d]."""
    source = texts.TEXT if "tokenizer" in capabilities.probe(subject) else texts.RANDOM
    (prompt,) = texts.prompts(subject, source, draws, [TOKENS])
    net = nets.flattened(kind, TOKENS, subject.hidden, generator, subject.embedding_table)
    noise = draws.normal(TOKENS, subject.hidden, purpose="start")
    return prompt.ids, net, torch.cat([way.first(subject, noise) for way in WAYS])


def descended(subject, net, ids, first, rates, steps):
    """Descend from ``first`` to the output of ``ids``, each row with its learning rate."""
    target, rates = net.output(subject, ids), rates.to(first.device)
    return descend(subject, net, target, first, rates, Rule(steps=steps), watch=LOOKED_AT)


@memo
def results_by_net(subject):
    """The subject's results by seed, network and way; learning rates too."""
    return {}


def other(way):
    """The other decoder, whose results are only recorded."""
    return next(decoder for decoder in DECODERS if decoder != way.decoder)


def rises(recovery):
    """Whether the recovery [draws, steps] never falls and ends above its start: [draws]."""
    never_falls = (recovery.diff(dim=1) >= 0).all(1)
    return never_falls & (recovery[:, -1] > recovery[:, 0])


def next_token_kept(subject, inversions):
    """Whether a trained subject continues the recovered tokens alike; NaN: they are the prompt."""
    able = capabilities.probe(subject)
    if any(name not in able for name in ("trained", "causal", "lm-head")):
        return torch.full((len(inversions.ids),), torch.nan)
    usual, now = (measures.next_token(subject, ids) for ids in (inversions.ids, inversions.last))
    return torch.where(inversions.exact, torch.nan, measures.same_top(usual, now).double())


def record(sample, inversions):
    """Record recovery by steps, that by the other decoder, and the grid of learning rates."""
    for kind, each in inversions.items():
        hits = each.hits(each.ids)
        sample.add(**{f"{kind}_recovery_at_{s}": hits[:, i] for i, s in enumerate(LOOKED_AT)})
        sample.add(**{f"{kind}_exact_by_the_other_decoder": (each.other == each.ids).all(1)})
        sample.details[f"step size, {kind}"] = each.rate
        sample.details[f"recovery by step size, {kind}"] = each.tuned
    curves = {
        kind: [(s, sample.values(f"{kind}_recovery_at_{s}").mean()) for s in LOOKED_AT]
        for kind in inversions
    }
    sample.plot("Recovery over steps", "curves", curves, x="steps", y="share of tokens")
