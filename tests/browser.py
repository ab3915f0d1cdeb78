"""A real browser, and shapes to draw in it."""

import math
import shutil
from contextlib import contextmanager

import numpy as np
import pytest

FIVE_SHAPES = {
    "line": [[(0.1, 0.1), (0.9, 0.9)]],
    "cross": [[(0.1, 0.5), (0.9, 0.5)], [(0.5, 0.1), (0.5, 0.9)]],
    "vee": [[(0.1, 0.1), (0.5, 0.9), (0.9, 0.1)]],
    "square": [[(0.15, 0.15), (0.85, 0.15), (0.85, 0.85), (0.15, 0.85), (0.15, 0.15)]],
    "circle": [
        [(0.5 + 0.4 * math.cos(t), 0.5 + 0.4 * math.sin(t)) for t in np.linspace(0, 6.3, 30)]
    ],
}
BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")


@contextmanager
def open_page(address):
    """A page at an address, when it is ready; it may load nothing from elsewhere."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser: install one of {', '.join(BROWSERS)}")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 900})
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        yield page
        browser.close()
    assert not errors
    assert all(url.startswith((address, "data:")) for url in requests)


def draw_shapes(page, timeout):
    """Draw five shapes, wait until they are learned, and draw two of them again as queries."""
    from playwright.sync_api import expect

    names = page.locator("#cards input[type=text]")
    for i, (name, strokes) in enumerate(FIVE_SHAPES.items()):
        names.nth(i).fill(name)
        draw(page, page.locator("#cards canvas").nth(i), strokes)
    learned = "Learned 5 examples. Draw a query."
    expect(page.locator("#answer")).to_have_text(learned, timeout=timeout)
    expect(page.locator("#examples-after")).to_have_text("100 %")
    for name in ("vee", "square"):
        page.locator("#query button", has_text="Clear").click()
        expect(page.locator("#seen")).to_be_hidden()  # what is below the canvas may move it
        draw(page, page.locator("#query canvas"), FIVE_SHAPES[name], 0.05)
        expect(page.locator("#answer")).to_have_attribute("data-label", name, timeout=timeout)
    expect(page.locator("#seen-image")).to_be_visible()


def draw(page, canvas, strokes, shift=0.0):
    """Strokes in parts of the canvas; a shift moves every second corner."""
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    for stroke in strokes:
        corners = [
            (
                box["x"] + box["width"] * (x + shift * (i % 2)),
                box["y"] + box["height"] * (y - shift * ((i + 1) % 2)),
            )
            for i, (x, y) in enumerate(stroke)
        ]
        page.mouse.move(*corners[0])
        page.mouse.down()
        for corner in corners[1:]:
            page.mouse.move(*corner, steps=2)
        page.mouse.up()
