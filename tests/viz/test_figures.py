"""Figures: what is drawn, that no word is cut, that bytes repeat, and what is refused."""

import io
import itertools

import matplotlib
import numpy
import pytest
import torch
from PIL import Image

from labcore.viz import attention_lines, bars, curves, heatmap, histograms, panels, theme
from labcore.viz.style import PALETTE, STYLE, WIDEST, styled

NAN, INF = float("nan"), float("inf")
SENTENCE = [
    "the",
    "animal",
    "did",
    "not",
    "cross",
    "the",
    "street",
    "because",
    "it",
    "was",
    "far",
    "too",
    "tired",
    "to",
    "walk",
    "on",
]
GENERATOR = numpy.random.default_rng(3)
MAPS = GENERATOR.dirichlet(numpy.ones(len(SENTENCE)), size=(4, len(SENTENCE)))
X = [1, 2, 4, 8]

EXAMPLES = {
    "heatmap": lambda: heatmap(MAPS[0], SENTENCE, SENTENCE, xlabel="key", label="weight"),
    "signed": lambda: heatmap([[1.0, -2.0]], columns=["头", "b"]),
    "attention_lines": lambda: attention_lines(SENTENCE, MAPS, 8, heads="abcd", title="it"),
    "chinese": lambda: attention_lines(["注", "意"], [0.5, 0.5], 0),
    "curves": lambda: curves(X, {"a": [[1, 2, 3, 4]] * 3}, xlabel="n", ylabel="loss", log_y=True),
    "histograms": lambda: histograms({"a": [1.0, 2.0], "b": [1.5]}, xlabel="score"),
    "bars": lambda: bars(["a", "b"], {"x": [1, -2], "y": [0.5, 1]}, ylabel="loss"),
}


@pytest.fixture(params=EXAMPLES)
def example(request, caplog, recwarn):
    """A function that makes the figure; no glyph may be missing and nothing logged on the way."""
    yield EXAMPLES[request.param]
    assert [str(warning.message) for warning in recwarn] == []
    assert [r.getMessage() for r in caplog.get_records("call")] == []


def pixels(picture):
    return numpy.asarray(Image.open(io.BytesIO(picture._repr_png_())).convert("RGB"))


def test_bytes_repeat(example):
    assert example()._repr_png_() == example()._repr_png_()


def test_look_does_not_depend_on_what_was_set_before(example):
    expected = example()._repr_png_()
    with matplotlib.rc_context({"font.size": 20, "figure.facecolor": "red", "figure.dpi": 72}):
        assert example()._repr_png_() == expected
        assert matplotlib.rcParams["font.size"] == 20


def test_fits_the_page_on_an_opaque_white_ground(example):
    image = Image.open(io.BytesIO(example()._repr_png_()))
    assert image.width <= 620
    array = numpy.asarray(image.convert("RGBA"))
    assert (array[..., 3] == 255).all()
    corners = array[[0, 0, -1, -1], [0, -1, 0, -1], :3]
    assert (corners == 255).all()


def test_nothing_is_drawn_over_the_edge(example):
    array = pixels(example())
    for edge in (array[0], array[-1], array[:, 0], array[:, -1]):
        assert (edge == 255).all()


def test_no_plotting_state_is_left_behind(example):
    from matplotlib import pyplot

    example()._repr_png_()
    assert pyplot.get_fignums() == []


