"""The atlas in a real browser: walked through by keys, filtered, linked, light and dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib import image

from assay.harness.report.atlas import build
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.atlas_pages import WAITING, Page
from assay.harness.tests.support.browsers import (
    MODES,
    TEXT_CONTRAST,
    Browser,
    complaints,
    overflow,
    requests,
)
from assay.harness.tests.support.defects import DOCSTRING
from assay.harness.tests.support.evidences import VARIANTS, broken, finding, law, run_of, write

TYPES = ("gpt2", "llama", "mamba", "t5")
OLD, MIDDLE, NEW = VERSIONS = ("4.57.1", "5.0.0", "5.23.0")
EVIL = "tiny:<script>pwned=1</script>"
STATIC = "cached decoding equals recomputation [static]"


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small atlas: three versions, all verdicts, a flip, a defect, hostile names, findings."""
    folder = tmp_path_factory.mktemp("atlas")
    (folder / "defects").mkdir()
    (folder / "defects" / "lost.py").write_text(DOCSTRING + "import sys\nsys.exit(1)\n")
    (folder / "expected").mkdir()
    for version in VERSIONS:
        names = [f"tiny:{name}" for name in TYPES if (name, version) != ("t5", OLD)]
        results = []
        for name in [*names, EVIL]:
            results += [law(name, "C2", f"cached decoding equals recomputation [{v}]")
                        for v in VARIANTS if v != "static"]  # fmt: skip
            results.append(law(name, "C1", "a prefix's states do not change"))
        results += [law(name, name=STATIC) for name in names[1:2]]
        results += [broken("tiny:mamba", name=STATIC), broken(EVIL, name=STATIC)]
        flipping = law if version == OLD else broken
        results.append(flipping("tiny:gpt2", name=STATIC))
        lacking = {"observed": None, "bound": None, "margin": None}
        lacking["reason"] = "causal: <b>not</b> causal"
        results.append(law(EVIL, "A5", "order", verdict=Verdict.NOT_APPLICABLE, **lacking))
        results.append(law("tiny:llama", "A5", "order", verdict=Verdict.INCONCLUSIVE))
        results += [finding("reference", f"barely [{v}]", 0.1) for v in ("documented", "other")]
        write(folder / "e.sqlite", run_of(version, *names, EVIL, "reference"), results)
    write(folder / "e.sqlite", run_of(OLD, refused={"tiny:t5": "cannot be built: <i>"}), [])
    build([folder / "e.sqlite"], folder / "out", folder / "defects", folder / "expected")
    return folder / "out"


@pytest.fixture
def page(browser: Browser, atlas: Path) -> Page:
    return Page(browser, atlas)


@pytest.mark.parametrize(("width", "height", "scheme"), MODES)
@pytest.mark.parametrize("view", ["map", "law", "type"])
def test_the_atlas_stands_in_every_window(page, width, height, scheme, view):
    page.open(f"#view={view}", width, height, scheme)
    browser = page.browser
    assert overflow(browser) <= 0
    assert complaints(browser) == []
    assert [url.partition("#")[0] for url in requests(browser)] == [page.path.as_uri()]
    assert page("typeof pwned") == "undefined"
    page("document.querySelector('#grid td.refuted, #grid td').click()")
    least, where = page(TEXT_CONTRAST)
    assert least >= 4.5, where


def test_the_map_has_every_model_and_law_with_a_sign_and_a_name(page):
    page.open()
    assert page.rows == ["<script>pwned=1</script>", *TYPES]
    assert page.columns == ["order", "a prefix's states do not change", *sorted(VARIANTS)]
    assert page.all("#grid .group") == ["A5", "C1", "C2"]
    assert page("document.querySelector('#grid').getAttribute('role')") == "grid"
    cells = page(
        "[...document.querySelectorAll('#grid td[role=gridcell]')]"
        ".map((e) => [e.textContent, e.getAttribute('aria-label')])"
    )
    assert len(cells) == 5 * 7
    signs = {label.partition(",")[0]: sign for sign, label in cells}
    assert signs == {"upheld": "✓", "refuted": "✗", "inconclusive": "?", "not applicable": "–",
                     "not run": ""}  # fmt: skip
    assert "upheld, margin +1.3 decades" in [label for _, label in cells]


