"""The last lines of a run: what is broken and where, known defects, what does not apply."""

from __future__ import annotations

from msgspec.structs import replace

from assay.harness.report import closing, words
from assay.harness.results.verdicts import Counterexample, Foreseen, Result, Verdict
from assay.harness.tests.support.pages import printed
from assay.harness.tests.support.sample_runs import one, sample_run


def _broken(id: str, prompt: str, **example: str) -> Result:
    shown = Counterexample({"prompt": prompt}, 1.0, 1e-5, **example)
    return one(id=id, name=f"law {id}", verdict=Verdict.REFUTED, counterexample=shown)


def _last_lines(*results: Result) -> list[str]:
    return closing.lines(sample_run(), results)


def test_laws_that_break_at_one_place_share_the_smallest_counterexample() -> None:
    unread = "the mask is not read"
    rows = [
        _broken("C5", "a longer prompt", where="logits, row 0, position 1", cause=unread),
        _broken("C4", "short", where="logits, row 2, position 0", cause=unread),
        _broken("C8", "another prompt", where="state 2, row 0, position 0"),
        _broken("H1", "", where="lm_head.weight is in no file"),
    ]
    text = printed(*rows)
    assert "short" in text
    assert "a longer prompt" not in text
    assert "2 other laws break there" in text
    assert _last_lines(*rows) == [
        f"Broken: {unread} (C4, C5, C8)",
        "Broken: lm_head.weight is in no file (H1)",
    ]
    assert "a longer prompt" in printed(*rows, verbose=True)


def test_the_last_lines_name_known_defects_and_what_does_not_apply() -> None:
    defect = Foreseen("a loss (docs/defects/losses.py)", "losses")
    rows = [
        replace(_broken("G2", "a", where="the loss"), expected=defect),
        replace(_broken("G3", "a", where="the loss"), expected=defect),
        replace(one(id="A1", verdict=Verdict.REFUTED), expected=Foreseen("untrained")),
        *(
            one(id=id, verdict=Verdict.NOT_APPLICABLE, reason="lm-head: the model has no head")
            for id in ("C4", "G2")
        ),
    ]
    version = sample_run().versions["transformers"]
    assert _last_lines(*rows) == [
        f"Known defects of transformers {version}, with a script in docs/defects each: "
        "losses (G2, G3)",
        "Refuted as expected: A1",
        "the model has no head: 2 claims do not apply",
    ]
    assert "the loss" not in printed(*rows[:2]), "a known defect has no box"
    assert words.headline(rows[:1]).endswith("is broken.")
    assert "2 are broken as expected" in words.headline([*rows[:2], one(verdict=Verdict.UPHELD)])


def test_of_many_claims_those_that_are_upheld_share_a_line_by_number() -> None:
    rows = [
        *(
            one(id="C2", name=f"cached is recomputed [{n}]", verdict=Verdict.UPHELD)
            for n in range(40)
        ),
        one(id="C2", name="a copy goes on alone", verdict=Verdict.UPHELD),
        one(id="C10", name="a sentence " * 20, verdict=Verdict.UPHELD),
        _broken("C5", "a", where="logits, row 0, position 1"),
    ]
    text, whole = printed(*rows), printed(*rows, verbose=True)
    line = next(line for line in text.splitlines() if line.startswith("C2"))
    assert "cached is recomputed (and 1 more)" in line
    assert "41 ✓" in line
    assert text.count("✗ refuted") == 1
    assert text.count("✓ upheld") == 0
    assert whole.count("✓ upheld") == 42
    long = next(line for line in text.splitlines() if line.startswith("C10 a sentence"))
    assert "1 ✓" in long
    assert max(map(len, text.splitlines())) <= 80
    few = one(id="B1", subject="toy", verdict=Verdict.UPHELD)
    assert printed(*rows, few).count("✓ upheld") == 0, "another subject of the same run"
    none = [replace(row, verdict=Verdict.NOT_APPLICABLE) for row in rows]
    assert printed(*none, few).count("✓ upheld") == 1, "what does not apply does not count"


def test_lines_of_numbers_are_in_groups_by_document() -> None:
    papers = "arXiv 2510.15511; 004, answer 2"
    sources = {"G1": "beyond", "C2": papers, "A5": "000", "C1": "000; 004"}
    rows = [
        one(id=id, name=f"{id} [{n}]", verdict=Verdict.UPHELD, source=source)
        for id, source in sources.items()
        for n in range(11)
    ]
    lines = printed(*rows).splitlines()
    begins = [
        line[:3].strip() for line in lines if line[:3].strip() in {*sources, "000", "004", "–"}
    ]
    assert begins == ["000", "A5", "C1", "004", "C2", "–", "G1"]
    assert any("–" in line and "Beyond the documents" in line for line in lines)
