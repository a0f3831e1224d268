"""Pictures of findings: every kind shows its data, and nothing in it stops the page."""

from __future__ import annotations

import base64
import io
import re
import struct
import warnings
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from matplotlib import image
from msgspec.structs import replace

from assay.harness.report import distributions, gallery, maps, plots
from assay.harness.report.drawing import COLOURS, MOST_SERIES
from assay.harness.results.arrays import Plot
from assay.harness.results.verdicts import Result, Verdict
from assay.harness.tests.support.pages import HOSTILE, Reader, page
from assay.harness.tests.support.sample_findings import finding
from assay.harness.tests.support.sample_plots import cosines, every_kind, strokes, texts_of
from assay.harness.tests.support.sample_runs import LARGE

# -- each kind ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", every_kind())
def test_every_kind_is_drawn_in_the_pages_colours_with_its_axes_named(kind: str) -> None:
    plot = every_kind()[kind]
    drawing = plots.draw(plot, "p")
    written = texts_of(drawing.svg)
    names = [name for name in (plot.x, plot.y) if name]
    assert all(any(text.startswith(name) for text in written) for name in names)
    assert not re.search(
        r"#0102|#[0-9a-f]{6}\b|DejaVu|https?:", re.sub('base64,[^"]*', "", drawing.svg)
    )
    assert drawing.notes == []
    assert drawing.spoken
    assert len(drawing.svg) < 60_000


@pytest.mark.parametrize("kind", every_kind())
def test_a_plot_is_the_same_whenever_it_is_drawn(kind: str) -> None:
    assert plots.draw(every_kind()[kind], "p") == plots.draw(every_kind()[kind], "p")


def test_a_map_is_an_image_of_its_cells() -> None:
    svg = plots.draw(every_kind()["map"], "p").svg
    cells, bar = re.findall(r'href="data:image/png;base64,([^"]+)"', svg)
    assert len(bar) < len(cells) < 3000
    shape = struct.unpack(">II", base64.b64decode(cells)[16:24])
    assert shape == (24, 24)
    pixels = image.imread(io.BytesIO(base64.b64decode(cells)))
    assert pixels.shape == (24, 24, 4)
    values = cosines()
    assert np.allclose(pixels[..., 3], np.abs(values), atol=1 / maps.LEVELS)
    blue = pixels[..., 2] > pixels[..., 0]
    assert (blue == (np.rint(values * maps.LEVELS) >= 0)).all()


def test_a_large_map_shrinks_to_means_of_blocks() -> None:
    cells = np.random.default_rng(0).normal(size=(1024, 700))
    small = maps.shrink(cells)
    assert small.shape == (256, 234)
    assert small[3, 5] == pytest.approx(cells[12:16, 15:18].mean())
    drawing = plots.draw(Plot("m", "map", {"c": np.clip(cells / 4, -1, 1)}), "p")
    assert "A dot is the mean of 4 × 3 values." in drawing.notes
    assert len(drawing.svg) < 100_000


def test_cells_without_a_number_are_grey_and_counted() -> None:
    cells = cosines()
    cells[3, 4] = np.nan
    drawing = plots.draw(Plot("m", "map", {"c": cells}), "p")
    assert drawing.notes == ["1 of 576 values are not finite (grey)."]
    (first, _) = re.findall(r'href="data:image/png;base64,([^"]+)"', drawing.svg)
    grey = image.imread(io.BytesIO(base64.b64decode(first)))[3, 4]
    assert np.allclose(grey, [0.5, 0.5, 0.5, 1], atol=0.01)


def test_a_histogram_is_an_outline_with_a_step_per_bin() -> None:
    drawing = plots.draw(every_kind()["histograms"], "p")
    for colour in COLOURS[:2]:
        (outline,) = strokes(drawing.svg, colour)
        assert outline.count("L") >= 2 * 10
    assert [entry.label for entry in drawing.legend] == ["seen", "shuffled"]
    assert drawing.legend[0].note == "45 counted"
    assert "most of them from 0.8 to 1." in drawing.spoken[0]


def test_a_scatter_has_a_dot_and_a_line_for_every_point() -> None:
    drawing = plots.draw(every_kind()["scatter"], "p")
    assert len(drawing.legend) == 10
    assert [entry.dashed for entry in drawing.legend] == [False] * 6 + [True] * 4
    (line,) = strokes(drawing.svg, "s5", "stroke-width: 0.9")
    (points,) = strokes(drawing.svg, "s5", "stroke-linecap: round")
    assert line.count("L") == 29
    assert points.count("M") == 30


