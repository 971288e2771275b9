"""Dials: their frames, their bytes, what they refuse, and the view in a kernel."""

import json
import re

import pytest

from labcore.viz import bar_table, explore, heat_table

WIDTHS = [2, 4, 8]


def render(d_k, scaled):
    return heat_table([[d_k if scaled else -d_k, 0.5]], caption=f"at {d_k}")


def dials(**more):
    return explore(render, **{"d_k": WIDTHS, "scaled": [False, True], **more})


def data_of(page):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.S)[1])


def test_every_frame_on_the_page_is_what_python_renders():
    shown = dials(start={"d_k": 4, "scaled": True})
    data = data_of(shown.to_html())
    assert [dial["name"] for dial in data["dials"]] == ["d_k", "scaled"]
    assert data["dials"][1]["labels"] == ["off", "on"]
    assert data["start"] == [1, 1]
    points = [(d_k, scaled) for d_k in WIDTHS for scaled in (False, True)]
    assert data["frames"] == [render(*point) for point in points]
    assert shown.frames() == {point: render(*point) for point in points}
    assert shown.frame(scaled=False, d_k=8) == render(8, False)


def test_frames_stand_one_on_each_line():
    lines = dials().to_html().splitlines()
    assert sum(line.startswith('"<table') for line in lines) == 6


def test_same_dials_give_the_same_bytes_and_other_dials_another_id():
    first, second, other = dials().to_html(), dials().to_html(), dials(title="t").to_html()
    assert first == second
    ids = [re.search(r'id="(labx-[0-9a-f]{12})"', page)[1] for page in (first, other)]
    assert ids[0] != ids[1]


def test_start_is_the_first_value_of_each_dial_and_shows_without_script():
    shown = dials()
    assert shown.start == {"d_k": 2, "scaled": False}
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", shown.to_html(), flags=re.S)
    assert render(2, False) in bare
    assert "d_k = 2, scaled = off" in bare


def test_page_asks_for_nothing_from_elsewhere():
    assert not re.search(r"(src|href)\s*=|https?://|@import|url\(", dials().to_html())


def test_player_and_style_stay_small():
    overhead = len(dials().to_html().encode()) - sum(len(f) for f in dials().frames().values())
    assert overhead < 8_000


def test_text_that_could_end_the_script_element_is_harmless():
    shown = explore(lambda x: f"<table><tr><td>{x}</td></tr></table><!-- <i></i> -->", x=["a", "b"])
    page = shown.to_html()
    block = page.split('<script type="application/json">')[1].split("</script>")[0]
    assert "<!--" not in block
    assert "</" not in block
    assert data_of(page)["frames"] == list(shown.frames().values())


def test_title_is_escaped():
    page = dials(title="a < b & c").to_html()
    assert "a &lt; b &amp; c" in page
    assert "a < b" not in page


def test_bundle_has_all_three_faces():
    bundle = dials(title="Widths")._repr_mimebundle_()
    assert bundle["text/plain"] == (
        "Explorer 'Widths': d_k in 2, 4, 8; scaled in off, on; start d_k = 2, scaled = off"
    )
    assert "labx-player" in bundle["text/html"]
    assert set(bundle) >= {"text/html", "text/plain"}


def sliders(widget):
    return [child for child in widget.children if hasattr(child, "options")]


def view(widget):
    return widget.children[-1].value


def test_live_view_follows_its_sliders():
    widget = dials().widget()
    width, scaled = sliders(widget)
    assert [label for label, _ in scaled.options] == ["off", "on"]
    for d_k in WIDTHS:
        for on in (False, True):
            width.value, scaled.value = d_k, on
            assert render(d_k, on) in view(widget)


def test_live_slider_takes_values_that_the_page_does_not_have():
    shown = dials(live={"d_k": range(2, 513)})
    widget = shown.widget()
    sliders(widget)[0].value = 77
    assert render(77, False) in view(widget)
    assert len(shown.frames()) == 6


def test_error_of_render_is_shown_in_the_live_view():
    def fragile(n):
        if n == 3:
            raise ValueError("three <is> not even")
        return bar_table({"n": n})

    widget = explore(fragile, n=[2, 4], live={"n": [2, 3, 4]}).widget()
    sliders(widget)[0].value = 3
    assert "ValueError: three &lt;is&gt; not even" in view(widget)


def test_two_live_views_of_one_explorer_do_not_touch_each_other():
    shown = dials()
    first, second = shown.widget(), shown.widget()
    sliders(first)[0].value = 8
    assert sliders(second)[0].value == 2


