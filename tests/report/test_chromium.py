"""The pages in a real browser: headless Chromium, from the file system."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars
import pytest
from report_examples import example, save_with_facts

import tacit
from tacit.privacy.budget import Budget
from tacit.report.local_view import measure, write_local
from tacit.report.pages import write_pages
from tacit.tasks import TaskSet, as_schema

SHOTS = Path("out/screenshots")
PAGES = ("public", "local", "covariance", "crowded")
WAYS_TO_MARK = "path.point, .bars path, .heatmaplayer image, .barlayer path, .scatterlayer path"
Open = Callable[..., Any]


@pytest.fixture
def paths(fitted_folder: Path, covariance_folder: Path, crowded_folder: Path) -> dict[str, Path]:
    return {
        "public": fitted_folder / "report.html",
        "local": fitted_folder / "report.local.html",
        "covariance": covariance_folder / "report.html",
        "crowded": crowded_folder / "report.local.html",
    }


class Opened:
    """A page in the browser, and all that it complained about or asked for."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.trouble: list[str] = []
        self.page = browser.new_page()
        self.address = path.as_uri()
        self.page.on("console", lambda said: self.trouble.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("dialog", lambda dialog: self.trouble.append(f"dialog: {dialog.message}"))
        self.page.on("request", self._asked)
        self.look(1100, "light")
        self.page.goto(self.address)
        drawn = "[...document.querySelectorAll('.plot')].every(p => p.data)"
        self.page.wait_for_function(drawn)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.address):
            self.trouble.append(request.url)

    def look(self, width: int, scheme: Literal["light", "dark"]) -> Any:
        """On a screen of this width, where the system likes light or dark."""
        self.page.emulate_media(media="screen", color_scheme=scheme)
        self.page.set_viewport_size({"width": width, "height": 860})
        self.page.wait_for_timeout(150)  # plots follow the width
        return self.page


@pytest.fixture(scope="module")
def kept(browser: Any) -> Iterator[dict[Path, Opened]]:
    """Pages stay open between tests: reading plotly takes most of the time."""
    pages: dict[Path, Opened] = {}
    yield pages
    for each in pages.values():
        each.page.close()


@pytest.fixture
def opened(browser: Any, kept: dict[Path, Opened], paths: dict[str, Path]) -> Iterator[Open]:
    """Opens a page and fails, at the end, if it complained or asked for anything."""
    used = []

    def opening(
        name: str | Path, width: int = 1100, scheme: Literal["light", "dark"] = "light"
    ) -> Any:
        path = name if isinstance(name, Path) else paths[name]
        if path not in kept:
            kept[path] = Opened(browser, path)
        used.append(kept[path])
        return kept[path].look(width, scheme)

    yield opening
    assert [trouble for each in used for trouble in each.trouble] == []


@pytest.fixture(autouse=True, scope="module")
def shots() -> None:
    """Whichever test of this worker is the first to need it."""
    SHOTS.mkdir(parents=True, exist_ok=True)


def colour(page: Any, selector: str, name: str = "backgroundColor") -> str:
    return str(page.eval_on_selector(selector, f"e => getComputedStyle(e).{name}"))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_a_complaint_or_a_request_and_draws_its_plots(
    name: str, opened: Open
) -> None:
    page = opened(name)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
    plots = page.query_selector_all(".plot")
    assert len(plots) >= 2
    for plot in plots:
        assert len(plot.query_selector_all(WAYS_TO_MARK)) >= 1, plot.get_attribute("id")


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_shows_the_page_without_sideways_scroll(name: str, opened: Open) -> None:
    page = opened(name, width=390, scheme="dark")
    page.screenshot(path=SHOTS / f"{name}-390-dark.png", full_page=True)
    page.eval_on_selector_all("details", "all => all.forEach(e => { e.open = true; })")
    wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.evaluate(wide)
    assert page.evaluate("document.querySelector('.plot').clientWidth") > 300


