"""What a prefix, a row and an embedding depend on."""

from __future__ import annotations

import assay
from example_claims import faults as faults  # an import registers them

SOURCE = "Assay's example, after its own C1, C5, C6 and C9"


@assay.law(
    "EX1",
    "states of a prefix do not depend on what follows it",
    needs=["causal", "fixed-sight"],
    source=SOURCE,
    control="every row moved one position back",
)
def test_a_prefix_ignores_what_follows(
    subject: assay.Subject, draw: assay.Draw, check: assay.Check
) -> None:
    prompt = draw(assay.prompts(subject, shortest=2), "prompt")
    cut = draw(assay.cuts(prompt), "cut")
    altered = prompt.ids.clone()
    altered[:, cut:] = draw(assay.other_ids(subject, prompt), "other ids")[:, cut:]
    expected = check.reference(lambda s: s.rows(prompt.ids[:, :cut]))
    rows = subject.rows(altered)
    check.same(expected, rows.at(slice(0, cut)))
    check.rejects(expected, rows.at(slice(1, cut + 1)))


@assay.law(
    "EX2",
    "one pass gives the logits of every prefix",
    needs=["causal", "fixed-sight", "logits"],
    source=SOURCE,
    control="the logits of one position earlier",
)
def test_one_pass_has_every_prefix(
    subject: assay.Subject, draw: assay.Draw, check: assay.Check
) -> None:
    prompt = draw(assay.prompts(subject, shortest=2), "prompt")
    cut = draw(assay.cuts(prompt), "cut")
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False)).at([cut])
    check.same(expected, subject.rows(prompt.ids[:, : cut + 1], states=False).last)
    check.rejects(expected, lambda: subject.rows(prompt.ids[:, :cut], states=False).last)


@assay.law(
    "EX3",
    "embeddings give what their tokens give",
    needs=["embeddings-alone"],
    source=SOURCE,
    control="the embeddings in reverse order",
)
def test_embeddings_are_their_tokens(
    subject: assay.Subject, draw: assay.Draw, check: assay.Check
) -> None:
    prompt = draw(assay.prompts(subject), "prompt")
    embed = subject.input_embeddings
    expected = check.reference(lambda s: s.rows(prompt.ids))
    check.same(expected, subject.rows(embeddings=embed(prompt.ids)))
    check.rejects(expected, lambda: subject.rows(embeddings=embed(prompt.ids.flip(1))))


@assay.law(
    "EX4",
    "a row does not depend on the other rows of its batch",
    source=SOURCE,
    control="another row of the batch",
)
def test_rows_are_independent(
    subject: assay.Subject, draw: assay.Draw, check: assay.Check
) -> None:
    prompt = draw(assay.prompts(subject, rows=3, least_rows=2), "prompt")
    expected = check.reference(lambda s: s.rows(prompt.ids[:1]))
    together = subject.rows(prompt.ids)
    check.same(expected, together.map(lambda t: t[:1]))
    check.rejects(expected, together.map(lambda t: t[1:2]))
