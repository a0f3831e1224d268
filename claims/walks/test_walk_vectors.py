"""The null vectors that walks follow, and what walks on networks keep (document 003)."""

from __future__ import annotations

import functools

import pytest
import torch

from assay.claims.walks.test_orthogonal_walk import DRAWS, on_model
from assay.fixtures.clamped_walks import embedded_prompts, outputs, sources, unlike, walked
from assay.harness.checking import measures
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import median, share
from assay.harness.inversion import Target, gradients, walks
from assay.harness.models.reference.float64 import reference_of
from assay.harness.operations import attentionless

NEEDS = ["usual-weights", "inputs-embeds", "blocks"]

LEAST = 1e-3
"""Least product in units of the dtype's: a smaller one is 0 by luck, and has no ratio."""

DOZENS = 36
"""Steps of an orthogonal walk: the document's 'a few dozen'."""


@finding(
    "F10",
    "one null vector for all tokens is as good as one for each",
    needs=NEEDS,
    source="003, orthogonal walk: 'there does not appear to be a difference'",
    bound=Bound(median, at_least=0.8, at_most=1.25),
    control="the first right-singular vector, which is no null vector",
    draws=DRAWS,
)
def test_one_null_vector_is_as_good_as_several(subject, draws, sample):
    one, several, outside = (
        on_model(subject, draws, "l1", along)[0] for along in ("last", "several", "first")
    )
    sample.add(effect=one / several, control=outside / several, one=one, several=several)


MAGNITUDES = {
    "mlp": (1e-8, torch.float32),
    "block": (1e-3, torch.float32),
    "model": (1e-2, torch.float32),
    "model in float64": (1e-17, torch.float64),
}
"""The document's |g·v| by the part whose gradient it is."""


@finding(
    "F11",
    "the product of gradient and null vector is as large as the document has it",
    needs=NEEDS,
    source="003, orthogonal walk: 1e-8 (net), 1e-3 (block), 1e-2 (all blocks), 1e-17 (float64)",
    bound=Bound(median, at_least=0.1, at_most=10.0),
    control="the first right-singular vector",
    draws=DRAWS,
)
@pytest.mark.parametrize("part", MAGNITUDES)
def test_the_product_is_as_large_as_documented(subject, part, draws, sample):
    documented, dtype = MAGNITUDES[part]
    gradients.require(subject, part.split()[0])
    model = reference_of(subject) if dtype == torch.float64 else subject
    past, along = products(model, output_of(model, part), draws)
    sample.add(effect=past / documented, control=along / documented, product=past)


@finding(
    "F11",
    "attention makes null vectors ten times less orthogonal",
    needs=NEEDS,
    source="003, orthogonal walk: 'poor conditioning inherent in the self-attention module'",
    bound=Bound(median, above=10.0),
    control="attention against itself, on the next prompt: about 1",
    control_bound=Bound(median, at_least=0.5, at_most=2.0),
    draws=2 * DRAWS,
)
@pytest.mark.parametrize("part", ["block", "model"])
def test_attention_makes_null_vectors_less_orthogonal(subject, part, draws, sample):
    gradients.require(subject, part)
    output = output_of(subject, part)
    usual = relative(subject, output, draws)
    with attentionless.average_attention(subject):
        averaged = relative(subject, output, draws)
    sample.add(effect=usual / averaged, control=usual.roll(1) / usual)
    sample.add(with_attention=usual, without=averaged)


def output_of(subject, part):
    """The output whose gradient is taken: a network's, one block's or all blocks'."""
    if part == "mlp":
        net = gradients.net(subject)
        return lambda x: net(x.to(subject.dtype))
    return walks.output_function(subject, Target(1 if part == "block" else subject.layers))


def gradients_of(subject, output, draws):
    """∇ Σ output for the prompts: [draws, n, d]."""
    start = embedded_prompts(subject, draws.for_claim("walk vectors"))[1].to(subject.dtype)
    return walks.gradient_of_sum(output, start)


def products(subject, output, draws):
    """|g·v| of the last and of the first right-singular vector, the median of tokens: [draws]."""
    gradient = gradients_of(subject, output, draws)
    vectors = torch.linalg.svd(gradient).Vh
    last, first = ((gradient @ vectors[:, i, :, None])[..., 0].abs() for i in (-1, 0))
    return last.median(1).values, first.median(1).values


def relative(subject, output, draws):
    """The first of `products` over the size of the gradient, or `LEAST` if more: [draws]."""
    gradient = gradients_of(subject, output, draws)
    product = products(subject, output, draws)[0] / gradient.flatten(1).norm(dim=1)
    return product.clamp_min(LEAST * torch.finfo(gradient.dtype).eps)


def by_orthogonal_walk(subject, draws):
    """Prompts, the ends of orthogonal walks on networks, and random steps of the same size."""
    parts = []
    for output, mine in outputs(subject, "net", draws.for_claim("orthogonal walks on nets")):
        ids, start = embedded_prompts(subject, mine)
        end = walks.orthogonal(output, start, DOZENS)
        parts.append((ids, end, walks.displace_at_random(start, end, sources(mine, "random"))))
    return [torch.cat(each) for each in zip(*parts, strict=True)]


def by_clamped_walk(subject, draws, best):
    """The same for clamped walks."""
    walk = walked(subject, draws, best=best, of="net")
    return walk.ids, walk.end, walk.displaced


@finding(
    "F12",
    "walks on contracting nets keep a trained model's next token",
    needs=[*NEEDS, "trained", "causal", "lm-head"],
    source="003, FCNet: 'the same next character output for a trained GPT-2'; walks on the "
    "three-layer net",
    bound=Bound(share, at_least=0.9),
    control="a random step of the same size",
    draws=64,
    most=128,
    slow=("orthogonal",),
)
@pytest.mark.parametrize(
    "walk",
    [
        pytest.param(by_orthogonal_walk, id="orthogonal"),
        pytest.param(functools.partial(by_clamped_walk, best="nearest"), id="clamped"),
    ],
)
def test_walks_on_nets_keep_the_next_token(subject, walk, draws, sample):
    ids, end, random = walk(subject, draws)
    usual = measures.next_token(subject, ids)
    effect, control = (
        measures.same_top(usual, measures.next_token(subject, embeddings=x.to(subject.dtype)))
        for x in (end, random)
    )
    sample.add(effect=effect, control=control, tokens_changed=unlike(subject, end, ids, "nearest"))
