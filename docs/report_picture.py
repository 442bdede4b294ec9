"""Makes docs/report.png, the picture in the README, from the pages of `tacit demo`.

    tacit demo && python docs/report_picture.py

Both pages as a browser shows them, side by side.
"""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 596, 900
SCALE = 0.72  # two pages in the width of one
PAGES = ("report.html", "report.local.html")
FRAME = "margin:0;display:flex;gap:8px;background:#c9c5ba"


def shot(browser: Any, path: Path) -> str:
    """The top of a page, as data for an image."""
    viewport = {"width": round(WIDTH / SCALE), "height": round(HEIGHT / SCALE)}
    page = browser.new_page(viewport=viewport, device_scale_factor=SCALE, color_scheme="light")
    page.goto(path.absolute().as_uri())
    page.wait_for_function("[...document.querySelectorAll('.plot')].every(p => p.data)")
    page.evaluate("document.getElementById('gains')?.scrollIntoView({behavior: 'instant'})")
    page.wait_for_timeout(300)
    return "data:image/png;base64," + base64.b64encode(page.screenshot()).decode()


def main() -> None:
    """Writes docs/report.png."""
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        images = "".join(f"<img src='{shot(browser, Path('out/demo') / name)}'>" for name in PAGES)
        page = browser.new_page(viewport={"width": 2 * WIDTH + 8, "height": HEIGHT})
        page.set_content(f"<body style='{FRAME}'>{images}</body>")
        page.screenshot(path="docs/report.png")
        browser.close()


if __name__ == "__main__":
    main()