def test_heatmap_shows_its_numbers_in_their_places():
    picture = heatmap([[0.25, 0.5], [0.75, 1.0]], ["q0", "q1"], ["k0", "k1"], label="weight")
    ax, bar = picture.axes
    assert [text.get_text() for text in ax.texts] == ["0.25", "0.50", "0.75", "1.00"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["q0", "q1"]
    assert bar.get_ylabel() == "weight"
    assert ax.images[0].get_clim() == (0.0, 1.0)


def test_heatmap_of_signed_numbers_is_centred_at_zero():
    assert heatmap([[1.0, -3.0]]).axes[0].images[0].get_clim() == (-3.0, 3.0)


def test_heatmap_mask_hides_what_is_not_finite():
    scores = torch.tensor([[1.0, -INF], [2.0, 3.0]])
    picture = heatmap(scores, mask=torch.isfinite(scores))
    drawn = picture.axes[0].images[0].get_array()
    assert drawn.mask.tolist() == [[False, True], [False, False]]
    assert [text.get_text() for text in picture.axes[0].texts] == ["1.00", "2.00", "3.00"]


def overlap(first, second):
    return (
        min(first.x1, second.x1) - max(first.x0, second.x0) > 0.5
        and min(first.y1, second.y1) - max(first.y0, second.y0) > 0.5
    )


@pytest.mark.parametrize("count", [2, 7, 16])
@pytest.mark.parametrize("heads", [1, 4])
def test_attention_words_are_neither_cut_nor_on_top_of_each_other(count, heads):
    words = [*SENTENCE[: count - 1], "an_unreasonably_long_token_of_forty_signs"]
    weights = MAPS[:heads, 0, :count] / 2
    picture = attention_lines(words, weights, count - 1, title="t")
    picture.draw_without_rendering()
    renderer = picture.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in picture.axes[0].texts]
    assert len(boxes) == 2 * count
    width, height = picture.get_size_inches() * 100
    for box in boxes:
        assert 0 <= box.x0 < box.x1 <= width
        assert 0 <= box.y0 < box.y1 <= height
    assert not any(overlap(a, b) for a, b in itertools.combinations(boxes, 2))


def test_attention_lines_takes_a_row_a_map_and_several_heads_of_either():
    query, count = 8, len(SENTENCE)
    for weights in (MAPS[0, query], MAPS[0], MAPS[:1, query], MAPS[:1]):
        picture = attention_lines(SENTENCE, weights, query)
        lines = picture.axes[0].lines
        assert len(lines) == count
        widths = [line.get_linewidth() for line in lines]
        assert widths == pytest.approx(0.4 + 4.6 * MAPS[0, query])
        assert [line.get_ydata()[0] for line in lines] == [query] * count


def test_curves_draw_all_seeds_their_mean_and_the_reference():
    runs = [[4, 3, 2, 1], [4, 2, 2, 2], [4, 4, 2, 3]]
    ax = curves(
        X, {"a": runs}, reference={"1/n": [1, 0.5, 0.25, 0.125]}, xlabel="n", ylabel="y", log_x=True
    ).axes[0]
    drawn = [line.get_ydata().tolist() for line in ax.lines]
    assert drawn == [*runs, [4.0, 3.0, 2.0, 2.0], [1, 0.5, 0.25, 0.125]]
    assert ax.get_xscale() == "log"
    ax.figure.draw_without_rendering()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "4", "8"]


def test_histograms_are_shares_and_lose_nothing():
    ax = histograms({"a": [-50.0, 0.1, 0.2, 99.0]}, xlabel="x", limits=(0, 1), bins=4).axes[0]
    assert ax.patches[0].get_data().values.tolist() == [0.75, 0, 0, 0.25]


def test_bars_stand_at_their_labels_with_their_numbers():
    ax = bars(["a", "b"], [0.5, -1.25], ylabel="y").axes[0]
    assert [bar.get_height() for bar in ax.patches] == [0.5, -1.25]
    assert [text.get_text() for text in ax.texts] == ["0.50", "-1.25"]