def test_a_cell_says_all_that_is_known(page):
    page.open(f"#type=tiny:mamba&law=C2 {STATIC}&version={NEW}")
    assert page.shown == ("mamba", f"C2 {STATIC}", "✗ refuted in transformers 5.23.0")
    panel = page.text("#panel")
    for part in (
        "Observed0.467", "Allowed0.123", "Margin−0.6 decades", "Inputs tried200",
        "unexpected: no expectation says so", "prompt<0>(0) <75>(75)",
        "0.234 observed, 0.123 allowed, at logits, row 0, position 1", "--replay=AEEA",
        "A static cache loses its first token.", "Run of 2026-11-21: Assay 0.1.0, python 3.11.7",
    ):  # fmt: skip
        assert part in panel, part
    page.open(f"#type={EVIL}&law=A5 order")
    assert "Missingcausal: <b>not</b> causal" in page.text("#panel")
    page.open(f"#type=tiny:t5&law=A5 order&version={OLD}")
    assert "not built" in page.shown[2]
    assert "cannot be built: <i>" in page.text("#panel")


def test_a_flip_is_marked_and_told_in_words(page):
    page.open(f"#view=law&law=C2 {STATIC}&type=tiny:gpt2&version={MIDDLE}")
    assert page.columns == list(VERSIONS)
    assert "Flips: last good 4.57.1, first bad 5.0.0." in page.text("#panel")
    marked = "#grid td.flip"
    assert page(f"document.querySelectorAll({marked!r}).length") == 1
    assert page.shown[0] == "gpt2"
    assert "flipped since 4.57.1" in page(
        f"document.querySelector({marked!r}).getAttribute('aria-label')"
    )
    page.click("#flips")
    assert page.rows == ["gpt2"]
    page.click(".trail button")
    assert page.shown[2] == "✓ upheld in transformers 4.57.1"


def test_filters_leave_what_fits_and_say_how_much(page):
    page.open()
    page.click("[data-verdict=r]")
    assert page.rows == ["<script>pwned=1</script>", "gpt2", "mamba"]
    assert page.columns == ["static"]
    assert page.text("#count") == "3 cells: 3 models × 1 law"
    page.choose("#models", "MAM")
    assert page.rows == ["mamba"]
    page.choose("#models", "no such model")
    assert page.rows == []
    assert page("document.querySelector('#empty').checkVisibility()")
    page.click("#reset")
    assert len(page.rows) == 5
    page.choose("#laws", "c2 static")
    assert page.columns == ["static"]
    page.click("#reset")
    page.click("#odd")
    assert page.columns == ["order", "static"]
    page.click("#reset")
    page.choose("#kind", "finding")
    assert (page.rows, page.columns) == (["reference"], ["documented", "other"])
    assert "clears its bound by +3.0 half-widths" in page.text("#panel")


def test_a_link_shows_the_same_again(page):
    page.open()
    page.click("[data-verdict=r]")
    page.choose("#models", "m")
    page.choose("#version", "1")
    page.click("#grid tbody tr:last-child td")
    hash, view = page("location.hash"), (page.rows, page.columns, page.shown)
    page.open(hash)
    assert (page.rows, page.columns, page.shown) == view
    assert (
        page("document.querySelector('[data-verdict=r]').getAttribute('aria-pressed')") == "true"
    )
    assert page("document.querySelector('#models').value") == "m"
    assert page("location.hash") == hash
    for word in ("view=map", "type=tiny%3Amamba", "static", "version=5.0.0", "verdict=r"):
        assert word in hash
    # what a hash names that is not there is passed over
    page.open("#view=nonsense&type=tiny:gone&law=Z9&version=1&verdict=__proto__&kind=x")
    assert len(page.rows) == 5
    # a link elsewhere on the page leads to the map
    page.click("#laws-list tbody tr a")
    page(WAITING.format(100))
    assert page.columns == list(VERSIONS)