def test_of_very_many_points_some_are_drawn_and_that_is_said() -> None:
    points = {str(i): np.random.default_rng(i).normal(size=(5000, 2)) for i in range(4)}
    drawing = plots.draw(Plot("s", "scatter", points), "p")
    assert drawing.notes == ["One point in 7 is drawn."]
    assert len(drawing.svg) < 150_000


def test_a_distribution_has_its_median_quartiles_density_and_draws() -> None:
    drawing = plots.draw(every_kind()["distributions"], "p")
    draws = every_kind()["distributions"].arrays["positions"]
    assert f"median {np.median(draws):.3g}, n = 200" in texts_of(drawing.svg)
    (dots,) = strokes(drawing.svg, "s1", "stroke-linecap: round")
    assert dots.count("M") == 200
    (quartiles,) = strokes(drawing.svg, "s1", "stroke-width: 4")
    medians = strokes(drawing.svg, "ink", "stroke-width: 2")
    assert len(medians) == 2
    left, right = (float(x) for x in re.findall(r"[ML]([\d.]+) ", quartiles))
    assert left < float(re.findall(r"M([\d.]+) ", medians[0])[0]) < right
    assert strokes(drawing.svg, "s1", "stroke-width: 1.4")


def test_a_density_is_high_where_the_draws_are() -> None:
    grid, height = distributions.density(np.sort(np.random.default_rng(0).normal(3, 1, 400)))
    assert abs(grid[height.argmax()] - 3) < 0.4
    assert height.max() == 1
    assert len(distributions.density(np.zeros(50))[0]) == 0
    assert len(distributions.density(np.repeat([0.0, 1.0], 50))[0]) == 0


def test_on_a_log_scale_what_is_not_above_zero_is_at_the_edge_and_said() -> None:
    draws = {"a": np.array([0.0, -1.0, 1e-3, 1e-2, 0.1]), "b": np.zeros(3)}
    drawing = plots.draw(Plot("d", "distributions", draws, log=True), "p")
    assert drawing.notes == [
        "2 of 5 draws of ‘a’ at or below zero, drawn at the left edge.",
        "3 of 3 draws of ‘b’ at or below zero, drawn at the left edge.",
    ]
    (dots,) = strokes(drawing.svg, "s1", "stroke-linecap: round")
    places = [float(x) for x in re.findall(r"M([\d.]+) ", dots)]
    assert places[0] == places[1] < places[2] < places[3] < places[4]
    nothing = plots.draw(Plot("d", "distributions", {"b": np.zeros(3)}, log=True), "p")
    assert nothing.notes == ["Nothing is above zero, so the scale is linear."]
    assert nothing.svg


def test_a_curve_has_its_knots_and_its_band() -> None:
    drawing = plots.draw(every_kind()["curves"], "p")
    written = texts_of(drawing.svg)
    assert {"30", "100", "500", "2000"} <= set(written)
    (line,) = strokes(drawing.svg, "s2", "stroke-width: 1.9")
    assert line.count("L") == 3
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", line)]
    assert heights == sorted(heights, reverse=True)  # it rises: the drawing counts downwards
    assert drawing.svg.count("fill-opacity: 0.16") == 2
    assert drawing.spoken[1] == "two layers: from 0.1 at 30 to 1 at 2e3."


def test_a_curve_without_an_interval_has_no_band() -> None:
    bare = {"a": np.column_stack([np.arange(5.0), np.arange(5.0)])}
    assert "fill-opacity" not in plots.draw(Plot("c", "curves", bare), "p").svg


# -- whatever is in them ----------------------------------------------------------------------

wild = arrays.arrays(
    np.float64,
    arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5),
    elements=st.floats() | st.sampled_from([0.0, 1.0, -1.0, np.nan, np.inf, 1e308, 5e-324]),
)


