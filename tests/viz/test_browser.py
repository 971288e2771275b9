"""Two explorers on one page under file://, turned by a real keyboard in a real browser."""

from pathlib import Path

import pytest

from labcore.viz import bar_table, explore, heat_table, line_svg

CHROMIUM = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium"),
]
WIDTHS = [2, 4, 8, 16, 32]
WORDS = [f"word{n}" for n in range(14)]


def cell(d_k, scaled):
    values = [[d_k / 64 if scaled else -d_k / 64] * len(WORDS)] * 3
    return heat_table(values, columns=WORDS, vmax=1, caption=f"d_k is {d_k}")


def curve(slope):
    return line_svg({"y": [0, slope, 2 * slope]}, [0, 1, 2], ylim=(0, 8), caption="a & b")


def tall(n):
    return bar_table({f"row {i}": i for i in range(1, n + 1)})


EXPLORERS = [
    explore(cell, start={"d_k": 8, "scaled": True}, title="A", scaled=[False, True], d_k=WIDTHS),
    explore(curve, slope=[1, 2, 4]),
    explore(tall, n=[2, 9, 3]),
]
EXPLORERS.append(EXPLORERS[0])  # the same twice: same id, still two players
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>t</title>
<meta name="viewport" content="width=device-width"><body style="margin:8px">{}</body></html>"""


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    body = "<p>between</p>".join(explorer.to_html() for explorer in EXPLORERS)
    path.write_text(PAGE.format(body), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def open_page(browser, address):
    """A function that opens the page; at the end nothing may have been logged or fetched."""
    contexts, problems = [], []

    def opened(**settings):
        context = browser.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda r: r.url.startswith("file:") or problems.append(r.url))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


def player(page, index):
    return page.locator(".labx-player").nth(index)


def normal(page, markup):
    """The browser's own way of writing this HTML."""
    script = "text => { const box = document.createElement('div'); box.innerHTML = text;"
    return page.evaluate(script + " return box.innerHTML }", markup)


def shown(page, index):
    return player(page, index).locator(".labx-view").inner_html()


def is_at(page, index, **point):
    return shown(page, index) == normal(page, EXPLORERS[index].frame(**point))


def test_every_dial_turns_by_keyboard_to_the_frame_python_makes(open_page):
    page = open_page()
    assert is_at(page, 0, d_k=8, scaled=True)
    scaled, width = player(page, 0).locator("input").all()
    for on, key in ((False, "Home"), (True, "End")):
        scaled.focus()
        page.keyboard.press(key)
        width.focus()
        page.keyboard.press("Home")
        for d_k in WIDTHS:
            assert is_at(page, 0, d_k=d_k, scaled=on)
            assert width.get_attribute("aria-valuetext") == str(d_k)
            page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowLeft")
        assert is_at(page, 0, d_k=16, scaled=on)
    assert is_at(page, 1, slope=1)
    assert is_at(page, 3, d_k=8, scaled=True)


def test_second_explorer_and_the_twin_turn_alone(open_page):
    page = open_page()
    player(page, 1).locator("input").focus()
    for slope in (1, 2, 4):
        assert is_at(page, 1, slope=slope)
        page.keyboard.press("ArrowRight")
    player(page, 3).locator("input").last.focus()
    page.keyboard.press("End")
    assert is_at(page, 3, d_k=32, scaled=True)
    assert is_at(page, 0, d_k=8, scaled=True)


def test_tab_reaches_dials_and_button_in_their_order(open_page):
    page = open_page()
    seen = []
    for _ in range(3):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert seen == ["scaled", "d_k", "play scaled"]


def test_a_screen_reader_hears_the_point_and_the_caption(open_page):
    page = open_page()
    live = player(page, 0).locator("[aria-live=polite]")
    assert live.inner_text() == ""
    player(page, 0).locator("input").last.focus()
    page.keyboard.press("Home")
    assert live.inner_text() == "scaled = on, d_k = 2: d_k is 2"
    assert player(page, 0).get_attribute("role") == "group"
    assert player(page, 0).get_attribute("aria-label") == "A"


def test_play_walks_to_the_end_and_stops(open_page):
    page = open_page()
    page.clock.install()
    button = player(page, 1).locator("button")
    assert button.get_attribute("aria-label") == "play slope"
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-label") == "pause"
    page.clock.run_for(800)
    assert is_at(page, 1, slope=2)
    page.clock.run_for(800)
    assert is_at(page, 1, slope=4)
    assert button.get_attribute("aria-label") == "play slope"
    page.clock.run_for(5000)
    assert is_at(page, 1, slope=4)
    page.keyboard.press("Space")  # at the end it starts over
    assert is_at(page, 1, slope=1)
    page.keyboard.press("Space")
    page.clock.run_for(5000)
    assert is_at(page, 1, slope=1)


def test_play_walks_the_dial_that_was_turned_last_and_turning_stops_it(open_page):
    page = open_page()
    page.clock.install()
    scaled, width = player(page, 0).locator("input").all()
    scaled.focus()
    page.keyboard.press("Home")
    button = player(page, 0).locator("button")
    assert button.get_attribute("aria-label") == "play scaled"
    width.focus()
    page.keyboard.press("Home")
    assert button.get_attribute("aria-label") == "play d_k"
    button.click()
    page.clock.run_for(800)
    assert is_at(page, 0, d_k=4, scaled=False)
    scaled.focus()
    page.keyboard.press("End")
    page.clock.run_for(5000)
    assert is_at(page, 0, d_k=4, scaled=True)


def test_who_asks_for_less_motion_gets_no_play_button(open_page):
    page = open_page(reduced_motion="reduce")
    assert page.locator(".labx-play").count() == 0
    player(page, 1).locator("input").focus()
    page.keyboard.press("End")
    assert is_at(page, 1, slope=4)


def test_without_script_the_start_frame_is_there(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    text = player(page, 0).inner_text()
    assert "d_k is 8" in text
    assert "Run this cell" in text
    context.close()


def test_with_script_the_hint_is_gone(open_page):
    assert "Run this cell" not in open_page().locator("body").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_a_wide_frame_scrolls_inside_its_own_box(open_page, scheme):
    page = open_page(viewport={"width": 390, "height": 700}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    box = player(page, 0).locator(".labx-view")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    width = player(page, 0).locator("input").last.bounding_box()
    assert width["x"] >= 0
    assert width["x"] + width["width"] <= 390


def test_text_below_does_not_jump_back_when_a_frame_is_smaller(open_page):
    page = open_page()
    box = player(page, 2).locator(".labx-view")
    player(page, 2).locator("input").focus()
    page.keyboard.press("ArrowRight")
    high = box.bounding_box()["height"]
    page.keyboard.press("ArrowRight")
    assert is_at(page, 2, n=3)
    assert box.bounding_box()["height"] == pytest.approx(high, abs=1)


def test_labels_show_the_value_and_captions_are_text(open_page):
    page = open_page()
    assert player(page, 0).locator("output").all_inner_texts() == ["on", "8"]
    assert "a & b" in player(page, 1).inner_text()