def test_the_button_switches_the_theme_of_text_and_plots(opened: Open) -> None:
    page = opened("local")
    before = colour(page, "body"), colour(page, "body", "color"), colours_of_plots(page)
    page.click("#theme")
    after = colour(page, "body"), colour(page, "body", "color"), colours_of_plots(page)
    assert all(old != new for old, new in zip(before, after, strict=True))
    assert set(before[2]).isdisjoint(after[2])
    page.click("#theme")
    again = colour(page, "body"), colour(page, "body", "color"), colours_of_plots(page)
    assert again == before
    page.evaluate("delete document.documentElement.dataset.theme")


FILLS = """[...document.querySelectorAll('.plot .xtitle, .plot .gtitle, .plot .barlayer path')]
    .map(e => getComputedStyle(e).fill)"""


def colours_of_plots(page: Any) -> list[str]:
    return list(page.evaluate(FILLS))


def test_the_system_theme_is_followed_until_the_button_is_pressed(opened: Open) -> None:
    page = opened("public", scheme="dark")
    dark = colour(page, "body"), colours_of_plots(page)
    page.emulate_media(color_scheme="light")
    assert colour(page, "body") != dark[0]
    # The browser tells the page of it in its own time; if the plots never follow, this times out.
    page.wait_for_function(f"before => String({FILLS}) !== before", arg=",".join(dark[1]))


def test_the_table_behind_a_plot_opens_from_the_keyboard(opened: Open) -> None:
    page = opened("public")
    page.eval_on_selector_all("details", "all => all.forEach(e => { e.open = false; })")
    assert not page.is_visible("figure table")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('figure summary')"):
            break
    page.keyboard.press("Enter")
    assert page.is_visible("figure table")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('figure .scroll')")


def test_the_local_page_says_whose_it_is_on_every_screen(opened: Open) -> None:
    page = opened("local", width=390)
    height = page.evaluate("document.documentElement.scrollHeight")
    for top in range(0, height, 700):
        page.evaluate(f"window.scrollTo({{top: {top}, behavior: 'instant'}})")
        box = page.locator(".banner").bounding_box()
        assert box is not None
        assert -1 <= box["y"] < 1, top
        seen = page.evaluate("document.elementFromPoint(195, 12).className")
        assert seen == "banner", top
    assert "Private view" in page.inner_text(".banner")


def test_the_public_page_has_no_such_banner(opened: Open) -> None:
    assert opened("public").query_selector(".banner") is None


def test_a_print_keeps_the_banner_and_is_light(opened: Open) -> None:
    page = opened("local", scheme="dark")
    dark = colours_of_plots(page)
    page.emulate_media(media="print")
    page.wait_for_timeout(100)
    assert page.is_visible(".banner")
    assert colour(page, ".banner", "display") == "table-header-group"  # so on every sheet
    assert colour(page, ".banner", "breakInside") == "avoid"  # without it Chromium repeats nothing
    assert page.is_hidden("nav")
    assert page.is_hidden("#theme")
    assert brightness(colour(page, "body")) > 0.9
    assert colours_of_plots(page) != dark
    assert page.evaluate("document.querySelector('.plot .main-svg').clientWidth") <= 640
    printed = SHOTS / "local.pdf"
    printed.write_bytes(page.pdf(format="A4"))
    if (reader := shutil.which("pdftotext")) is not None:
        done = subprocess.run([reader, printed, "-"], capture_output=True, text=True, check=True)
        sheets = done.stdout.rstrip("\f").split("\f")
        assert len(sheets) > 2
        assert all("Private view of the trusted side" in sheet for sheet in sheets)


def brightness(rgb: str) -> float:
    return float(np.mean([int(part) for part in rgb[4:-1].split(",")])) / 255


