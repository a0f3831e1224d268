"""Where claims come from: every source names a work, and readers find it."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from assay.harness.checking import cases
from assay.harness.cli import main as harness_main
from assay.harness.report import html
from assay.harness.results import bibliography, schema
from assay.harness.results.bibliography import WORKS
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.tests.support.sample_runs import sample_run
from assay.harness.tests.support.sessions import ROOT

PAGE = (ROOT / bibliography.PAGE).read_text()
NUMBER = re.compile(r"(?<![\d.])(?:0\d\d|\d{4}\.\d{5})(?![\d.])")
"""The number of a document, or of a paper on arXiv."""

SOURCES = sorted({case.claim.source for case in cases.collect(harness_main.rooms().claims)})


def test_every_claim_s_source_names_a_work_and_no_unknown_one():
    assert [source for source in SOURCES if not bibliography.cited(source)] == []
    numbers = {work.key.removeprefix("arxiv-") for work in WORKS}
    assert {number for source in SOURCES for number in NUMBER.findall(source)} <= numbers


def test_the_page_has_every_work_and_no_other():
    assert re.findall(r'<a id="([^"]+)">', PAGE) == [work.key for work in WORKS]
    for work in WORKS:
        _, _, after = PAGE.partition(f'<a id="{work.key}"></a>')
        entry = after.partition("<a id=")[0]
        assert work.title in entry
        assert work.author.casefold() in entry.casefold()
        assert work.address in entry or work.key == "beyond"


@pytest.mark.parametrize(
    ("source", "keys"),
    [
        ("003, 'Representation Repetitions'", ["003"]),
        (
            "001, answer 3; Haviv et al. 2022, Kazemnejad et al. 2023",
            ["001", "2203.16634", "2305.19466"],
        ),
        ("counterexample to arXiv 2510.15511", ["2510.15511"]),
        ("somebody said so", []),
    ],
)
def test_works_are_known_by_how_sources_name_them(source, keys):
    cited_keys = [work.key.removeprefix("arxiv-") for work in bibliography.cited(source)]
    assert cited_keys == keys


def result(source: str = "", **more) -> Result:
    """An upheld law from ``source``."""
    return Result("C1", "a law", Kind.LAW, "tiny:gpt2", Verdict.UPHELD, source=source, **more)


def test_the_json_has_sources_and_their_works():
    document = json.loads(schema.document(sample_run(), [result("004, answer 2")]))
    assert document["claims"][0]["source"] == "004, answer 2"
    assert list(document["bibliography"]) == ["004"]
    msgspec.convert(document, schema.Report)


def test_the_page_links_a_source_to_its_entry():
    page = html.render(sample_run("tiny:gpt2"), [result("004, answer 2")], {})
    assert '<a href="#source-004">“Does the transformer decoder reuse' in page
    assert '<div id="source-004">' in page
    assert 'id="source-003"' not in page
    assert 'id="sources"' not in html.render(sample_run("tiny:gpt2"), [result()], {})
