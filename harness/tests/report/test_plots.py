"""Pictures of findings: every kind shows its data, and nothing in it stops the page."""

from __future__ import annotations

import base64
import io
import re
import warnings
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_arrays
from matplotlib import image
from msgspec.structs import replace

from assay.harness.report import pictures
from assay.harness.results.arrays import Plot
from assay.harness.results.verdicts import Result, Verdict
from assay.harness.tests.support.pages import HOSTILE, Reader, page
from assay.harness.tests.support.sample_findings import finding
from assay.harness.tests.support.sample_plots import cosines, every_kind, texts_of

# -- each kind ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("map", "cosine: 24 × 24 values from -0.854 to 1."),
        ("histograms", "seen: 45 counted, most of them from 0.8 to 1."),
        ("scatter", "(0, 1): 30 points."),
        ("distributions", "positions: median 0.0386, n = 200."),
        ("curves", "one layer: from 0 at 30 to 0.1 at 2e3."),
    ],
)
def test_every_kind_is_drawn_with_its_axes_named_and_told_in_words(kind: str, said: str) -> None:
    plot = every_kind()[kind]
    drawing = pictures.draw(plot, "p")
    written = texts_of(drawing.svg)
    assert {name for name in (plot.x, plot.y) if name} <= set(written)
    assert not re.search(r"#0102|#000000|DejaVu|//", re.sub('base64,[^"]*', "", drawing.svg))
    assert drawing.words[0] == said
    assert drawing.notes == []
    assert len(drawing.svg) < 150_000
    assert drawing == pictures.draw(plot, "p")


def cells_of(svg: str) -> Any:
    """The colours of a map's 24 by 24 cells, each at its middle: [24, 24, 4]; its image is upside
    down.
    """
    shown = [
        image.imread(io.BytesIO(base64.b64decode(data)))
        for data in re.findall(r'href="data:image/png;base64,([^"]+)"', svg)
    ]
    pixels = max(shown, key=lambda each: each.shape[1])  # the other is the bar of colours
    rows, columns = (((np.arange(24) + 0.5) / 24 * n).astype(int) for n in pixels.shape[:2])
    return pixels[::-1][np.ix_(rows, columns)]


def test_a_map_is_blue_above_zero_and_orange_below_and_the_page_between() -> None:
    cells, values = cells_of(pictures.draw(every_kind()["map"], "p").svg), cosines()
    assert np.allclose(cells[..., 3], np.abs(values), atol=0.03)
    seen = np.abs(values) > 0.05
    assert ((cells[..., 2] > cells[..., 0]) == (values > 0))[seen].all()


def test_a_cell_without_a_number_is_grey_and_counted() -> None:
    values = cosines()
    values[3, 4] = np.nan
    drawing = pictures.draw(Plot("m", "map", {"c": values}), "p")
    assert drawing.notes == ["1 number not finite, and not drawn."]
    assert np.allclose(cells_of(drawing.svg)[3, 4], [0.5, 0.5, 0.5, 1], atol=0.01)


def test_a_curve_has_marks_at_its_knots_and_a_band_only_with_an_interval() -> None:
    drawing = pictures.draw(every_kind()["curves"], "p")
    assert {"30", "100", "500", "2000"} <= set(texts_of(drawing.svg))
    assert drawing.svg.count("fill-opacity: 0.2") == 2
    bare = {"a": np.column_stack([np.arange(5.0), np.arange(5.0)])}
    assert "fill-opacity" not in pictures.draw(Plot("c", "curves", bare), "p").svg


# -- whatever is in them ----------------------------------------------------------------------

wild = numpy_arrays.arrays(
    np.float64,
    numpy_arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5),
    elements=st.floats() | st.sampled_from([0.0, 1.0, -1.0, np.nan, np.inf, 1e308, 5e-324]),
)


# Drawing takes its time: what fails is shown as it was found.
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.sampled_from([*pictures.KINDS, "pie"]),
    st.dictionaries(st.sampled_from(["edges", "a", "b", HOSTILE, "$x$ \x00\ud800", ""]), wild),
    st.booleans(),
)
def test_no_array_stops_a_drawing(kind: str, arrays: dict[str, Any], log: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing = pictures.draw(Plot("t", kind, arrays, "$x$", "\x1b{{ 7*7 }}", log), "p")
    if drawing.svg:
        ElementTree.fromstring(drawing.svg)
    else:
        assert drawing.notes


def test_a_series_without_numbers_or_a_wrong_shape_is_noted() -> None:
    lost = {"lost": np.full((4, 2), np.nan), "drawn": np.ones((4, 2))}
    drawing = pictures.draw(Plot("c", "curves", lost), "p")
    assert drawing.svg
    assert drawing.notes == ["Nothing to draw for ‘lost’."]
    assert pictures.draw(Plot("m", "map", {}), "p").notes == ["There is nothing to draw."]
    many = {str(i): np.ones(3) * i for i in range(40)}
    drawing = pictures.draw(Plot("d", "distributions", many), "p")
    assert drawing.notes == [f"40 series; the first {pictures.MOST_SERIES} are drawn."]
    (note,) = pictures.draw(Plot("c", "curves", {"a": np.ones(3)}), "p").notes
    assert note.startswith("It cannot be drawn: ")


def test_a_label_is_written_as_it_is() -> None:
    points = {"$x_1$": np.ones((1, 2)), "<b>": np.ones((1, 2))}
    written = texts_of(pictures.draw(Plot("s", "scatter", points, "50 $", "a $ and b $"), "p").svg)
    assert {"$x_1$", "<b>", "50 $", "a $ and b $"} <= set(written)


# -- on the page ----------------------------------------------------------------------------


def pictured(*plots: Plot, **changes: Any) -> Result:
    """A finding with these pictures, by default one of every kind."""
    return finding(plots=plots or tuple(every_kind().values()), **changes)


def test_the_page_shows_every_picture_with_title_words_and_caption() -> None:
    rows = [pictured(verdict=Verdict.REFUTED), finding(), pictured(id="A2")]
    text = page(*rows)
    reader = Reader(text)
    titles = [plot.title for plot in every_kind().values()]
    assert [figure["aria-label"] for figure in reader.all("figure")] == titles * 2
    shown = [a["aria-label"] or "" for _, a in reader.elements if a.get("role") == "img"]
    assert len(shown) == 10
    assert "two layers: from 0.1 at 30 to 1 at 2e3." in shown[4]
    assert text.count('<figcaption class="refuted"><a href="#c0">') == 5
    assert text.count('<figcaption class="upheld"><a href="#c2">') == 5
    ids = reader.values("id")
    assert len(ids) == len(set(ids))
    assert 'id="pictures"' not in page(finding())
    assert text == page(*rows)


def test_no_label_of_a_plot_becomes_markup() -> None:
    plots = [
        replace(plot, title=HOSTILE, x=HOSTILE, y=HOSTILE,
                arrays={k if k == "edges" else HOSTILE + k: a for k, a in plot.arrays.items()})
        for plot in every_kind().values()
    ]  # fmt: skip
    Reader(page(pictured(*plots, Plot(HOSTILE, HOSTILE, {HOSTILE: np.ones(3)})))).is_harmless()


def test_a_page_with_many_large_maps_stays_under_two_megabytes() -> None:
    noise = np.clip(np.random.default_rng(0).normal(size=(1024, 1024)), -1, 1)
    plots = [Plot(str(i), "map", {"c": np.roll(noise, i, 0)}) for i in range(12)]
    text = page(pictured(*plots))
    assert len(text.encode()) < 2e6
    assert len(Reader(text).all("figure")) >= 6
    assert "more are in the JSON of the run" in text
