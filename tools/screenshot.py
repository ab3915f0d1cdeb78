"""Take the picture of the page in docs/img/serve.png: five drawn classes and a query.

    python tools/screenshot.py URL [--browser chromium]

URL is that of a running `mtnet serve`.
"""

import math
import shutil
from pathlib import Path
from typing import Annotated

import tyro
from playwright.sync_api import Locator, Page, expect, sync_playwright

OUT = Path(__file__).parent.parent / "docs" / "img" / "serve.png"
ROUND = [(0.5 + 0.38 * math.cos(t / 8), 0.5 + 0.38 * math.sin(t / 8)) for t in range(52)]
CLASSES = {
    "arrow": [[(0.1, 0.5), (0.9, 0.5)], [(0.6, 0.2), (0.9, 0.5), (0.6, 0.8)]],
    "circle": [ROUND],
    "ladder": [[(0.3, 0.1), (0.3, 0.9)], [(0.7, 0.1), (0.7, 0.9)], [(0.3, 0.35), (0.7, 0.35)]],
    "zigzag": [[(0.1, 0.15), (0.9, 0.15), (0.1, 0.85), (0.9, 0.85)]],
    "house": [[(0.2, 0.9), (0.2, 0.45), (0.5, 0.1), (0.8, 0.45), (0.8, 0.9), (0.2, 0.9)]],
}


def draw(
    page: Page, canvas: Locator, strokes: list[list[tuple[float, float]]], shift: float
) -> None:
    """Draw strokes; the shift moves every second corner."""
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    for stroke in strokes:
        for i, (x, y) in enumerate(stroke):
            place = (
                box["x"] + box["width"] * (x + shift * (i % 2)),
                box["y"] + box["height"] * (y - shift * ((i + 1) % 2)),
            )
            page.mouse.move(*place, steps=4)
            if i == 0:
                page.mouse.down()
        page.mouse.up()


def main(url: Annotated[str, tyro.conf.Positional], browser: str = "chromium") -> None:
    """Draw on the page and take its picture.

    Args:
        url: Address of the server.
        browser: Name of the program.
    """
    with sync_playwright() as playwright:
        program = playwright.chromium.launch(
            executable_path=shutil.which(browser), args=["--no-sandbox"]
        )
        page = program.new_page(viewport={"width": 1120, "height": 1000})
        page.goto(url)
        page.wait_for_selector("body[data-ready]")
        for i, (name, strokes) in enumerate(CLASSES.items()):
            page.locator("#cards input[type=text]").nth(i).fill(name)
            draw(page, page.locator("#cards canvas").nth(i), strokes, 0.0)
        expect(page.locator("#examples-after")).to_have_text("100 %", timeout=60000)
        for name in ("zigzag", "house"):
            page.locator("#query button", has_text="Clear").click()
            draw(page, page.locator("#query canvas"), CLASSES[name], 0.03)
            expect(page.locator("#answer")).to_have_attribute("data-label", name, timeout=60000)
        print(page.locator("#answer").text_content(), page.locator("#time").text_content())
        page.screenshot(path=OUT, full_page=True)
        program.close()


if __name__ == "__main__":
    tyro.cli(main)