def test_helpers_draw_into_the_axis_they_are_given():
    picture, axes = panels(1, 2)
    assert heatmap([[1.0]], ax=axes[0]) is picture
    assert curves(X, {"a": X}, xlabel="x", ylabel="y", ax=axes[1]) is picture


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: heatmap([[NAN]]), r"values: got nan at index \[0, 0\]; allowed: finite numbers"),
        (lambda: heatmap([[-INF, 1]]), "values: got -inf"),
        (lambda: heatmap([[1, 2]], columns=["a"]), "columns: got 1 labels; allowed: 2"),
        (lambda: heatmap([[1, 2]], mask=[[1, 0]]), "mask: got int64 of shape"),
        (lambda: heatmap([[1, 2]], mask=[[True]]), r"mask: got bool of shape \[1, 1\]"),
        (lambda: heatmap([[1, 2]], vmin=5), "vmin: got 5; allowed: less than vmax = 2"),
        (lambda: curves(X, {"a": [1, 2, NAN, 3]}, xlabel="", ylabel=""), r"series\['a'\]: got nan"),
        (lambda: curves(X, {"a": [1, 2]}, xlabel="", ylabel=""), r"series\['a'\]: got 2 numbers"),
        (lambda: curves(X, {}, xlabel="", ylabel=""), "series: got 0; allowed: 1 to 6"),
        (
            lambda: curves(X, {"a": [0, 1, 2, 3]}, xlabel="", ylabel="", log_y=True),
            r"series\['a'\]: got 0; allowed: positive numbers",
        ),
        (
            lambda: curves([0, 1], {"a": [1, 2]}, xlabel="", ylabel="", log_x=True),
            "x: got 0; allowed: positive numbers",
        ),
        (lambda: histograms({"a": [INF]}, xlabel=""), r"samples\['a'\]: got inf"),
        (lambda: histograms({}, xlabel=""), "samples: got 0"),
        (lambda: bars(["a"], [NAN], ylabel=""), r"series\[''\]: got nan"),
        (lambda: bars(["a"], [1, 2], ylabel=""), r"series\[''\]: got 2 numbers; allowed: 1"),
        (lambda: panels(width=7), "width: got 7; allowed: at most 6.2 inches"),
        (lambda: attention_lines(["a", "b"], [0.5, NAN], 0), "weights: got nan"),
        (lambda: attention_lines(["a", "b"], [0.5, 1.5], 0), "weights: got 0.5 to 1.5"),
        (lambda: attention_lines(["a", "b"], [0.5, 0.5], 2), "query: got 2; allowed: a position"),
        (lambda: attention_lines(["a", "b"], [0.5, 0.5], -1), "query: got -1"),
        (lambda: attention_lines(["a", "b"], [0.5, 0.2, 0.3], 0), r"weights: got shape \[3\]"),
        (lambda: attention_lines(["a", "b"], numpy.zeros((7, 2)), 0), "weights: got 7 heads"),
        (
            lambda: attention_lines(["a", "b"], [0.5, 0.5], 0, heads="xy"),
            "heads: got 2 labels; allowed: 1",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_theme_sets_the_look_for_all_figures_made_later():
    with matplotlib.rc_context():
        theme()
        assert matplotlib.rcParams["figure.facecolor"] == "white"
        assert matplotlib.rcParams["figure.figsize"][0] <= WIDEST


def linear(colour):
    rgb = numpy.array(matplotlib.colors.to_rgb(colour))
    return numpy.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(first, second):
    low, high = sorted(linear(c) @ [0.2126, 0.7152, 0.0722] for c in (first, second))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", PALETTE)
def test_palette_is_seen_on_white_and_on_black(colour):
    assert contrast(colour, "white") >= 3
    assert contrast(colour, "#121212") >= 3


@pytest.mark.parametrize(("text", "ground"), [("#222832", "#ffffff"), ("#ced6dd", "#121212")])
@pytest.mark.parametrize("colour", PALETTE[:2])
def test_numbers_in_the_strongest_cell_are_readable_in_both_modes(text, ground, colour):
    mixed = 0.62 * numpy.array(matplotlib.colors.to_rgb(colour))
    mixed = mixed + 0.38 * numpy.array(matplotlib.colors.to_rgb(ground))
    assert contrast(text, tuple(mixed)) >= 4.5


# How the three kinds of dichromats see linear RGB (Machado et al. 2009, severity 1.0).
BLINDNESS = {
    "none": numpy.eye(3),
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def lab(rgb):
    """CIE L*a*b* of linear RGB."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    scaled = numpy.clip(to_xyz @ rgb, 0, None) / [0.9505, 1.0, 1.089]
    root = numpy.where(scaled > 0.008856, numpy.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return numpy.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("kind", BLINDNESS)
def test_first_four_colours_are_told_apart_with_every_kind_of_sight(kind):
    seen = [lab(numpy.array(BLINDNESS[kind]) @ linear(colour)) for colour in PALETTE[:4]]
    apart = [numpy.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)]
    assert min(apart) > 10


def test_style_has_no_setting_that_matplotlib_does_not_know():
    assert set(STYLE) <= set(matplotlib.rcParams)
    with styled():
        assert matplotlib.rcParams["svg.hashsalt"] == "labcore"
