"""Which changes between versions the atlas shows as flips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.harness.comparison.changes import Repetition
from assay.harness.report.atlas.collect import Collected, collect
from assay.harness.report.atlas.flips import flips, standing, turns
from assay.harness.results.verdicts import UNTIL_BROKEN, Result, Verdict
from assay.harness.tests.support.atlases import GPT2, MAMBA, NEW, OLD, built, data_of, verdicts
from assay.harness.tests.support.evidences import broken, law, run_of, write

KINDS: dict[str, Result] = {
    "u": law(GPT2),
    "r": broken(GPT2),
    "n": law(GPT2, verdict=Verdict.NOT_APPLICABLE, reason="kv-cache: none"),
    "i": law(GPT2, verdict=Verdict.INCONCLUSIVE),
}
"""A result of one law by the letter of its verdict."""


def collect_versions(file: Path, **verdicts: str) -> Collected:
    """Collected of one model and law, by version (underscores for dots)."""
    for version, letter in verdicts.items():
        write(file, run_of(version[1:].replace("_", "."), GPT2), [KINDS[letter]])
    return collect([file])


def test_a_flip_is_between_versions_that_decide(file):
    evidence = collect_versions(file, v1_0="u", v2_0="n", v3_0="r", v4_0="i", v5_0="r", v6_0="u")
    assert [(f.before, f.after, str(f.verdict)) for f in flips(evidence)] == [
        ("1.0", "3.0", "refuted"),
        ("5.0", "6.0", "upheld"),
    ]
    assert [turn.words for turn in turns(flips(evidence))] == [
        "last good 1.0, first bad 3.0",
        "last bad 5.0, first good 6.0",
    ]


def test_what_is_undecided_or_new_is_no_flip(file):
    assert flips(collect_versions(file, v1_0="n", v2_0="u", v3_0="i", v10_0="u")) == []


GLANCE, QUICK = {"profile": "glance"}, {"profile": "quick"}


def collect_attempts(file: Path, *tries: tuple[str, dict[str, Any]]) -> Collected:
    """Collected of one model and law; for every attempt its verdicts in 1.0 and 2.0, by letter."""
    for letters, how in tries:
        for version, letter in zip(("1.0", "2.0"), letters, strict=True):
            if letter != "-":
                write(file, run_of(version, GPT2, **how), [KINDS[letter]])
    return collect([file])


@pytest.mark.parametrize(
    ("tries", "expected"),
    [
        ([("ur", GLANCE)], ["refuted, not repeated"]),
        ([("ur", GLANCE), ("ur", GLANCE | {"seed": 1})], ["refuted, seen again"]),
        ([("ru", GLANCE), ("ru", QUICK)], ["upheld, seen again"]),
        # With other examples it is refuted in both, or in neither.
        ([("ur", GLANCE), ("rr", QUICK)], ["refuted, not seen again"]),
        ([("ur", GLANCE), ("uu", GLANCE | {"seed": 1})], ["refuted, not seen again"]),
        # With other examples it does not apply, or is not decided.
        ([("ur", GLANCE), ("nr", QUICK)], ["refuted, not seen again"]),
        ([("ur", GLANCE), ("ir", QUICK)], ["refuted, not repeated"]),
        ([("ur", GLANCE), ("ur", QUICK), ("nr", QUICK | {"seed": 1})], ["refuted, seen again"]),
        # It came again, but not in most of the tries.
        (
            [("ur", QUICK), ("ur", QUICK | {"seed": 1}), ("uu", QUICK | {"seed": 2})],
            ["refuted, seen again"],
        ),
        (
            [("ur", QUICK), ("ur", QUICK | {"seed": 1})]
            + [("uu", QUICK | {"seed": seed}) for seed in (2, 3)],
            ["refuted, not seen again"],
        ),
        # A shorter look that finds nothing says nothing.
        ([("ur", QUICK), ("uu", GLANCE)], ["refuted, not repeated"]),
        ([("ur", QUICK | {"seed": 1}), ("uu", GLANCE), ("ur", QUICK)], ["refuted, seen again"]),
        # Only one of the two was looked at longer.
        ([("uu", GLANCE), ("-r", QUICK)], []),
        ([("ur", GLANCE), ("r-", QUICK)], ["refuted, not seen again"]),
        ([("u-", GLANCE), ("-r", QUICK)], []),
        ([("r-", GLANCE), ("-u", QUICK)], ["upheld, not repeated"]),
        ([("u-", QUICK), ("-r", GLANCE)], ["refuted, not repeated"]),
        # One seed says so, the other the contrary.
        ([("ur", GLANCE), ("ru", GLANCE | {"seed": 1})], ["upheld, not seen again"]),
    ],
)
def test_versions_are_compared_where_they_were_looked_at_alike(file, tries, expected):
    every = flips(collect_attempts(file, *tries))
    assert [f"{flip.verdict}, {flip.repetition}" for flip in every] == expected
    assert len(standing(every)) == sum("not seen" not in each for each in expected)


@pytest.mark.parametrize(
    ("examples", "expected"), [(4, []), (5, [Repetition.ONCE]), (200, [Repetition.ONCE])]
)
def test_a_search_that_ended_before_the_example_that_breaks_it_shows_no_flip(
    file, examples, expected
):
    write(file, run_of("1.0", GPT2), [law(GPT2, examples=examples)])
    write(file, run_of("2.0", GPT2), [broken(GPT2, details={UNTIL_BROKEN: 5})])
    assert [flip.repetition for flip in flips(collect([file]))] == expected


def test_the_most_thorough_result_is_shown(file):
    evidence = collect_attempts(file, ("r-", QUICK), ("u-", GLANCE), ("u-", QUICK | {"seed": 1}))
    assert verdicts(evidence) == {(GPT2, law(GPT2).name, "1.0"): "upheld"}
    (tries,) = evidence.tries.values()
    assert sorted(str(each.verdict) for each in tries.values()) == ["refuted", "upheld", "upheld"]
    assert evidence.superseded == 2


def test_flips_of_one_law_say_on_how_many_models_they_were_seen_again(file):
    for seed in (0, 1):
        for version, result in ((OLD, law), (NEW, broken)):
            models = [GPT2, MAMBA] if seed == 0 else [MAMBA]
            run = run_of(version, *models, seed=seed)
            write(file, run, [result(model) for model in models])
    (turn,) = turns(flips(collect([file])))
    assert (turn.subjects, turn.repeated) == ([GPT2, MAMBA], "1 of 2 seen again")


def test_the_page_leaves_out_what_was_not_seen_again(tmp_path, file):
    collect_attempts(file, ("ur", GLANCE), ("rr", QUICK))
    other = broken(MAMBA)
    for version, result in (("1.0", law(MAMBA)), ("2.0", other)):
        write(file, run_of(version, MAMBA, **GLANCE), [result])
        write(file, run_of(version, MAMBA, **QUICK), [result])
    page = built(tmp_path, file)
    assert [flip[3:] for flip in data_of(page)["flips"]] == [[0, 1, 1, 1]]
    sentence = "1 flip between one version and the next, all seen again with other examples; "
    assert sentence + "1 more was not and is left out." in page
    assert '<td class="of">all</td>' in page
