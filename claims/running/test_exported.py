"""Exported programs, by which models are run without Python (beyond the documents)."""

from __future__ import annotations

from assay.fixtures.prompts import lengths, other_ids, prompts
from assay.harness.checking.laws import law
from assay.harness.operations import exporting, padding


@law(
    "G13",
    "an exported program computes what the model does, at any length that it takes",
    source="beyond the documents",
    control="another prompt",
    enough=12,
    slow=True,
)
def test_an_exported_program_computes_what_the_model_does(subject, draw, check):
    program = exporting.program(subject)
    prompt = draw(other_lengths(subject, program), "prompt")
    other = draw(other_ids(subject, prompt), "other ids")
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False))
    check.same(expected, program.rows(prompt.ids))
    check.rejects(expected, lambda: program.rows(other))


@law(
    "G13",
    "an exported program reads a padded batch as each prompt alone",
    needs=["padding"],
    source="beyond the documents",
    control="a neighbour's row in place of one's own",
    enough=8,
    slow=True,
)
def test_an_exported_program_reads_padding_as_the_model_does(subject, draw, check):
    example = exporting.prompt(subject)
    n = example.shape[1]
    program = exporting.program(subject, padding.ragged(subject, example, [n, n - 1, n - 2]))
    prompt = draw(other_lengths(subject, program), "prompt")
    batch = padding.ragged(subject, prompt.ids, draw(lengths(prompt), "lengths"))
    padding.each_alone(check, prompt.ids, batch, program.rows(prompt.ids, batch), states=False)


def other_lengths(subject, program):
    """Batches of prompts that the program takes, of other lengths than it was traced with."""
    few, many = program.fewest, min(exporting.ROWS, program.at_most)
    drawn = prompts(subject, program.least, program.most, many, few, at_edges=True, capped=True)
    return drawn.filter(lambda prompt: prompt.length != exporting.traced_length(subject))
