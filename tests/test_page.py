"""The page of `mtnet serve` in a real browser."""

import math

import numpy as np
import pytest
from browser import draw_shapes, open_page
from serving import ANY, serving


@pytest.fixture(scope="module")
def server():
    networks = (ANY, "sine-mt-net", "sine-maml")
    with serving("--networks", *networks) as running:
        yield running


@pytest.fixture
def page(server):
    with open_page(f"http://127.0.0.1:{server.port}/") as page:
        yield page


def test_five_shapes_are_drawn_and_one_is_recognised_when_it_is_drawn_again(page):
    from playwright.sync_api import expect

    draw_shapes(page, timeout=90000)
    expect(page.locator("#truth")).to_have_value("square")
    page.locator("#add-test").click()
    expect(page.locator("#tests-after")).to_have_text("1 of 1", timeout=90000)
    with page.expect_download() as download:
        page.locator("#download").click()
    assert download.value.suggested_filename == "model.safetensors"


def test_the_keyboard_is_enough_and_a_phone_is_wide_enough(page):
    from playwright.sync_api import expect

    page.set_viewport_size({"width": 360, "height": 700})
    moves = {0: ["ArrowRight"] * 6, 1: ["ArrowDown"] * 6, 2: ["ArrowLeft"] * 4 + ["ArrowDown"] * 4}
    for i, keys in moves.items():
        page.locator("#cards canvas").nth(i).focus()
        for key in ("Space", *keys, "Space"):
            page.keyboard.press(key)
    expect(page.locator("#examples-after")).to_have_text("100 %", timeout=90000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#tab-classes").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#curve")).to_be_visible()
    expect(page.locator("#classes")).to_be_hidden()


def test_points_of_a_curve_are_clicked_and_fitted(page):
    from playwright.sync_api import expect

    page.locator("#tab-curve").click()
    plot = page.locator("#plots svg.plot").first
    box = plot.bounding_box()
    for x in np.linspace(-4.5, 4.5, 10):
        y = 3 * math.sin(x + 0.5)
        page.mouse.click(
            box["x"] + box["width"] * (x / 5 + 1) / 2, box["y"] + box["height"] * (1 - y / 6) / 2
        )
    answer = page.locator("#curve-answer")
    expect(answer).to_contain_text("on 10 points after 10 steps", timeout=90000)

    def loss(step):
        page.locator("#step").fill(str(step))
        expect(answer).to_contain_text(f"after {step} steps")
        words = answer.text_content().split("; ")
        return {w.split(":")[0]: float(w.split("loss ")[1].split()[0]) for w in words}

    before, after = loss(0), loss(10)
    assert after["MT-net"] < 0.1 * before["MT-net"]
    assert after["MAML"] < before["MAML"]