def test_tensors_and_arrays_serve_as_dial_values():
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    for values in (numpy.array([2, 4]), torch.tensor([2, 4])):
        assert explore(lambda n: bar_table({"n": n}), n=values).grid == {"n": [2, 4]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_k": []}, "d_k: got 0 values; allowed: at least 2 values"),
        ({"d_k": [2]}, "d_k: got 1 values; allowed: at least 2 values"),
        ({"d_k": [2, 4, 2]}, "d_k: got 2 twice"),
        ({"d_k": [1, True]}, "d_k: got equal values"),
        ({"d_k": 4}, "d_k: got 4; allowed: a list of values"),
        ({"d_k": "abc"}, "d_k: got 'abc'; allowed: a list of values"),
        ({"d_k": [[1], [2]]}, r"d_k: got \[1\]; allowed: numbers, texts, booleans"),
        ({"d_k": range(21)}, "dials: got 42 points; allowed: at most 40 points"),
        ({"third": [1, 2]}, "dials: got d_k, scaled, third; allowed: 1 to 2 dials"),
        ({"start": {"d_k": 2}}, "start: got d_k; allowed: a dictionary with one value for each of"),
        ({"start": {"d_k": 3, "scaled": True}}, "start: got d_k = 3; allowed: 2, 4, 8"),
        ({"start": {"d_k": 2, "scale": 1}}, "start: got d_k, scale; allowed"),
        ({"start": 2}, "start: got 2; allowed: a dictionary"),
        ({"live": {"width": [1, 2]}}, "live: got 'width'; allowed: d_k, scaled"),
        ({"live": {"d_k": [2, 4, 16]}}, "live: got d_k without 8; allowed: every value"),
        ({"d_k": range(10**9)}, "d_k: got more than 40 values; allowed: at most 40 values"),
        ({"live": {"d_k": range(10**9)}}, "live: got|d_k: got more than 1000 values"),
        ({"live": [1, 2]}, "live: got list; allowed: a dictionary"),
    ],
)
def test_bad_dials_are_refused_before_anything_is_rendered(settings, message):
    def never(d_k, scaled, third=None):
        raise AssertionError("rendered")

    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        explore(never, **{"d_k": WIDTHS, "scaled": [False, True], **settings})


def test_no_dial_is_refused():
    with pytest.raises(ValueError, match="^dials: got none; allowed: 1 to 2 dials"):
        explore(lambda: "<table></table>")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("text", "render: got str; allowed: a function"),
        (lambda: "", r"render: got parameters \(\); allowed: parameters n"),
        (lambda n, k: "", r"render: got parameters \(n, k\); allowed: parameters n "),
        (lambda m: "", r"render: got parameters \(m\)"),
        (lambda n: 3, "render: got int at n = 1; allowed: a string of HTML"),
        (lambda n: None, "render: got NoneType at n = 1"),
        (lambda n: " \n", "render: got an empty string at n = 1"),
        (lambda n: "<table></table><script>1</script>", "render: got '<script' at n = 1"),
        (lambda n: '<img src="data:image/png;base64,AA">', "render: got '<img' at n = 1"),
        (lambda n: '<svg><image href="data:image/png,A"/></svg>', "render: got '<image'"),
        (lambda n: "<table onclick='x()'></table>", "render: got '<table onclick='"),
        (lambda n: "<table></table><object></object>", "render: got '<object'"),
        (lambda n: "<table></table><link href=//x.org>", "render: got '<link'"),
        (lambda n: "<table></table><a href='//x.org'>", "render: got .<a href="),
        (lambda n: "<!--<table>-->", "render: got a frame without a table"),
        (
            lambda n: "<table></table>" if n == 1 else "2",
            "render: got a frame without a table at n",
        ),
        (lambda n: "<svg></svg>", "render: got a frame without a table at n = 1"),
    ],
)
def test_bad_render_is_refused(wrong, message):
    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        explore(wrong, n=[1, 2])


def test_render_that_is_not_a_function_of_its_dials_is_refused():
    calls = []

    def forgetful(n):
        calls.append(n)
        return bar_table({"calls": len(calls)})

    with pytest.raises(ValueError, match="^render: got two frames at n = 1; allowed: the same"):
        explore(forgetful, n=[1, 2])


def test_point_outside_the_grid_is_refused():
    with pytest.raises(ValueError, match="^point: got d_k = 3; allowed: 2, 4, 8"):
        dials().frame(d_k=3, scaled=True)
