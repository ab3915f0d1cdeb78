"""How long the page of the server takes from the end of a stroke to probabilities."""

import shutil
import statistics
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
LINES = [
    [(0.1, 0.1), (0.9, 0.9)],
    [(0.1, 0.5), (0.9, 0.5)],
    [(0.1, 0.1), (0.5, 0.9), (0.9, 0.1)],
    [(0.15, 0.15), (0.85, 0.15), (0.85, 0.85), (0.15, 0.85), (0.15, 0.15)],
    [(0.1, 0.1), (0.9, 0.1), (0.1, 0.9), (0.9, 0.9)],
]
"""One stroke per class, in parts of the canvas."""
WATCH = """() => {
  window.times = [];
  let lifted = null;
  window.addEventListener("pointerup", () => { lifted = performance.now(); }, true);
  new MutationObserver(() => {
    if (lifted === null || !/%$/.test(document.getElementById("answer").textContent)) return;
    const began = lifted;
    lifted = null;
    requestAnimationFrame(() => window.times.push(performance.now() - began));
  }).observe(document.getElementById("answer"), {childList: true, subtree: true});
}"""
"""Times from pointerup until the frame in which the answer is a percentage."""


def page_times(port: int, strokes: int) -> list[float] | str:
    """Milliseconds from pen lift to probabilities, or why they cannot be measured."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        return f"no browser: install one of {', '.join(BROWSERS)}"
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        return "playwright is not installed"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 1180, "height": 900}, bypass_csp=True)
            page.goto(f"http://127.0.0.1:{port}/")
            page.wait_for_selector("body[data-ready]")
            return _draw_all(page, strokes)
        finally:
            browser.close()


def _draw_all(page: Any, strokes: int) -> list[float]:
    for i, line in enumerate(LINES):
        _draw(page, page.locator("#cards canvas").nth(i), line)
    learned = f"document.getElementById('answer').textContent.includes('{len(LINES)} examples')"
    page.wait_for_function(learned, timeout=120_000)
    page.evaluate(WATCH)
    for i in range(strokes + 1):  # the first warms up
        page.locator("#query button", has_text="Clear").click()
        _draw(page, page.locator("#query canvas"), LINES[i % len(LINES)])
        page.wait_for_function(f"window.times.length > {i}", timeout=120_000)
    return [float(t) for t in page.evaluate("window.times")[1:]]


def _draw(page: Any, canvas: Any, line: list[tuple[float, float]]) -> None:
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    corners = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in line]
    page.mouse.move(*corners[0])
    page.mouse.down()
    for corner in corners[1:]:
        page.mouse.move(*corner, steps=4)
    page.mouse.up()


def page_row(port: int, strokes: int) -> dict[str, Any]:
    """The median, and the slowest of twenty in twenty-one, of some strokes."""
    found = page_times(port, strokes)
    if isinstance(found, str):
        return {"what": "pen lift to probabilities", "not_measured": found}
    slow = sorted(found)[min(len(found) - 1, round(0.95 * len(found)))]
    row = {"what": "pen lift to probabilities", "strokes": len(found)}
    return row | {"median_ms": statistics.median(found), "p95_ms": slow}
