"""Walks orthogonal to the input gradient, which should keep the output (003)."""

from __future__ import annotations

import pytest
import torch

from assay.fixtures.clamped_walks import TOKENS, embedded_prompts, sources, walked_on_nets
from assay.harness.checking.bounds import Bound, NoDifference
from assay.harness.checking.findings import finding
from assay.harness.checking.statistics import bounded_change, median, share
from assay.harness.inversion import Target, gradients, nets, walks
from assay.harness.models.reference.float64 import reference_of

DRAWS = 32
"""Networks or prompts to start with: each walk costs dozens of passes."""

WIDTHS = (10, 50, 200, 768)
"""Widths of the embeddings that the document's three-layer networks read."""

EMBEDDED = 0.14
"""The standard deviation of GPT-2's embeddings."""

STEPS = 4
"""Steps of an orthogonal walk: d_o / d_i is the same after 1 and after 36."""

BELOW_1 = Bound(share, at_least=0.8)
"""Our reading of 'typically', for d_o / d_i < 1."""


@finding(
    "F3",
    "the orthogonal walk keeps the output of narrow nets",
    source="003, orthogonal walk: 10 or 50 neurons",
    bound=BELOW_1,
    control="nets of width 768",
    draws=DRAWS,
    most=2 * DRAWS,
    toy=True,
)
@pytest.mark.parametrize("width", WIDTHS[:2])
def test_the_orthogonal_walk_keeps_the_output_of_narrow_nets(subject, width, draws, sample):
    narrow, wide = (on_nets(subject, draws, each) for each in (width, WIDTHS[-1]))
    sample.add(effect=narrow["l1"] < 1, control=wide["l1"] < 1, ratio=narrow["l1"])


@finding(
    "F3",
    "the wider the net, the more seldom the orthogonal walk keeps its output",
    source="003, orthogonal walk: 'or 200 or more'; d_o / d_i = 2 at 768",
    bound=Bound(bounded_change, below=0.0),
    control="other nets of the first width in the place of the last",
    control_bound=NoDifference(bounded_change),
    draws=DRAWS,
    most=2 * DRAWS,
    toy=True,
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
    "in another norm or along another vector, the orthogonal walk keeps the output of wide nets",
    source="003, orthogonal walk, controlled for the norm and for the nearly one-hot vector",
    bound=BELOW_1,
    control="as documented: L1, and the last right-singular vector",
    draws=DRAWS,
    most=2 * DRAWS,
    toy=True,
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
    documented = [on_nets(subject, draws, width)["l1"] for width in (WIDTHS[0], WIDTHS[-1])]
    sample.add(
        effect=wide[norm] < 1,
        control=documented[1] < 1,
        ratio=wide[norm],
        times_that_of_width_10=wide[norm] / narrow[norm],
        times_that_of_width_10_as_documented=documented[1] / documented[0],
    )


@finding(
    "F5",
    "the orthogonal walk loses a model's output even in float64",
    needs=["usual-weights", "inputs-embeds", "blocks"],
    source="003, orthogonal walk: typically d_o / d_i > 20",
    bound=Bound(median, above=1.0),
    control="nets of width 10",
    draws=DRAWS,
    most=2 * DRAWS,
)
@pytest.mark.parametrize(
    ("norm", "along"),
    [
        pytest.param("l1", "last", id="as documented"),
        pytest.param("l2", "random", id="controlled"),
    ],
)
def test_the_orthogonal_walk_loses_a_model_s_output(subject, norm, along, draws, sample):
    ratio, random = on_model(subject, draws, norm, along)
    control = on_nets(subject, draws, WIDTHS[0], along)[norm]
    sample.add(effect=ratio, control=control, over_that_of_a_random_step=ratio / random)


@finding(
    "F5",
    "the orthogonal walk moves a model's output over twenty times as far as its input",
    needs=["usual-weights", "inputs-embeds", "blocks"],
    source="003, orthogonal walk: 'typically d_o / d_i > 20', in float64",
    bound=Bound(median, above=20.0),
    control="nets of width 10",
    draws=DRAWS,
)
def test_the_orthogonal_walk_moves_a_model_s_output_twenty_times_as_far(subject, draws, sample):
    ratio, random = on_model(subject, draws, "l1", "last")
    control = on_nets(subject, draws, WIDTHS[0])["l1"]
    sample.add(effect=ratio, control=control, over_that_of_a_random_step=ratio / random)


def on_model(subject, draws, norm, along):
    """d_o / d_i in float64 of walks through all blocks, and of random steps as far: [draws] each.

    Walks are cached for other claims.
    """
    gradients.require(subject, "model")
    results, key = walked_on_nets(subject), ("orthogonal", draws.seed, *draws, norm, along)
    if key not in results:
        reference, walk_draws = reference_of(subject), draws.for_claim("orthogonal walks")
        output = walks.output_function(reference, Target(reference.layers))
        start = embedded_prompts(subject, walk_draws)[1].double()
        end = walks.orthogonal(
            output, start, STEPS, along=along, sources=sources(walk_draws, "walk")
        )
        random = walks.displace_at_random(start, end, sources(walk_draws, "random"))
        results[key] = tuple(walks.change(output, start, x, norm) for x in (end, random))
    return results[key]


def on_nets(subject, draws, width, along="last", purpose=""):
    """d_o / d_i by norm, of walks on as many networks as there are draws.

    Each network is built once for all claims, with both walks.
    """
    results = walked_on_nets(subject).setdefault((draws.seed, width, purpose), {})
    draws = draws.for_claim("orthogonal walks")
    for i in draws:
        if i not in results:
            generator = draws.generator(i, f"{width} {purpose}")
            net = nets.per_token(width, generator, torch.empty(0, device=subject.device))
            start = EMBEDDED * torch.randn(1, TOKENS, width, generator=generator)
            results[i] = on_net(net, start.to(subject.device), [generator])
    return {norm: torch.cat([results[i][along, norm] for i in draws]) for norm in ("l1", "l2")}


def on_net(net, start, source):
    """d_o / d_i of both walks, in both norms."""
    ends = {
        along: walks.orthogonal(net, start, STEPS, along=along, sources=source)
        for along in ("last", "random")
    }
    return {
        (along, norm): walks.change(net, start, end, norm)
        for along, end in ends.items()
        for norm in ("l1", "l2")
    }


def ratio_by_width(sample, title):
    """Record the picture of d_o / d_i at every width."""
    ratios = {str(width): sample.defined(f"ratio_at_{width}") for width in WIDTHS}
    sample.plot(f"d_o / d_i by width: {title}", "distributions", ratios, y="d_o / d_i", log=True)
