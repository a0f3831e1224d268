"""Walks through inputs that are to leave the output where it was (document 003)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from fixtures import texts
from harness import capabilities, gradients, measures, nets, walks
from harness.draws import Draws
from harness.findings import Bound, finding
from harness.inversion import decode
from harness.inversion.start import spread
from harness.inversion.target import Target, embedded
from harness.memo import memo
from harness.statistics import mean, median, share

TOKENS = 5
"""'The sky is blue.', with its full stop."""

DRAWS = 32
"""Nets or prompts at the first look: a walk of each costs dozens of passes."""

# -- the orthogonal walk --------------------------------------------------------------------------

WIDTHS = (10, 50, 200, 768)
"""Of the embeddings that the document's three-layer nets read."""

EMBEDDED = 0.14
"""The standard deviation of GPT-2's embeddings."""

STEPS = 4
"""Of an orthogonal walk: d_o / d_i comes out the same after 1 and after 36."""

BELOW_1 = Bound(share, at_least=0.8)
"""Of d_o / d_i: what 'typically' is taken for."""


@finding(
    "F3",
    "the orthogonal walk keeps the output of narrow nets",
    needs=["embedded-reference"],
    source="003, orthogonal walk: 10 or 50 neurons",
    bound=BELOW_1,
    control="nets of width 768",
    draws=DRAWS,
)
@pytest.mark.parametrize("width", WIDTHS[:2])
def test_the_orthogonal_walk_keeps_the_output_of_narrow_nets(subject, width, draws, sample):
    narrow, wide = (on_nets(subject, draws, each) for each in (width, WIDTHS[-1]))
    sample.add(effect=narrow["l1"] < 1, control=wide["l1"] < 1, ratio=narrow["l1"])


@finding(
    "F3",
    "the wider the net, the more seldom the orthogonal walk keeps its output",
    needs=["embedded-reference"],
    source="003, orthogonal walk: 'or 200 or more'; d_o / d_i = 2 at 768",
    bound=Bound(mean, below=0.0),
    control="other nets of the first width in the place of the last",
    draws=DRAWS,
)
def test_the_orthogonal_walk_loses_the_output_of_wide_nets(subject, draws, sample):
    ratios = {width: on_nets(subject, draws, width)["l1"] for width in WIDTHS}
    below = {width: (ratio < 1).double() for width, ratio in ratios.items()}
    again = (on_nets(subject, draws, WIDTHS[0], purpose="again")["l1"] < 1).double()
    sample.add(
        effect=below[WIDTHS[-1]] - below[WIDTHS[0]],
        control=again - below[WIDTHS[0]],
        **{f"ratio_at_{width}": ratio for width, ratio in ratios.items()},
    )
    ratio_by_width(sample, "L1, the last right-singular vector")


@finding(
    "F4",
    "the orthogonal walk keeps the output of wide nets but for its norm and its vector",
    needs=["embedded-reference"],
    source="003, orthogonal walk, controlled for the norm and for the nearly one-hot vector",
    bound=BELOW_1,
    control="as documented: L1, and the last right-singular vector",
    draws=DRAWS,
)
@pytest.mark.parametrize(
    ("norm", "along"),
    [
        pytest.param("l2", "last", id="in L2"),
        pytest.param("l1", "random", id="along a random vector"),
        pytest.param("l2", "random", id="both"),
    ],
)
def test_another_norm_or_vector_keeps_the_output_of_wide_nets(subject, norm, along, draws, sample):
    narrow, wide = (on_nets(subject, draws, width, along) for width in (WIDTHS[0], WIDTHS[-1]))
    documented = on_nets(subject, draws, WIDTHS[-1])["l1"]
    sample.add(
        effect=wide[norm] < 1,
        control=documented < 1,
        ratio=wide[norm],
        times_that_of_width_10=wide[norm] / narrow[norm],
    )


@finding(
    "F5",
    "the orthogonal walk loses the output of a transformer even in float64",
    needs=["inputs-embeds", "blocks"],
    source="003, orthogonal walk: typically d_o / d_i > 20",
    bound=Bound(median, above=1.0),
    control="nets of width 10",
    draws=DRAWS,
)
@pytest.mark.parametrize(
    ("norm", "along"),
    [
        pytest.param("l1", "last", id="as documented"),
        pytest.param("l2", "random", id="controlled"),
    ],
)
def test_the_orthogonal_walk_loses_a_transformer_s_output(subject, norm, along, draws, sample):
    gradients.require(subject, "model")
    twin = subject.oracle
    output = walks.through(twin, Target(twin.layers))
    start = embedded_prompts(subject, draws)[1].double()
    end = walks.orthogonal(output, start, STEPS, along=along, sources=sources(draws, "walk"))
    ratio = walks.change(output, start, end, norm)
    random = walks.displaced(start, end, sources(draws, "random"))
    sample.add(
        effect=ratio,
        control=on_nets(subject, draws, WIDTHS[0], along)[norm],
        above_20=ratio > 20,
        over_that_of_a_random_step=ratio / walks.change(output, start, random, norm),
    )


