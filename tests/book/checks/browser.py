"""The built site in a real browser whose network is cut: what fails, moves, or is too wide."""

import contextlib
import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

from playwright.sync_api import TimeoutError, sync_playwright

# The theme declares this name twice; nothing on the page depends on it.
KNOWN = "Identifier 'THEBE_JS_URL' has already been declared"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTHS = (1280, 390)
MODES = ("light", "dark")
LEAST_CONTRAST = 4.5
ASKED = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Nothing: the tests say what matters."""


@contextlib.contextmanager
def served(folder):
    """Address of a folder, served on this machine while the `with` block runs."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextlib.contextmanager
def launched():
    """A headless Chromium; a sentence says what to install where there is none."""
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if not program:
        raise FileNotFoundError("no Chromium: install your system's package, or set CHROMIUM")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=flags)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One page, open in a browser that reaches nothing but the served folder."""

    def __init__(self, browser, base, path, width=1280, mode="light"):
        self.path, self.mode, self.faults = path, mode, []
        window = {"width": width, "height": 900}
        self.context = browser.new_context(viewport=window, color_scheme=mode)
        stored = f"localStorage.setItem('mode', '{mode}'); localStorage.setItem('theme', '{mode}');"
        self.context.add_init_script(stored + ASKED)
        self.base = base
        self.context.route("**/*", self._route)
        self.page = self.context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self._error(str(error)))
        self.page.on("response", self._response)
        self.page.goto(f"{base}/{path}", wait_until="load")
        self.page.evaluate("() => window.MathJax?.startup?.promise")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def ask(self, function, *given):
        """What a function of `page.js` answers."""
        return self.page.evaluate(f"given => bookChecks.{function}(...given)", list(given))

    def resize(self, width):
        """Gives the window another width, as a reader who turns a phone does."""
        self.page.set_viewport_size({"width": width, "height": 900})

    def fault(self, text):
        window = self.page.viewport_size["width"]
        self.faults.append(f"{self.path} ({window} px, {self.mode}): {text}")

    def _route(self, route):
        url = route.request.url
        if url.startswith((self.base, "data:", "blob:")):
            return route.continue_()
        self.fault(f"asks the network for {url}")
        return route.abort()

    def _console(self, message):
        if message.type == "error":
            self._error(message.text)

    def _error(self, text):
        if KNOWN not in text:
            self.fault(f"error: {text[:200]}")

    def _response(self, response):
        if response.status >= 400 and not response.url.endswith("favicon.ico"):
            self.fault(f"{response.status} for {response.url.removeprefix(self.base)}")


def maths(visit):
    """Adds faults of formulas that are still source text, or that the renderer refuses."""
    for text in visit.ask("unrendered"):
        visit.fault(f"formula not rendered: {text!r}")
    for text in visit.ask("refused"):
        visit.fault(f"formula refused: {text!r}")


def width(visit):
    """Adds a fault when the page scrolls sideways, naming what sticks out."""
    wide = visit.ask("wide")
    if wide:
        visit.fault(f"scrolls sideways, {wide}")


def colours(visit, mode):
    """Adds faults of a mode that does not show, and of dial text too faint to read."""
    theme = visit.page.evaluate("() => document.documentElement.dataset.theme")
    if theme and theme != mode:
        visit.fault(f"the theme is {theme}, not {mode}")
    for text, contrast in visit.ask("faint", LEAST_CONTRAST):
        visit.fault(f"contrast {contrast:.1f} of {text!r}; at least {LEAST_CONTRAST}")


def dials(visit, expected, ends_only=False):
    """Adds faults of dials: each turned by keyboard through all its frames, compared with Python's.

    `expected` is what the notebook holds, by the explorer's id: dials, start and frames.
    """
    page = visit.page
    visit.ask("openFolded")
    for name, data in expected.items():
        if page.locator(f"#{name}").count() != 1:
            visit.fault(f"explorer {name} stands {page.locator(f'#{name}').count()} times")
            continue
        sliders = page.locator(f"#{name} input[type=range]")
        if sliders.count() != len(data["dials"]):
            visit.fault(f"explorer {name} has {sliders.count()} sliders, not {len(data['dials'])}")
            continue
        _compare(visit, name, data, data["start"])
        _tab(visit, name, len(data["dials"]))
        if ends_only:
            _turn_to_ends(visit, name, data, sliders)
        else:
            _turn_all(visit, name, data, sliders)


def _tab(visit, name, count):
    """Adds a fault when the Tab key does not lead from one slider to the next."""
    page = visit.page
    page.locator(f"#{name} input[type=range]").first.focus()
    for index in range(1, count):
        page.keyboard.press("Tab")
        at = visit.ask("focused", name)
        if at != index:
            visit.fault(f"explorer {name}: Tab leads to slider {at}, not {index}")


def _turn_all(visit, name, data, sliders):
    """Every point of the grid, reached by Home and arrow keys, in the order of the frames."""
    page, sizes = visit.page, [len(dial["labels"]) for dial in data["dials"]]
    for outer in range(sizes[0] if len(sizes) == 2 else 1):
        if len(sizes) == 2:
            sliders.nth(0).focus()
            page.keyboard.press("Home" if outer == 0 else "ArrowRight")
        sliders.nth(len(sizes) - 1).focus()
        for inner in range(sizes[-1]):
            page.keyboard.press("Home" if inner == 0 else "ArrowRight")
            _compare(visit, name, data, [outer, inner][-len(sizes) :])


def _turn_to_ends(visit, name, data, sliders):
    """The first and the last point of each dial; no frame may make the page scroll sideways."""
    point = list(data["start"])
    for index, dial in enumerate(data["dials"]):
        sliders.nth(index).focus()
        for key, place in (("Home", 0), ("End", len(dial["labels"]) - 1)):
            visit.page.keyboard.press(key)
            point[index] = place
            _compare(visit, name, data, point)
            width(visit)


def _compare(visit, name, data, point):
    """Adds a fault when the frame that shows is not the one that Python wrote for this point."""
    index = 0
    for place, dial in zip(point, data["dials"], strict=True):
        index = index * len(dial["labels"]) + place
    labels = [dial["labels"][place] for place, dial in zip(point, data["dials"], strict=True)]
    same, told = visit.ask("frame", name, data["frames"][index])
    if not same:
        visit.fault(f"explorer {name} at {', '.join(labels)}: not the frame that Python wrote")
    if told != labels:
        visit.fault(f"explorer {name}: says {told}, stands at {labels}")


def plays(visit, name):
    """Adds a fault when an explorer's play button, pressed by keyboard, moves nothing."""
    page, button = visit.page, visit.page.locator(f"#{name} button.labx-play")
    if not button.count():
        visit.fault(f"explorer {name} has no play button")
        return
    page.locator(f"#{name} input[type=range]").first.focus()
    page.keyboard.press("Home")
    button.focus()
    before = visit.ask("values", name)
    page.keyboard.press("Space")
    try:
        moved = "([name, before]) => bookChecks.values(name) !== before"
        page.wait_for_function(moved, arg=[name, before], timeout=4000)
    except TimeoutError:
        visit.fault(f"explorer {name}: the play button moves nothing")


def found(visit, term):
    """Titles of pages that the book's search finds for a term."""
    visit.page.goto(f"{visit.base}/search.html?q={term}", wait_until="load")
    with contextlib.suppress(TimeoutError):
        visit.page.wait_for_selector("#search-results li a", timeout=8000)
    return visit.page.locator("#search-results li a").all_inner_texts()
