"""The claims about null vectors can come out either way."""

from __future__ import annotations

import pytest
import torch

from assay.claims.walks import test_walk_vectors as claims
from assay.fixtures import texts
from assay.harness.inversion import embedded, gradients, walks
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import as_trained, prompt, verdict

TOGETHER = claims.test_one_null_vector_is_as_good_as_several
MAGNITUDE = claims.test_the_product_is_as_large_as_documented
ATTENTION = claims.test_attention_makes_null_vectors_less_orthogonal


def sources(n):
    return [torch.Generator().manual_seed(i) for i in range(n)]


def test_each_token_has_a_null_vector_of_its_own():
    x = torch.randn(3, 4, 12, dtype=torch.float64, generator=sources(1)[0])
    weight = torch.randn(12, 7, dtype=torch.float64, generator=sources(2)[1])

    def output(x):
        return (x @ weight).tanh()

    end = walks.orthogonal(output, x, 1, along="several")
    step = (end - x) / walks.SIZE
    gradient = walks.gradient_of_sum(output, x)
    assert torch.allclose(step @ gradient.mT, torch.zeros(3, 4, 4).double(), atol=1e-12)
    assert torch.allclose(step @ step.mT, torch.eye(4).double().expand(3, 4, 4))
    outside = walks.orthogonal(output, x, 1, along="first") - x
    assert float((outside * gradient).sum((1, 2)).abs().min()) > 1e-4


def test_one_vector_and_several_on_a_model_and_on_a_map_that_tells_them_apart(monkeypatch):
    assert verdict(TOGETHER, as_trained("gpt2")).verdict is Verdict.UPHELD
    monkeypatch.setattr(claims, "on_model", on_a_linear_map)
    result = verdict(TOGETHER, as_trained("gpt2"))
    assert (result.verdict, result.observed > 1.25) == (Verdict.REFUTED, True)


def on_a_linear_map(subject, draws, norm, along):
    """An orthogonal map of each token and a large multiple of what the sum's gradient sees."""
    x = draws.for_claim("walks").normal(5, 32).double()
    generator = torch.Generator().manual_seed(0)
    weight = torch.linalg.qr(torch.randn(32, 32, generator=generator, dtype=torch.float64)).Q
    ahead = weight + 3 * weight.sum(1, keepdim=True)

    def output(x):
        return x @ ahead

    end = walks.orthogonal(output, x, 2, along=along)
    return walks.change(output, x, end, norm), None


def test_the_document_s_magnitudes_are_measured(monkeypatch):
    subject = as_trained("gpt2")
    gradient = gradients.of_sum(subject, "block", prompt(subject, 5, 1))["gradient"]
    vector = torch.linalg.svd(gradient).Vh[:, -1]
    assert float((gradient[0] @ vector[0]).abs().max()) == pytest.approx(
        gradients.last_product(gradient[0]), rel=2
    )
    size = verdict(MAGNITUDE, subject, arguments={"part": "block"}).details["recorded"]["product"]
    for documented, came in ((size, Verdict.UPHELD), (1000 * size, Verdict.REFUTED)):
        monkeypatch.setitem(claims.MAGNITUDES, "block", (documented, torch.float32))
        assert verdict(MAGNITUDE, subject, arguments={"part": "block"}).verdict is came


def test_attention_is_blamed_where_it_is_to_blame(monkeypatch):
    subject = as_trained("gpt2")
    assert verdict(ATTENTION, subject, arguments={"part": "block"}).verdict is Verdict.REFUTED
    usual, calls = claims.relative, []

    def worse(*arguments):
        calls.append(arguments)  # with attention first, then without
        return usual(*arguments) * (100 if len(calls) % 2 else 1)

    monkeypatch.setattr(claims, "relative", worse)
    assert verdict(ATTENTION, subject, arguments={"part": "block"}).verdict is Verdict.UPHELD


KEPT = claims.test_walks_on_nets_keep_the_next_token


def shifted_by(times):
    """A walk that ends so many standard deviations away, a random step as far as a thousand."""

    def walk(subject, draws):
        (prompt,) = texts.prompts(subject, texts.RANDOM, draws, [5])
        start = embedded(subject)[prompt.ids]
        noise = draws.normal(5, subject.hidden) * start.std()
        return prompt.ids, start + times * noise, start + 1000 * noise

    return walk


def test_a_walk_that_hardly_moves_keeps_the_next_token_and_one_that_goes_far_does_not():
    near, far = (
        verdict(KEPT, as_trained("gpt2"), arguments={"walk": shifted_by(times)})
        for times in (1e-4, 100)
    )
    assert (near.verdict, far.verdict) == (Verdict.UPHELD, Verdict.REFUTED)