def on_nets(subject, draws, width, along="last", purpose=""):
    """d_o / d_i by norm of walks on as many nets as there are draws.

    Each net is made once for all claims, and walked both ways.
    """
    known = kept(subject).setdefault((draws.seed, width, purpose), {})
    draws = draws.of("orthogonal walks")
    for i in draws:
        if i not in known:
            generator = draws.generator(i, f"{width} {purpose}")
            net = nets.per_token(width, generator, torch.empty(0, device=subject.device))
            start = EMBEDDED * torch.randn(1, TOKENS, width, generator=generator)
            known[i] = on_net(net, start.to(subject.device), [generator])
    return {norm: torch.cat([known[i][along, norm] for i in draws]) for norm in ("l1", "l2")}


def on_net(net, start, source):
    """d_o / d_i of both walks, in both norms."""
    ends = {
        along: walks.orthogonal(net, start, STEPS, along=along, sources=source)
        for along in walks.DIRECTIONS
    }
    return {
        (along, norm): walks.change(net, start, end, norm)
        for along, end in ends.items()
        for norm in ("l1", "l2")
    }


def ratio_by_width(sample, title):
    """Keep the picture of d_o / d_i at every width."""
    drawn = {str(width): sample.defined(f"ratio_at_{width}") for width in WIDTHS}
    sample.plot(f"d_o / d_i by width: {title}", "distributions", drawn, y="d_o / d_i", log=True)


# -- the clamped walk -----------------------------------------------------------------------------

NOISES, RATES = (0.3, 3.0, 30.0), (0.3, 1.0, 3.0)
"""The grid: noise in units of the embedding's own scale, and the size of a step of the descent
(of the first one, in the mean over elements) in units of the noise."""

TUNED_ON = 4
"""Prompts that noise and rate are chosen with."""

LOOKED_AT = (1, 2, 4, 8, 16)
"""Steps; the last one ends the walk."""

MANY = 8
"""Steps of descent for each clamp, where there are more than one."""

PER_NET = 8
"""Draws that share a net."""

ABOUT_1 = Bound(median, at_least=0.8, at_most=1.25)

NEEDS = ["inputs-embeds", "blocks"]


@finding(
    "F6",
    "the clamped walk moves the input ten times as far as the output",
    needs=NEEDS,
    source="003, clamped walk",
    bound=Bound(median, at_least=10.0),
    control="no descent step",
    draws=DRAWS,
)
def test_the_clamped_walk_keeps_the_output(subject, draws, sample):
    walk, still = (walked(subject, draws, descents=count) for count in (1, 0))
    sample.add(effect=walk.r, control=still.r, over_that_of_a_random_step=walk.over_random)
    curves(subject, sample, {"one step of descent": walk, "none": still})


@finding(
    "F6",
    "more steps of descent for each clamp keep the output better",
    needs=NEEDS,
    source="003, clamped walk: 'from one to fifty'",
    bound=Bound(median, above=1.0),
    control="no descent step",
    draws=DRAWS // 2,
)
def test_more_steps_of_descent_keep_the_output_better(subject, draws, sample):
    many, one, none = (walked(subject, draws, descents=count) for count in (MANY, 1, 0))
    sample.add(effect=many.r / one.r, control=none.r / one.r, r=many.r)
    curves(subject, sample, {f"{MANY} steps of descent": many, "one": one, "none": none})


@finding(
    "F7",
    "the clamped walk keeps the output better than a random step of the same size",
    needs=NEEDS,
    source="003, clamped walk, controlled for what any step keeps",
    bound=Bound(median, above=1.0),
    control="another random step of the same size: about 1",
    control_bound=ABOUT_1,
    draws=DRAWS,
)
def test_the_clamped_walk_keeps_more_than_a_random_step(subject, draws, sample):
    walk = walked(subject, draws, best="over random")
    sample.add(effect=walk.over_random, control=walk.random_again / walk.random, r=walk.r)
    sample.add(without_descent=walked(subject, draws, "over random", descents=0).over_random)


