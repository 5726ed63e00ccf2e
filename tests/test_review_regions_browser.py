"""Regions, zoom, marks and two results on the review page, by the hands of a reader: mouse, fingers, keys, files."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import numpy as np
import pytest
from _hearts import LOWERED, N_FRAMES, write_hearts
from _results import make_result

pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[dev]'")
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from test_review_browser import PATIENCE_S, assert_clean, browser, press, slide, wait_for_frame  # noqa: F401

from usdehaze.review import build_review
from usdehaze.validation.regions import polygon_mask


@pytest.fixture(scope="module")
def hearts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hearts")
    first, second, roi = write_hearts(folder)
    return build_review(first, folder / "a.html", roi, against=second), first, roi


@pytest.fixture
def page(browser, hearts):  # noqa: F811
    """The page of two results, freshly opened; nothing may be left in the console, and nothing asked of a network."""
    browser.get(hearts[0].as_uri())
    wait_for_frame(browser, 0)
    yield browser
    assert browser.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)") == []
    assert_clean(browser)


def text(page, name):
    return page.find_element(By.ID, name).text


def place(page, x, y, name="input"):
    """Where a native pixel is on the screen, (x, y) in CSS pixels of the window."""
    script = """
        const [u, v] = view.toPicture(arguments[0], arguments[1]);
        const box = document.querySelectorAll(`#figure-${arguments[2]} canvas`)[1].getBoundingClientRect();
        return [box.left + (zoom.x + zoom.scale * u) * box.width, box.top + (zoom.y + zoom.scale * v) * box.height];"""
    return page.execute_script(script, x, y, name)


def mouse(page, kind, x, y, **more):
    how = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1, **more}
    page.execute_cdp_cmd("Input.dispatchMouseEvent", how)


def click_at(page, x, y):
    at = place(page, x, y)
    for kind in ("mousePressed", "mouseReleased"):
        mouse(page, kind, *at)


def drawn(page):
    return page.execute_script("return regionsDocument().regions")


def polygon(page, index):
    """The corners of a region, not rounded for the file."""
    return page.execute_script("return drawn[arguments[0]].polygon", index)


def levels(page, name, frame):
    """One plane of a frame, ``(H, W)``, as the page has it after its sliders."""
    script = """
        const done = arguments[2];
        planesOf(arguments[1]).then((planes) => done(Array.from(scaled(planes, state)[arguments[0]])));"""
    return np.reshape(page.execute_async_script(script, name, frame), (128, 128))


def test_a_region_is_drawn_by_clicks_in_the_frame_shown_and_counts_at_once(page):
    page.find_element(By.ID, "on").click()
    wait_for_frame(page, 1)
    page.execute_script("drawn.length = 0; regionsChanged()")
    for name, value in (("draw-role", "faint"), ("draw-frames", "one")):
        page.execute_script("document.getElementById(arguments[0]).value = arguments[1]", name, value)
    page.find_element(By.ID, "draw").click()
    corners = [(30, 60), (70, 60), (70, 100), (50, 112)]
    for corner in (*corners, corners[0]):  # a click on the first corner closes
        click_at(page, *corner)
    (region,) = drawn(page)
    assert (region["role"], region["frames"]) == ("faint", [1])
    assert np.abs(np.subtract(region["polygon"], corners)).max() < 0.6
    n_pixels = int(polygon_mask(np.array(polygon(page, 0)), (128, 128)).sum())
    assert text(page, "live-says") == f"Frame 2; pixels: faint {n_pixels}."
    page.find_element(By.ID, "on").click()
    wait_for_frame(page, 2)
    assert "no region in this frame" in text(page, "live-says")
    assert text(page, "other-frames") == "1 more region in frame 2"


def test_a_corner_that_is_dragged_moves_its_region_and_the_figures_with_it(page):
    before = polygon(page, 0)
    start, end = place(page, *before[2]), place(page, 90, 100)
    mouse(page, "mouseMoved", *start)
    mouse(page, "mousePressed", *start)
    mouse(page, "mouseMoved", *np.add(start, 5), buttons=1)
    mouse(page, "mouseMoved", *end, buttons=1)
    mouse(page, "mouseReleased", *end)
    after = polygon(page, 0)
    assert after[:2] == before[:2] and after[3:] == before[3:] and np.abs(np.subtract(after[2], (90, 100))).max() < 0.6
    n_pixels = int(polygon_mask(np.array(after), (128, 128)).sum())
    assert f"pixels: tissue {n_pixels}, haze" in text(page, "live-says")


def test_keys_draw_and_give_up_a_region(page):
    n_regions = len(drawn(page))
    press(page, "n")
    for corner in ((30, 60), (70, 60), (60, 80), (70, 100)):
        click_at(page, *corner)
    press(page, Keys.BACKSPACE, Keys.ENTER)
    assert len(drawn(page)) == n_regions + 1 and len(drawn(page)[-1]["polygon"]) == 3
    press(page, "n")
    click_at(page, 30, 60)
    press(page, Keys.ESCAPE)
    assert len(drawn(page)) == n_regions + 1
    assert page.find_element(By.ID, "draw").get_attribute("aria-pressed") == "false"


def test_the_list_holds_the_regions_of_the_frame_shown_and_folds_the_others(page):
    names = "return [...document.querySelectorAll('#region-list input')].map((e) => e.value)"
    assert page.execute_script(names) == ["wall 1", "chamber"]
    summary = page.find_element(By.CSS_SELECTOR, "#other-frames summary")
    assert summary.text == f"{N_FRAMES - 1} more regions in {N_FRAMES - 1} other frames"
    assert page.execute_script("return document.querySelectorAll('#other-frames button').length") == 0
    page.execute_script("arguments[0].click()", summary)
    script = "return [...document.querySelectorAll('#other-frames button')].map((e) => e.textContent)"
    WebDriverWait(page, PATIENCE_S).until(lambda b: b.execute_script(script))
    assert page.execute_script(script) == ["2", "3", "4", "5", "6", "7", "8"]
    page.execute_script("document.querySelectorAll('#other-frames button')[3].click()")
    wait_for_frame(page, 4)
    assert page.execute_script(names) == ["wall 5", "chamber"]
    page.execute_script("document.querySelector('#region-list button').click()")  # removes wall 5 and no other
    assert [region["name"] for region in drawn(page)] == [f"wall {n}" for n in (1, 2, 3, 4, 6, 7, 8)] + ["chamber"]


def test_regions_go_out_as_the_json_of_roi_and_come_back_as_they_were(page, hearts, tmp_path):
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    page.find_element(By.ID, "export").click()
    saved = tmp_path / "rois.json"
    WebDriverWait(page, PATIENCE_S).until(lambda _: saved.exists() and saved.stat().st_size)
    document = json.loads(saved.read_text())
    assert document == json.loads(hearts[2].read_text())
    edited = {"regions": document["regions"][:1]}
    (tmp_path / "edited.json").write_text(json.dumps(edited))
    chooser = page.find_element(By.ID, "import-file")
    chooser.send_keys(str(tmp_path / "edited.json"))
    WebDriverWait(page, PATIENCE_S).until(lambda b: text(b, "regions-say") == "1 region imported.")
    assert drawn(page) == edited["regions"]
    edited["regions"][0]["polygon"][0] = [400, 3]
    (tmp_path / "bad.json").write_text(json.dumps(edited))
    chooser.send_keys(str(tmp_path / "bad.json"))
    WebDriverWait(page, PATIENCE_S).until(lambda b: "leaves the frame of 128 × 128 pixels" in text(b, "regions-say"))
    assert len(drawn(page)) == 1


def zoom_of(page):
    return page.execute_script("return [zoom.scale, zoom.x, zoom.y]")


def test_the_wheel_zooms_all_pictures_where_it_points_and_dragging_moves_them(page):
    point = place(page, 60, 90)  # the wheel's own place is rounded to a pixel
    mouse(page, "mouseWheel", *point, deltaX=0, deltaY=-400, button="none")
    WebDriverWait(page, PATIENCE_S).until(lambda b: zoom_of(b)[0] > 1)
    assert zoom_of(page)[0] == pytest.approx(2) and place(page, 60, 90) == pytest.approx(point, abs=1)
    assert page.execute_script("return scrollY") == 0 and text(page, "zoom-says") == "2.0 ×"
    point = place(page, 60, 90)
    moved = [point[0] - 30, point[1] - 20]
    mouse(page, "mousePressed", *point)
    mouse(page, "mouseMoved", *moved, buttons=1)
    mouse(page, "mouseReleased", *moved)
    assert place(page, 60, 90) == pytest.approx(moved, abs=0.1)
    moves = page.execute_script("return pictures.map(({canvas}) => canvas.style.transform)")
    assert len(moves) == 7 and len(set(moves)) == 1
    press(page, "0")
    assert zoom_of(page) == [1, 0, 0]


def test_two_fingers_zoom_about_the_place_between_them(page):
    x, y = place(page, 60, 90)

    def touch(kind, *offsets):
        points = [{"x": x + offset, "y": y, "id": k} for k, offset in enumerate(offsets)]
        page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", -20)
    touch("touchStart", -20, 20)
    for spread in (30, 40, 50):
        touch("touchMove", -spread, spread)
    WebDriverWait(page, PATIENCE_S).until(lambda b: zoom_of(b)[0] > 2.4)
    touch("touchEnd")
    assert zoom_of(page)[0] == pytest.approx(2.5, abs=0.05) and place(page, 60, 90) == pytest.approx([x, y], abs=2)
    assert page.execute_script("return [visualViewport.scale, fingers.size]") == [1, 0]


DATA_OF = """
    const dataOf = (canvas) => {
      const {width, height} = canvas;
      const copy = Object.assign(document.createElement('canvas'), {width, height});
      const context = copy.getContext('2d', {willReadFrequently: true});
      context.drawImage(canvas, 0, 0);
      return context.getImageData(0, 0, width, height).data;
    };"""


def compared(page, first, second):
    """How many values of the first picture are below, and above, those of the second."""
    script = """
        const [a, b] = [...arguments].map((name) => dataOf(document.querySelector(`#figure-${name} canvas`)));
        return [a.filter((value, i) => value < b[i]).length, a.filter((value, i) => value > b[i]).length];"""
    return page.execute_script(DATA_OF + script, first, second)


def overlay_is_pink(page):
    script = """
        const data = dataOf(document.querySelectorAll('#figure-tissue canvas')[1]);
        let n = 0;
        for (let i = 0; i < data.length; i += 4) n += data[i] > 230 && data[i + 1] < 110 && data[i + 2] > 190;
        return n;"""
    return page.execute_script(DATA_OF + script) > 20


def test_frames_at_risk_are_listed_from_1_and_one_click_or_key_away(page):
    buttons = page.find_elements(By.CSS_SELECTOR, "#risk-list button")
    assert [button.text for button in buttons] == ["2–3", "6–8"]
    assert text(page, "risk-count") == "Structure at risk in 5 of 8 frames, look at:"
    assert text(page, "risk-here") == "Frame 1: no mark." and not overlay_is_pink(page)
    buttons[1].click()
    wait_for_frame(page, LOWERED[1])
    assert text(page, "risk-here") == "Frame 6: taken away, unlike the frame before." and overlay_is_pink(page)
    assert [button.get_attribute("aria-pressed") for button in buttons] == ["false", "true"]
    press(page, "m")
    assert not overlay_is_pink(page)
    press(page, "m", ".")
    wait_for_frame(page, 6)
    assert text(page, "risk-here") == "Frame 7: taken away." and overlay_is_pink(page)
    for frame in (5, 2):
        press(page, ",")
        wait_for_frame(page, frame)
    assert text(page, "risk-here") == "Frame 3: unlike the frame before."


def test_two_results_stand_side_by_side_with_what_differs_and_follow_the_same_frame_and_sliders(page):
    press(page, "v", "v", "v")
    shown = [e.get_attribute("id") for e in page.find_elements(By.CSS_SELECTOR, "figure") if e.is_displayed()]
    assert shown == ["figure-tissue", "figure-other_tissue", "figure-removed", "figure-other_removed"]
    assert page.find_element(By.CSS_SELECTOR, "#figure-other_tissue .which").text == "seed 4"
    assert text(page, "differences").splitlines()[-1] == "seed 3 4"
    press(page, *[Keys.ARROW_RIGHT] * 5)
    wait_for_frame(page, 5)
    inside = polygon_mask(np.array(polygon(page, 5)), (128, 128))
    row = page.find_element(By.CSS_SELECTOR, '#live tr[data-figure="mean_tissue_db"]').find_elements(By.TAG_NAME, "td")
    for cell, name in zip((row[0], row[1], row[3]), ("input", "tissue", "other_tissue"), strict=True):
        mean_db = (levels(page, name, 5)[inside].mean() / 255 - 1) * 60
        assert float(cell.get_attribute("data-value")) == pytest.approx(mean_db, abs=1e-9)
    darker, brighter = compared(page, "tissue", "other_tissue")
    assert darker > 500 and brighter == 0
    hazy, kept = levels(page, "input", 5), levels(page, "other_tissue", 5)
    slide(page, "strength", 50)
    half = levels(page, "other_tissue", 5)
    assert np.abs(half - (hazy + kept) / 2).max() <= 0.5 and np.array_equal(
        levels(page, "other_removed", 5), hazy - half
    )
    slide(page, "strength", 0)
    assert compared(page, "tissue", "other_tissue") == [0, 0]
    slide(page, "strength", 100)
    ActionChains(page).key_down("b").perform()
    assert compared(page, "tissue", "other_tissue") == [0, 0]
    ActionChains(page).key_up("b").perform()
    assert compared(page, "tissue", "other_tissue") == [darker, 0]
    press(page, "v")
    assert page.find_element(By.ID, "figure-input").is_displayed()


def test_the_page_says_what_follows_the_frame_and_what_does_not(page):
    assert "ignores regions drawn or changed on this page" in text(page, "metrics-says")
    assert text(page, "histograms-say") == "Follows the frame shown, the sliders and regions drawn here."
    page.execute_script("document.getElementById('histogram-all').click()")
    assert "follows neither the frame shown, the sliders nor regions drawn here" in text(page, "histograms-say")


@pytest.mark.parametrize(("width", "rows"), [(1920, 1), (1280, 1), (800, 2)])
def test_pictures_fill_the_window_in_one_row_or_two_and_nothing_scrolls_sideways(page, width, rows):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for view, n_shown in (("side", 4), ("two", 4), ("haze", 2)):  # without a spread
            page.find_element(By.ID, f"view-{view}").click()
            boxes = [e.rect for e in page.find_elements(By.CSS_SELECTOR, "#stage .picture") if e.is_displayed()]
            assert len(boxes) == n_shown and len({box["width"] for box in boxes}) == 1
            assert len({box["y"] for box in boxes}) == (rows if n_shown == 4 else 1)
            assert page.execute_script("return document.documentElement.scrollWidth") <= width
        assert boxes[0]["width"] > 0.25 * width
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_paper_says_which_frame_it_shows_and_how(page):
    press(page, Keys.ARROW_RIGHT, "g")
    wait_for_frame(page, 1)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        page.execute_script("dispatchEvent(new Event('beforeprint'))")
        gain = page.execute_script("return byId('haze-gain-says').textContent")
        expected = f"Frame 2 of 8, 0.02 s. Range 60 dB, gain +1 dB, haze gain {gain}, removal 100 %, zoom 1.0 ×."
        assert text(page, "printed") == expected
        assert page.find_element(By.ID, "risk-list").is_displayed()
        assert not page.find_element(By.ID, "play").is_displayed()
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_review_serve_is_a_command_that_saves_regions_for_whoever_has_the_token_until_it_is_interrupted(tmp_path):
    result = tmp_path / "a.dehazed.h5"
    make_result(result)
    command = [sys.executable, "-m", "usdehaze", "review", str(result), "--serve", "--port", "0", "--no-open"]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    served = subprocess.Popen(command, **how, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        address = served.stdout.readline().split()[0]
        host, token = address.rstrip("/").rsplit("/", 1)
        assert host.startswith("http://127.0.0.1:") and len(token) >= 32
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            assert b"<title>usdehaze review</title>" in answer.read()
        for wrong in (f"{host}/", f"{host}/{'x' * len(token)}/"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(wrong, timeout=PATIENCE_S)
        regions = {"regions": [{"name": "wall", "role": "faint", "polygon": [[1, 1], [9, 1], [9, 9]]}]}
        with urllib.request.urlopen(f"{address}regions", json.dumps(regions).encode(), timeout=PATIENCE_S) as answer:
            assert answer.read() == b"1 region saved: a.rois.json"
        assert json.loads((tmp_path / "a.rois.json").read_text()) == regions
        served.send_signal(signal.SIGINT)
        said, complained = served.communicate(timeout=PATIENCE_S)
        assert (served.returncode, complained) == (130, "usdehaze: stopped\n")
        assert said == f"{tmp_path / 'a.rois.json'} saved\n"
    finally:
        served.kill()
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=5)