def test_settings_stand_apart_and_are_linked(browser, tmp_path):
    file = tmp_path / "e.sqlite"
    write(file, run_of(NEW, "tiny:gpt2"), [law("tiny:gpt2"), law("tiny:gpt2", "C9", "embedding")])
    write(file, run_of(NEW, "tiny:gpt2", dtype="bfloat16"), [broken("tiny:gpt2")])
    build([file], tmp_path / "out")
    page = Page(browser, tmp_path / "out").open("#setting=bfloat16, cpu")
    assert page.shown[2].startswith("✗ refuted")
    assert page("document.querySelector('#setting').checkVisibility()")
    page.choose("#setting", "0")
    assert page.shown[2].startswith("✓ upheld")
    assert "setting=float32%2C+cpu" in page("location.hash")
    assert "not compared with expectations" in page.text("#panel")


def test_the_keyboard_walks_through_the_map(page):
    page.open("#type=tiny:gpt2&law=C1 a prefix's states do not change")
    reached = []
    for _ in range(40):
        page.browser.press("Tab")
        reached.append(page("document.activeElement.getAttribute('role')"))
        if reached[-1] == "gridcell":
            break
    assert reached[-1] == "gridcell"
    assert page.shown[:2] == ("gpt2", "C1 a prefix's states do not change")
    ring = "getComputedStyle(document.activeElement).outlineStyle"
    assert page(ring) == "solid"
    assert page("document.querySelector('#tip').checkVisibility()")
    assert "upheld, margin +1.3 decades" in page.text("#tip")
    page.browser.press("ArrowDown")
    page.browser.press("ArrowRight")
    assert page.shown[:2] == ("llama", "C2 cached decoding equals recomputation [default]")
    assert "type=tiny%3Allama" in page("location.hash")
    page.browser.press("End")
    assert page.shown[1] == f"C2 {STATIC}"
    page.browser.press("PageDown")
    assert page.shown[0] == "t5"
    page.browser.press("Home")
    assert page.shown[1] == "A5 order"
    page.browser.press("Enter")
    assert page("document.activeElement.tagName") == "H3"
    page.browser.press("Escape")
    assert page("document.activeElement.getAttribute('role')") == "gridcell"
    page.browser.press("ArrowLeft")  # the model's name: all of it over versions
    assert page("document.activeElement.tagName") == "BUTTON"
    page.browser.press("Enter")
    assert page.columns == list(VERSIONS)
    assert "view=type" in page("location.hash")


def test_a_cell_that_is_focused_by_other_ways_is_told_as_well(page):
    page.open()
    page("document.querySelector('#grid tbody tr:last-child td:last-child').focus()")
    assert page.shown[:2] == ("t5", f"C2 {STATIC}")
    page.browser.press("ArrowLeft")
    assert page.shown[:2] == ("t5", "C2 cached decoding equals recomputation [sliding]")


def test_only_one_cell_is_a_stop_of_the_tab_key(page):
    page.open()
    for key in ("", "ArrowRight", "ArrowUp", "ArrowUp"):
        if key:
            page("document.querySelector('#grid [tabindex=\"0\"]').focus()")
            page.browser.press(key)
        assert page("document.querySelectorAll('#grid [tabindex=\"0\"]').length") == 1


def test_what_a_pointer_is_on_is_told(page):
    page.open()
    cell = "document.querySelector('#grid td.refuted')"
    x, y = (page(f"{cell}.getBoundingClientRect().{name}") + 8 for name in ("x", "y"))
    page.browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert "refuted, margin −0.6 decades" in page.text("#tip")
    inside = "(() => { const b = document.querySelector('#tip').getBoundingClientRect();"
    inside += " return b.left >= 0 && b.right <= innerWidth && b.top >= 0 })()"
    assert page(inside)
    page.browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=3, y=3)
    assert not page("document.querySelector('#tip').checkVisibility()")