@finding(
    "F8",
    "the clamped walk keeps the output of a fully connected net less well",
    needs=NEEDS,
    source="003, clamped walk: r of at most 3",
    bound=Bound(median, below=1.0),
    control="the transformer again, on the next prompt: about 1",
    control_bound=ABOUT_1,
    draws=DRAWS,
)
def test_the_clamped_walk_keeps_a_net_s_output_less_well(subject, draws, sample):
    walk, net = (walked(subject, draws, of=of) for of in ("transformer", "net"))
    sample.add(effect=net.r / walk.r, control=walk.r.roll(1) / walk.r)
    sample.add(r_of_the_net=net.r, r=walk.r, r_of_the_net_at_most_3=net.r <= 3)
    curves(subject, sample, {"transformer": walk, "net": net})


@finding(
    "F8",
    "over a random step, the clamped walk gains less on a fully connected net",
    needs=NEEDS,
    source="003, clamped walk, controlled for what any step keeps",
    bound=Bound(median, below=1.0),
    control="the transformer again, on the next prompt: about 1",
    control_bound=ABOUT_1,
    draws=DRAWS,
)
def test_the_clamped_walk_gains_less_on_a_net(subject, draws, sample):
    walk, net = (walked(subject, draws, "over random", of) for of in ("transformer", "net"))
    gain = walk.over_random
    sample.add(effect=net.over_random / gain, control=gain.roll(1) / gain)
    sample.add(gain=gain, gain_on_the_net=net.over_random)


decoders = pytest.mark.parametrize(
    "decoder",
    [
        pytest.param("pseudo-inverse", id="as documented"),
        pytest.param("nearest", id="controlled"),
    ],
)


@finding(
    "F9",
    "a clamped walk ends in other tokens",
    needs=NEEDS,
    source="003, clamped walk",
    bound=Bound(mean, at_least=0.5),
    control="where the walk starts",
    draws=DRAWS,
)
@decoders
def test_a_clamped_walk_ends_in_other_tokens(subject, decoder, draws, sample):
    walk = walked(subject, draws, best="far")
    every = {0: walk.start, **walk.ends}
    changed = {step: unlike(subject, x, walk.ids, decoder) for step, x in every.items()}
    sample.add(effect=changed[LOOKED_AT[-1]], control=changed[0])
    sample.add(**{f"changed_after_{step}": each for step, each in changed.items()})
    sample.add(r=walk.r, over_that_of_a_random_step=walk.over_random)


@finding(
    "F9",
    "a clamped walk ends in tokens that repeat",
    needs=NEEDS,
    source="003, clamped walk and 'representation repetitions'",
    bound=Bound(mean, at_least=0.1),
    control="tokens drawn at random in the place of the new ones",
    draws=DRAWS,
)
@decoders
def test_a_clamped_walk_ends_in_tokens_that_repeat(subject, decoder, draws, sample):
    walk = walked(subject, draws, best="far")
    ids, now = walk.ids, decode(subject, walk.end, decoder)
    drawn = torch.where(now == ids, ids, texts.random(subject, draws, TOKENS))
    before, after, control = (measures.repeated(each, gram=1) for each in (ids, now, drawn))
    sample.add(effect=after - before, control=control - before, repeated=after)
    random = decode(subject, walk.displaced, decoder)
    sample.add(repeated_after_a_random_step=measures.repeated(random, gram=1))
    sample.details["an example"] = [subject.tokens(each[0].tolist()) for each in (ids, now)]


@dataclass(frozen=True)
class Walked:
    """Clamped walks from prompts ``ids`` [draws, n], embedded as ``start`` [draws, n, d].

    ``ends`` [draws, n, d] and r, ``curve`` [draws, steps], are after the steps `LOOKED_AT`;
    ``random`` [draws] is the r of a random step as far as the last of them, to ``displaced``, and
    ``random_again`` of another one.
    """

    ids: torch.Tensor
    start: torch.Tensor
    ends: dict[int, torch.Tensor]
    displaced: torch.Tensor
    curve: torch.Tensor
    random: torch.Tensor
    random_again: torch.Tensor

    @property
    def end(self):
        """Where they ended: [draws, n, d]."""
        return self.ends[LOOKED_AT[-1]]

    @property
    def r(self):
        """The document's r: [draws]."""
        return self.curve[:, -1]

    @property
    def over_random(self):
        """The same over that of a random step of the same size: [draws]."""
        return self.r / self.random


