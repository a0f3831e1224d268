"""The laws on decoding embeddings catch a decoder that is wrong for them."""

from __future__ import annotations

import dataclasses

import pytest

from assay.claims.decoding import test_decoding as claims
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import budget, toy, verdict

FEW = budget(4, shrink=20)


@pytest.mark.parametrize("model_type", ["llama", "xlstm"])
def test_the_limit_holds_with_more_rows_than_columns_and_with_fewer(model_type):
    table = toy(model_type).embedding_table
    assert (table.shape[0] < table.shape[1]) == (model_type == "xlstm")
    law = claims.test_the_fast_decoder_is_the_limit_and_of_least_norm
    assert verdict(law, toy(model_type), FEW).verdict is Verdict.UPHELD


def test_a_solution_that_is_not_of_least_norm_is_caught(monkeypatch):
    right = claims.pseudo_inverse(toy("llama"))

    class Longer(type(right)):
        """Adds to every solution a billionth of what the embedding takes to nothing."""

        def logits(self, points):
            solution = super().logits(points)
            other = claims.random(7, 1, len(self.matrix), like=self.matrix)[0]
            part = super().logits(other @ self.matrix.double())
            return solution + 1e-9 * (other - part)

    fields = {field.name: getattr(right, field.name) for field in dataclasses.fields(right)}
    monkeypatch.setattr(claims, "pseudo_inverse", lambda subject: Longer(**fields))
    law = claims.test_the_fast_decoder_is_the_limit_and_of_least_norm
    result = verdict(law, toy("llama"), FEW)
    assert result.verdict is Verdict.REFUTED
    assert "least norm" in result.reason