# Drawing takes its time: what fails is shown as it was found.
@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.sampled_from([*plots.KINDS, "pie"]),
    st.dictionaries(st.sampled_from(["edges", "a", "b", HOSTILE, "$x$ \x00\ud800", ""]), wild),
    st.booleans(),
)
def test_no_array_stops_a_drawing(kind: str, held: dict[str, Any], log: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing = plots.draw(Plot("t", kind, held, "$x$", "\x1b{{ 7*7 }}", log), "p")
    if drawing.svg:
        ElementTree.fromstring(drawing.svg)
    else:
        assert drawing.notes


@pytest.mark.parametrize(
    "plot",
    [
        Plot("m", "map", {"c": np.ones((1, 1))}),
        Plot("h", "histograms", {"edges": np.array([0.0, 1.0]), "a": np.ones(1)}),
        Plot("s", "scatter", {"a": np.ones((1, 2))}),
        Plot("d", "distributions", {"a": np.ones(1)}),
        Plot("c", "curves", {"a": np.ones((1, 2)), "b": np.ones((1, 4))}),
    ],
)
def test_one_value_is_enough_for_a_picture(plot: Plot) -> None:
    assert plots.draw(plot, "p").svg


def test_values_far_from_zero_and_close_together_have_marks_that_differ() -> None:
    close = {"a": np.column_stack([np.arange(9.0), 1 + 1e-9 * np.arange(9)])}
    written = texts_of(plots.draw(Plot("c", "curves", close, "x", "y"), "p").svg)
    assert "y (1e−9+1)" in written
    assert len(set(written)) == len(written) or written.count("0") == 2


def test_more_series_than_can_be_told_apart_are_counted() -> None:
    many = {str(i): np.ones(3) * i for i in range(40)}
    drawing = plots.draw(Plot("d", "distributions", many), "p")
    assert drawing.notes == [f"40 series; the first {MOST_SERIES} are drawn."]


def test_a_label_that_is_cut_in_the_drawing_is_whole_below_it() -> None:
    name = "the unrestricted permutation of tokens and positions"
    drawing = plots.draw(Plot("d", "distributions", {name: np.arange(9.0)}), "p")
    assert name not in texts_of(drawing.svg)
    assert [entry.label for entry in drawing.legend] == [name]


# -- on the page ----------------------------------------------------------------------------


def pictured(*pictures: Plot, **changes: Any) -> Result:
    """A finding with these pictures, by default one of every kind."""
    return finding(plots=pictures or tuple(every_kind().values()), **changes)


def test_the_page_shows_every_picture_with_title_words_and_caption() -> None:
    reader = Reader(text := page(pictured(verdict=Verdict.REFUTED)))
    figures = [a["aria-label"] for a in reader.all("figure")]
    assert figures == [plot.title for plot in every_kind().values()]
    shown = [a["aria-label"] or "" for _, a in reader.elements if a.get("role") == "img"]
    assert len(shown) == 5
    assert "two layers: from 0.1 at 30 to 1 at 2e3." in shown[-1]
    assert text.count('<figcaption class="refuted"><a href="#c0">') == 5
    assert "share of seeds" in text


def test_a_page_without_plots_has_no_section_for_them() -> None:
    assert 'id="pictures"' not in page(finding())
    assert 'id="pictures"' in page(pictured())


def test_ids_of_pictures_are_unique_on_the_page() -> None:
    reader = Reader(page(pictured(), pictured(id="A2")))
    ids = reader.values("id")
    assert len(ids) == len(set(ids))


def test_no_label_of_a_plot_becomes_markup() -> None:
    pictures = [
        replace(plot, title=HOSTILE, x=HOSTILE, y=HOSTILE,
                arrays={k if k == "edges" else HOSTILE + k: a for k, a in plot.arrays.items()})
        for plot in every_kind().values()
    ]  # fmt: skip
    reader = Reader(page(pictured(*pictures, Plot(HOSTILE, HOSTILE, {HOSTILE: np.ones(3)}))))
    assert len(reader.all("script")) == 1
    assert not reader.all("img")
    assert not any(name.startswith("on") for _, a in reader.elements for name in a)
    assert len(reader.all("image")) == 2


def test_a_run_with_twenty_plots_stays_under_three_megabytes() -> None:
    noise = np.clip(np.random.default_rng(0).normal(size=(1024, 1024)), -1, 1)
    pictures = [Plot(str(i), "map", {"c": np.roll(noise, i, 0)}) for i in range(8)]
    pictures += list(every_kind().values()) * 2
    text = page(pictured(*pictures))
    assert len(text.encode()) < 2e6
    assert len(Reader(text).all("figure")) == 18


def test_pictures_beyond_the_budget_are_counted_not_drawn() -> None:
    rows = [pictured()]
    whole = gallery.gallery({LARGE: rows})
    assert whole.left_out == 0
    part = gallery.gallery({LARGE: rows}, most=whole.bytes - 1)
    assert part.left_out == 1
    assert part.bytes < whole.bytes


def test_the_page_with_pictures_is_the_same_whenever_it_is_made() -> None:
    assert page(pictured()) == page(pictured())