def test_the_page_has_landmarks_labels_and_headings_in_order(opened: Open) -> None:
    page = opened("local")
    for landmark in ("header", "nav", "main", "footer"):
        assert len(page.query_selector_all(landmark)) == 1
    levels = page.eval_on_selector_all("h1,h2,h3", "all => all.map(e => +e.tagName[1])")
    assert levels[0] == 1
    assert all(new - old <= 1 for old, new in pairwise(levels))
    for role in ("[role=img]", "[role=region]"):
        labels = page.eval_on_selector_all(role, "all => all.map(e => e.ariaLabel)")
        assert labels
        assert all(labels)
    for inside in ("figcaption", "details table caption"):
        there = f"all => all.map(e => e.querySelector('{inside}') !== null)"
        assert all(page.eval_on_selector_all("figure", there))


CONTRASTS = """() => {
  const linear = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = rgb => 0.2126 * linear(rgb[0]) + 0.7152 * linear(rgb[1]) + 0.0722 * linear(rgb[2]);
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const ground = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.matches("script, style, noscript")) continue;
    const style = getComputedStyle(e);
    const svg = e.namespaceURI.endsWith("svg");
    const pair = [light(parse(svg ? style.fill : style.color)), light(ground(e))];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    found.push([ratio, e.textContent.slice(0, 40)]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_every_text_as_rendered_has_enough_contrast(
    name: str, scheme: Literal["light", "dark"], opened: Open
) -> None:
    page = opened(name, scheme=scheme)
    page.eval_on_selector_all("details", "all => all.forEach(e => { e.open = true; })")
    found = page.evaluate(CONTRASTS)
    assert len(found) > 40
    assert [pair for pair in found if pair[0] < 4.5] == []


def test_hostile_names_stay_names(opened: Open, tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>"
    names = [hostile[0], hostile[1] + 60 * "w", "@first", "<b>w</b>"]
    data = example(n_tasks=12)
    frame = polars.DataFrame(dict(zip(names, data.X.T, strict=True)))
    labels = np.array([f"<a href='http://example.org/{i}'>@second" for i in range(12)])
    model = tacit.MeanRegularized(budget=Budget(5.0), noise="simulated", random_state=0)
    model.fit(frame, data.y, task=labels[data.task])
    schema = as_schema(None, names)
    training = TaskSet.from_arrays(frame, data.y, labels[data.task], schema=schema)
    folder = save_with_facts(model, tmp_path, column="<b>bold</b>")
    write_local(measure(model, training, training, schema), folder)
    for path in write_pages(folder):
        page = opened(path, width=390)
        wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert page.evaluate(wide)
        assert page.query_selector(".plot a, main img, main script") is None
    mean = opened(folder / "report.html")
    assert "@first" in mean.inner_text("#mean")
    assert "<img src=x" in mean.inner_text("#mean")
    assert "<b>w</b>" in mean.inner_text("#mean")  # plotly would make it bold


def test_what_the_tests_above_look_at_can_fail(opened: Open) -> None:
    page = opened("public", width=390)
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<hr style=width:800px>')")
    assert page.evaluate("document.documentElement.scrollWidth") > 390
    page.evaluate("document.querySelector('hr').remove()")
    page.evaluate("document.documentElement.style.setProperty('--quiet', '#b0b0b0')")
    assert [pair for pair in page.evaluate(CONTRASTS) if pair[0] < 4.5]
    page.evaluate("document.documentElement.style.removeProperty('--quiet')")


@pytest.mark.parametrize(
    "harm", ["<img src='https://example.org/x.png'>", "<script>missing()</script>"]
)
def test_a_request_or_an_error_would_be_noticed(
    harm: str, browser: Any, paths: dict[str, Path], tmp_path: Path
) -> None:
    """And the page's own policy stops the request before it leaves."""
    text = paths["public"].read_text(encoding="utf-8")
    start = text.index("<script>/**")
    light = text[:start] + harm + "</body></html>"
    (tmp_path / "harmed.html").write_text(light.replace('class="plot"', ""), encoding="utf-8")
    assert Opened(browser, tmp_path / "harmed.html").trouble