def test_light_and_dark_by_the_system_and_by_the_switch(page, tmp_path):
    page.open()
    page("localStorage.clear()")
    grey = {}
    for scheme in ("light", "dark"):
        page.open(scheme=scheme)
        for clicks, name in ((0, "auto"), (1, "light"), (1, "dark")):
            for _ in range(clicks):
                page.click(".theme")
            assert page.text(".theme") == f"theme: {name}"
            page.browser.screenshot(tmp_path / "shot.png")
            grey[scheme, name] = image.imread(tmp_path / "shot.png")[..., :3].mean()
            if name == "dark":
                least, where = page(TEXT_CONTRAST.replace("matchMedia(", "(() => 1)("))
                assert least >= 4.5, where
        page.click(".theme")
    dark = {key for key, mean in grey.items() if mean < 0.25}
    assert dark == {("light", "dark"), ("dark", "auto"), ("dark", "dark")}
    assert all(mean > 0.75 for key, mean in grey.items() if key not in dark)


def test_on_a_phone_a_cell_opens_a_sheet_that_can_be_closed(page):
    page.open(width=360, height=740)
    sheet = "document.querySelector('#panel').checkVisibility()"
    assert page(sheet) is False
    page.click("#grid td.refuted")
    assert page(sheet) is True
    page.click("#panel .close")
    assert page(sheet) is False


def test_a_defect_opens_by_its_link_and_can_be_read_and_copied(page):
    for width, height, scheme in MODES:
        page.open("#defect-lost", width, height, scheme)
        assert page("document.querySelector('#defect-lost').open")
        assert overflow(page.browser) <= 0
        least, where = page(TEXT_CONTRAST)
        assert least >= 4.5, where
    assert page.text("#defects pre code") == DOCSTRING + "import sys\nsys.exit(1)\n"
    page.click(".copy")
    page(WAITING.format(150))
    assert re.match("copied|selected", page.text(".copy"))
    links = page("[...document.querySelectorAll('.types a')].map((a) => a.href)")
    assert len(links) == 1
    assert "type=tiny%3Amamba" in links[0]
    page.open(f"#type=tiny:mamba&law=C2 {STATIC}&version={NEW}")
    page(
        "[...document.querySelectorAll('#panel a')].find((a) => a.hash == '#defect-lost').click()"
    )
    page(WAITING.format(100))
    assert page("document.querySelector('#defect-lost').open")


def test_flips_are_found_by_model_and_version(page):
    page.open()
    shown = "[...document.querySelectorAll('.searched tbody tr')].filter((r) => !r.hidden).length"
    assert page(shown) == 1
    page.choose(".finder input", "GPT2 5.0.0")
    assert (page(shown), page.text(".finder [role=status]")) == (1, "1 of 1 rows")
    page.choose(".finder input", "gpt2 9.9")
    assert (page(shown), page.text(".finder [role=status]")) == (0, "0 of 1 rows")


def test_without_its_script_the_page_tells_laws_flips_findings_and_defects(page):
    page.browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.browser.open(page.path, 1280, 900, "light")
        assert not page("document.querySelector('.tool').checkVisibility()")
        assert "needs JavaScript" in page.text("noscript")
        assert len(page.all("#laws-list tbody tr")) == 7
        assert "4.57.15.0.0✗ refutedC2 [static]" in page.text("#flips-list tbody")
        assert len(page.all("#findings tbody tr:not(.variant)")) == 2
        assert "A static cache loses its first token." in page.text("#defects")
    finally:
        page.browser.ask("Emulation.setScriptExecutionDisabled", value=False)


def test_on_paper_the_map_is_light_and_whole(page):
    page.open(width=1100, scheme="dark")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.browser.ask("Emulation.setEmulatedMedia", media="print", features=dark)
    assert page("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page("document.querySelector('.controls').checkVisibility()")
    assert page("document.querySelector('#grid').checkVisibility()")
    assert overflow(page.browser) <= 0