def walked(subject, draws, best="r", of="transformer", descents=1):
    """The walks of some draws on a transformer or a net, under the ``best`` noise and rate."""
    noise, rate = tuning(subject, of, draws.seed)[best]
    known, key = kept(subject), (draws.seed, *draws, of, noise, rate, descents)
    if key not in known:
        parts = [
            one_walk(subject, output, mine, noise, rate, descents)
            for output, mine in outputs(subject, of, draws.of("clamped walks"))
        ]
        ends = {step: torch.cat([part.ends[step] for part in parts]) for step in LOOKED_AT}
        names = ("ids", "start", "displaced", "curve", "random", "random_again")
        rest = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        known[key] = Walked(ends=ends, **rest)
    return known[key]


def one_walk(subject, output, draws, noise, rate, descents):
    """The same in one batch; ``noise`` and ``rate`` are numbers, or one for each draw."""
    ids, start = embedded_prompts(subject, draws)
    walk = walks.clamped(
        *(output, start, LOOKED_AT[-1], noise, rate, sources(draws, "walk")),
        descents=descents,
        watch=LOOKED_AT,
    )
    one, two = (walks.displaced(start, walk.end, sources(draws, f"random {i}")) for i in (1, 2))
    curve = [walks.kept(output, start, walk.watched[step]) for step in LOOKED_AT]
    random = (walks.kept(output, start, x) for x in (one, two))
    return Walked(ids, start, walk.watched, one, torch.stack(curve, 1), *random)


def tuning(subject, of, seed):
    """Noise and rate (`walks.clamped`'s) that are best for r, for r over a random step's, and for
    r under the largest noise, which goes ``far``; chosen on prompts of their own.
    """
    known = kept(subject)
    if ("tuned", of, seed) not in known:
        few = Draws(seed, "clamped walks, tuning", range(TUNED_ON))
        (output, _), *_ = outputs(subject, of, few)
        grid = [(n * spread(subject), r) for n in NOISES for r in RATES]
        rows = replace(few, numbers=list(few) * len(grid))
        noise, rate = (
            torch.tensor(each).repeat_interleave(TUNED_ON) for each in zip(*grid, strict=True)
        )
        start = embedded_prompts(subject, rows)[1]
        steep = walks.steepness(output, start, noise, sources(rows, "steepness"))
        rate = rate * noise / steep.cpu()
        walk = one_walk(subject, output, rows, noise, rate, 1)
        by_r, gain = (x.view(-1, TUNED_ON).median(1).values for x in (walk.r, walk.over_random))
        far = by_r.where(torch.arange(len(grid)) >= len(grid) - len(RATES), -torch.inf)
        rates = rate.view(-1, TUNED_ON).mean(1)
        known["tuned", of, seed] = {
            name: (grid[int(each.argmax())][0], float(rates[int(each.argmax())]))
            for name, each in (("r", by_r), ("over random", gain), ("far", far))
        }
    return known["tuned", of, seed]


def outputs(subject, of, draws):
    """What walks are to keep, and the draws that it is for: all blocks, or nets of that width."""
    if of == "transformer":
        yield walks.through(subject, Target(subject.layers)), draws
        return
    for group in sorted({i // PER_NET for i in draws}):
        net = nets.per_token(
            subject.hidden, draws.generator(group, "net"), subject.embedding_table
        )
        mine = draws.only(lambda i, group=group: i // PER_NET == group)
        yield walks.through(subject, net), mine


# -- what both start from -------------------------------------------------------------------------


def embedded_prompts(subject, draws):
    """Prompts [draws, n], and embedded [draws, n, d]: text, or random without a tokenizer."""
    source = texts.TEXT if "tokenizer" in capabilities.of(subject) else texts.RANDOM
    (prompt,) = texts.prompts(subject, source, draws, [TOKENS])
    rows = embedded(subject)[prompt.ids]
    return prompt.ids, rows if rows.dtype == torch.float64 else rows.float()


def sources(draws, purpose):
    """A source of randomness for each draw."""
    return [draws.generator(i, purpose) for i in draws]


@memo
def kept(subject):
    """What walks came to on the subject, by what was walked."""
    return {}


def unlike(subject, embeddings, ids, decoder):
    """The share of tokens that embeddings [draws, n, d] do not decode to: [draws]."""
    return (decode(subject, embeddings, decoder) != ids).double().mean(1)


def curves(subject, sample, walked):
    """Keep r over steps by label, as series and as a picture with intervals."""
    drawn = {}
    for label, walk in walked.items():
        points = []
        for step, r in zip(LOOKED_AT, walk.curve.T, strict=True):
            sample.add(**{f"r_after_{step}_{label.replace(' ', '_')}": r})
            values = sample.defined(f"r_after_{step}_{label.replace(' ', '_')}")
            points.append((step, median(values), *median.interval(values, 0.95)))
        drawn[label] = points
    sample.plot(
        "r over the steps of the clamped walk", "curves", drawn, x="steps", y="r", log=True
    )
