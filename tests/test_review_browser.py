"""The review page in a real browser: what a person sees, moves and reads."""

import contextlib
import http.server
import json
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
from _results import POLAR, REGIONS, make_result
from scipy.ndimage import map_coordinates

from usdehaze.cine import Cartesian, Polar
from usdehaze.decibels import db_to_grey
from usdehaze.io import write_result
from usdehaze.review import ReviewServer, build_review
from usdehaze.validation.evaluate import region_figures
from usdehaze.validation.metrics import gcnr
from usdehaze.validation.regions import polygon_mask

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[dev]'")
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --force-device-scale-factor=1 --window-size=1400,1000"
)
FIRST_FRAME = 7
PATIENCE_S = 60  # a busy machine may take long; nothing is measured by the clock


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium, driver = next(filter(None, map(shutil.which, names)), None), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium with chromedriver here (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A page of a scan-converted result with regions, and the result."""
    folder = tmp_path_factory.mktemp("page")
    result = make_result(folder / "a.dehazed.h5", first_frame=FIRST_FRAME)
    (folder / "rois.json").write_text(json.dumps(REGIONS))
    return build_review(folder / "a.dehazed.h5", folder / "a.html", folder / "rois.json", with_screen=True), result


@pytest.fixture
def page(browser, made):
    """The page, freshly opened, its first frame on show."""
    browser.get(made[0].as_uri())
    wait_for_frame(browser, 0)
    return browser


def wait_for_frame(browser, frame):
    WebDriverWait(browser, PATIENCE_S, 0.02).until(lambda b: shown(b) == frame)


def shown(browser):
    return browser.execute_script("return 'shown' in document.body.dataset ? +document.body.dataset.shown : null")


def pixels(browser, name):
    """``(H, W, 3)`` of the picture as it is drawn."""
    script = """
        const canvas = document.querySelector('#figure-' + arguments[0] + ' canvas');
        const {width, height} = canvas;
        const copy = Object.assign(document.createElement('canvas'), {width, height});
        const context = copy.getContext('2d', {willReadFrequently: true});
        context.drawImage(canvas, 0, 0);
        return [width, height, Array.from(context.getImageData(0, 0, width, height).data)];"""
    width, height, data = browser.execute_script(script, name)
    return np.array(data, np.uint8).reshape(height, width, 4)[..., :3]


def greys(frame_db, range_db=60, gain_db=0):
    """What a frame in dB looks like, after the page's 8 bits: levels first, then range and gain."""
    db = (db_to_grey(frame_db, 60) / 255 - 1) * 60
    return np.floor(255 * np.clip(1 + (db + gain_db) / range_db, 0, 1) + 0.5).astype(np.uint8)


def slide(browser, name, value):
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"
    browser.execute_script(script, browser.find_element(By.ID, name), value)


def press(browser, *keys):
    ActionChains(browser).send_keys(*keys).perform()


def assert_clean(browser):
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def test_the_page_opens_without_a_word_in_the_console_and_shows_every_picture(page, made):
    result = made[1]
    for name, frames in (("input", result.cine.frames), ("tissue", result.tissue), ("haze", result.haze)):
        gain_db = float(page.find_element(By.ID, "haze-gain").get_attribute("value")) if name == "haze" else 0
        expected = greys(frames[0], gain_db=gain_db)
        assert np.array_equal(pixels(page, name), np.repeat(expected[..., None], 3, axis=2)), name
    removed = pixels(page, "removed").astype(int).sum(axis=2)
    untouched = db_to_grey(result.cine.frames[0], 60) == db_to_grey(result.tissue[0], 60)
    assert (removed[untouched] == 0).all() and (removed[~untouched] > 0).all()
    assert not page.find_element(By.ID, "trouble").is_displayed()
    assert_clean(page)


def test_dynamic_range_and_gain_remap_the_pixels(page, made):
    tissue = made[1].tissue[0]
    slide(page, "range", 35)
    assert np.array_equal(pixels(page, "tissue")[..., 0], greys(tissue, range_db=35))
    slide(page, "gain", -8)
    assert np.array_equal(pixels(page, "tissue")[..., 1], greys(tissue, range_db=35, gain_db=-8))
    assert page.find_element(By.ID, "range-says").text == "35 dB"
    assert page.find_element(By.ID, "gain-says").text == "−8 dB"
    page.find_element(By.ID, "reset").click()
    assert np.array_equal(pixels(page, "tissue")[..., 2], greys(tissue))


def test_the_colour_map_slider_changes_what_counts_as_the_brightest(page, made):
    before = pixels(page, "removed").astype(int)
    slide(page, "map-top", 4)
    after = pixels(page, "removed").astype(int)
    drop = (db_to_grey(made[1].cine.frames[0], 60).astype(int) - db_to_grey(made[1].tissue[0], 60)) * 60 / 255
    assert (after[drop >= 4] == [255, 246, 190]).all() and (before[drop < 15] != [255, 246, 190]).any(axis=1).all()


def test_the_player_plays_every_frame_loops_and_stops(page, made):
    page.find_element(By.ID, "play").click()
    seen = set()
    WebDriverWait(page, PATIENCE_S, 0.01).until(lambda b: seen.add(shown(b)) or seen == set(range(5)))
    assert page.find_element(By.ID, "play").get_attribute("aria-label") == "Pause"
    page.find_element(By.ID, "play").click()
    last = int(page.find_element(By.ID, "seek").get_attribute("value"))
    wait_for_frame(page, last)
    assert np.array_equal(pixels(page, "input")[..., 0], greys(made[1].cine.frames[last]))
    page.find_element(By.ID, "loop").click()
    page.find_element(By.ID, "play").click()
    wait_for_frame(page, 4)
    WebDriverWait(page, PATIENCE_S).until(lambda b: b.find_element(By.ID, "play").get_attribute("aria-label") == "Play")
    assert_clean(page)


def test_stepping_and_seeking_show_that_very_frame_numbered_as_in_the_source(page, made):
    slide(page, "haze-gain", 0)
    page.find_element(By.ID, "on").click()
    wait_for_frame(page, 1)
    assert np.array_equal(pixels(page, "haze")[..., 0], greys(made[1].haze[1]))
    page.find_element(By.ID, "back").click()
    page.find_element(By.ID, "back").click()
    wait_for_frame(page, 4)
    slide(page, "seek", 3)
    wait_for_frame(page, 3)
    assert np.array_equal(pixels(page, "tissue")[..., 0], greys(made[1].tissue[3]))
    assert page.find_element(By.ID, "frame-says").text == "frame 4 of 5 (11 in the source), 0.06 s"


def test_the_before_after_line_parts_input_from_tissue(page, made):
    page.find_element(By.ID, "view-wipe").click()
    assert not page.find_element(By.ID, "figure-input").is_displayed()
    slide(page, "wipe", 25)
    both, before, after = pixels(page, "wipe")[..., 0], greys(made[1].cine.frames[0]), greys(made[1].tissue[0])
    assert np.array_equal(both, np.concatenate([before[:, :12], after[:, 12:]], axis=1))
    picture = page.find_element(By.CSS_SELECTOR, "#figure-wipe .picture")
    quarter = picture.size["width"] // 4
    ActionChains(page).move_to_element(picture).click_and_hold().move_by_offset(quarter, 0).release().perform()
    assert float(page.find_element(By.ID, "wipe").get_attribute("value")) == pytest.approx(75, abs=1)
    assert np.array_equal(pixels(page, "wipe")[:, :35, 0], before[:, :35])


def test_holding_shows_the_input_in_place_of_the_tissue(page, made):
    before, after = greys(made[1].cine.frames[0]), greys(made[1].tissue[0])
    ActionChains(page).key_down("b").perform()
    assert np.array_equal(pixels(page, "tissue")[..., 0], before)
    assert page.find_element(By.CSS_SELECTOR, "#figure-tissue figcaption").text == "Input, held"
    ActionChains(page).key_up("b").perform()
    assert np.array_equal(pixels(page, "tissue")[..., 0], after)
    ActionChains(page).click_and_hold(page.find_element(By.ID, "blink")).perform()
    assert np.array_equal(pixels(page, "tissue")[..., 0], before)
    ActionChains(page).release().perform()
    assert np.array_equal(pixels(page, "tissue")[..., 0], after)


def test_everything_can_be_done_from_the_keyboard(page):
    def value(name):
        return float(page.find_element(By.ID, name).get_attribute("value"))

    press(page, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    wait_for_frame(page, 2)
    press(page, Keys.END)
    wait_for_frame(page, 4)
    press(page, Keys.HOME)
    wait_for_frame(page, 0)
    press(page, Keys.SPACE)
    WebDriverWait(page, PATIENCE_S, 0.02).until(lambda b: shown(b) not in (0, None))
    press(page, Keys.SPACE)
    assert page.find_element(By.ID, "play").get_attribute("aria-label") == "Play"
    press(page, "v", "]")
    assert page.find_element(By.ID, "figure-wipe").is_displayed() and value("wipe") == 55
    press(page, "D", "g", "g")
    assert (value("range"), value("gain")) == (55, 2)
    press(page, "0")
    assert (value("range"), value("gain"), value("wipe")) == (60, 0, 50)
    press(page, "-", "-", "l", "r")
    assert value("speed") == 0.25
    for name in ("loop", "outlines"):
        assert page.find_element(By.ID, name).get_attribute("aria-pressed") == "false"


def test_tab_reaches_every_control_with_a_visible_focus_and_arrows_move_the_focused_slider(page):
    script = """
        const e = document.activeElement, style = getComputedStyle(e), again = e === document.body || e.reached;
        e.reached = true;
        return [again, e.id, style.outlineStyle + style.outlineWidth]"""
    outlines = {}
    for _ in range(40):
        press(page, Keys.TAB)
        again, name, outline = page.execute_script(script)
        if again:
            break
        outlines[name] = outline
        if name == "gain":
            before = page.find_element(By.ID, "gain").get_attribute("value")
            press(page, Keys.ARROW_RIGHT)
            assert page.find_element(By.ID, "gain").get_attribute("value") == str(int(before) + 1) and shown(page) == 0
    controls = "view-side view-wipe blink outlines range gain map-top reset back play on seek speed loop"
    assert set(controls.split()) <= set(outlines)
    assert {outlines[name] for name in controls.split()} == {"solid3px"}


def test_every_picture_and_control_has_a_name_for_a_screen_reader(page):
    script = """
        return [...document.querySelectorAll('button, input, select, canvas[role=img], svg[role=img]')].filter((e) =>
          !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length)))
          .map((e) => e.outerHTML)"""
    assert page.execute_script(script) == []


def shown_number(value, digits, signed):
    """A number in the page's manner, made by other means."""
    text = f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "−")
    return text.lstrip("+−") if float(text.replace("−", "-")) == 0 else text


def test_the_numbers_in_the_table_are_those_of_the_metrics_json(page):
    metrics = page.execute_script("return JSON.parse(document.getElementById('metrics-json').textContent)")
    rows = {r.get_attribute("data-figure"): r for r in page.find_elements(By.CSS_SELECTOR, "#metrics tr[data-figure]")}
    assert set(rows) == set(metrics["summary"]) and len(rows) >= 7
    for name, entry in metrics["summary"].items():
        digits, shift = (2 if name.endswith("_db") else 3), name.endswith("_shift_db")
        cells = rows[name].find_elements(By.TAG_NAME, "td")
        for cell, part, signed in zip(cells, ("input", "tissue", "delta"), (False, shift, True), strict=False):
            if entry[part] is None:
                assert cell.text == "–"
            else:
                assert cell.text == shown_number(entry[part], digits, signed), (name, part)
                assert float(cell.get_attribute("data-value")) == entry[part]
        ends = [shown_number(end, digits, entry["delta"] is not None or shift) for end in entry["ci95"]]
        assert cells[3].text == " to ".join(ends)


def test_figures_say_of_how_many_frames_they_are_and_that_regions_were_eroded(browser, tmp_path):
    result = make_result(tmp_path / "a.dehazed.h5", Cartesian())
    result.tissue[1, 5:35, 26:44] = -60  # speckle of one value has no ratio
    write_result(tmp_path / "b.dehazed.h5", result)
    (tmp_path / "rois.json").write_text(json.dumps(REGIONS))
    page = build_review(tmp_path / "b.dehazed.h5", tmp_path / "b.html", tmp_path / "rois.json", margin_px=1)
    browser.get(page.as_uri())
    wait_for_frame(browser, 0)
    row = browser.find_element(By.CSS_SELECTOR, "#metrics tr[data-figure=speckle_snr_haze]")
    assert "over 4 of 5 frames" in row.text
    assert "of 5 frames" not in browser.find_element(By.CSS_SELECTOR, "#metrics tr[data-figure=gcnr]").text
    notes = browser.find_element(By.ID, "metrics-notes").text
    assert "pixels in a frame's regions, eroded by 1 pixels: tissue 392, haze 448" in notes


def test_gcnr_stands_beside_the_tissue_s_ks_and_mean_shift(page):
    rows = page.find_elements(By.CSS_SELECTOR, "#metrics tbody.company tr[data-figure]")
    assert [row.get_attribute("data-figure") for row in rows] == [
        "gcnr",
        "gcnr_corrected",
        "ks_tissue",
        "tissue_shift_db",
    ]
    assert all(row.is_displayed() for row in rows)


def test_histograms_of_all_frames_are_the_sums_of_those_of_each(page):
    sums, whole = page.execute_async_script("""
        const done = arguments[0];
        Promise.all([0, 1, 2, 3, 4].map(planesOf)).then((all) => {
          const each = all.map(histogramsOf);
          const sum = {};
          for (const place in each[0]) {
            sum[place] = {};
            for (const name in each[0][place]) {
              sum[place][name] = each[0][place][name].map((_, k) => each.reduce((s, h) => s + h[place][name][k], 0));
            }
          }
          done([sum, page.histograms]);
        });""")
    assert sums == whole and sum(whole["tissue"]["input"]) == 5 * 480
    button = page.find_element(By.ID, "histogram-all")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    said = page.find_element(By.CSS_SELECTOR, ".histogram[data-place=tissue]").text
    assert f"2400 pixels; in the lowest 0.9 dB {100 * whole['tissue']['input'][0] / 2400:.1f} % before" in said


def test_outlines_run_around_the_regions_and_can_be_taken_away(page):
    script = """
        const canvas = document.querySelectorAll('#figure-tissue canvas')[1];
        const copy = Object.assign(document.createElement('canvas'), {width: canvas.width, height: canvas.height});
        const context = copy.getContext('2d', {willReadFrequently: true});
        context.drawImage(canvas, 0, 0);
        const at = (column, row) => {
          const [x, y] = [(column + 0.5) / 48 * copy.width, (row + 0.5) / 40 * copy.height].map(Math.round);
          const data = context.getImageData(x - 1, y - 1, 3, 3).data;
          return [0, 1, 2, 3].map((k) => Math.max(...data.filter((_, i) => i % 4 === k)));
        };
        return [at(3.5, 20), at(12, 4.5), at(12, 20), at(25.5, 20)];"""
    left, top, middle, haze = page.execute_script(script)
    for green in (left, top):  # around tissue
        assert green[1] > 150 and green[1] > green[0] + 80
    assert haze[0] > 150 and haze[0] > haze[2] + 80  # orange around haze
    assert middle[3] == 0
    page.find_element(By.ID, "outlines").click()
    assert all(colour[3] == 0 for colour in page.execute_script(script))


def test_pointing_at_a_pixel_reads_its_values(page, made):
    picture = page.find_element(By.CSS_SELECTOR, "#figure-input .picture")
    right, down = round(10.5 / 48 * picture.size["width"]), round(30.5 / 40 * picture.size["height"])
    offset = right - picture.size["width"] // 2, down - picture.size["height"] // 2
    ActionChains(page).move_to_element_with_offset(picture, *offset).perform()
    text = page.find_element(By.ID, "readout").text
    level = (db_to_grey(made[1].cine.frames[0], 60)[30, 10] / 255 - 1) * 60
    assert text.startswith(f"column 10, row 30: input {shown_number(level, 1, False)}, tissue "), text


def test_automatic_regions_are_called_so_at_the_pictures_the_figures_and_the_histograms(browser, tmp_path):
    make_result(tmp_path / "a.dehazed.h5", Cartesian(), shape=(2, 64, 64), blob=True)
    browser.get(build_review(tmp_path / "a.dehazed.h5", tmp_path / "a.html", "auto").as_uri())
    wait_for_frame(browser, 0)
    assert browser.find_element(By.ID, "outlines").text == "Automatic regions"
    assert "automatic regions: brighter and darker part" in browser.find_element(By.CSS_SELECTOR, ".warning").text
    assert "Haze region, automatic" in browser.find_element(By.ID, "histograms").text


def test_polar_frames_are_drawn_as_a_fan_interpolated_between_beams(browser, tmp_path):
    result = make_result(tmp_path / "p.dehazed.h5", POLAR, with_std=False)
    browser.get(build_review(tmp_path / "p.dehazed.h5", tmp_path / "p.html").as_uri())
    wait_for_frame(browser, 0)
    drawn = pixels(browser, "tissue")[..., 0]
    r, a = POLAR.depths_m, POLAR.angles_rad
    left, right, top = r[-1] * np.sin(a[0]), r[-1] * np.sin(a[-1]), r[0] * np.cos(a[0])
    height, width = drawn.shape
    assert width / height == pytest.approx((right - left) / (r[-1] - top), rel=2e-3)
    z, x = np.meshgrid(
        top + (np.arange(height) + 0.5) / height * (r[-1] - top),
        left + (np.arange(width) + 0.5) / width * (right - left),
        indexing="ij",
    )
    row = np.interp(np.hypot(x, z), r, np.arange(40), left=-9, right=-9)
    column = np.interp(np.arctan2(x, z), a, np.arange(48), left=-9, right=-9)
    levels = map_coordinates(db_to_grey(result.tissue[0], 60).astype(float), [row, column], order=1, cval=0)
    inside = (row >= 0) & (column >= 0)
    assert (drawn[~inside] == 0).all() and inside.mean() > 0.4
    difference = np.abs(drawn[inside] - levels[inside])
    assert difference.max() <= 2  # levels between beams are rounded to 1/256 of a pixel
    assert not browser.find_element(By.ID, "figure-std").is_displayed()
    assert not browser.find_element(By.ID, "outlines").is_displayed()
    assert "Build the page with --roi FILE" in browser.find_element(By.ID, "metrics-notes").text
    assert_clean(browser)


def test_fans_of_more_than_a_half_circle_are_drawn_whole_and_times_are_those_stored(browser, tmp_path):
    wide = Polar(np.linspace(0.02, 0.1, 40), np.deg2rad(np.linspace(-110, 110, 48)))
    result = make_result(tmp_path / "p.dehazed.h5", wide, with_std=False)
    times = np.array([0.0, 0.1, 0.2, 1.7, 1.8])
    write_result(tmp_path / "p.dehazed.h5", replace(result, cine=replace(result.cine, frame_times_s=times)), True)
    browser.get(build_review(tmp_path / "p.dehazed.h5", tmp_path / "p.html").as_uri())
    wait_for_frame(browser, 0)
    box = browser.execute_script("return fanBox(page.geometry)")
    top = 0.1 * np.cos(np.deg2rad(110))
    assert box == pytest.approx({"left": -0.1, "top": top, "width": 0.2, "height": 0.1 - top})
    press(browser, Keys.END)
    wait_for_frame(browser, 4)
    assert browser.find_element(By.ID, "frame-says").text == "frame 5 of 5, 1.80 s"


class _Server(http.server.ThreadingHTTPServer):
    """Serves one page and remembers every request."""

    def __init__(self, content):
        self.content, self.requests = content, []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(made):
    server = _Server(made[0].read_bytes())
    with contextlib.closing(server.socket):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_the_page_asks_the_network_for_nothing_and_could_not_if_it_tried(browser, server):
    origin = f"http://127.0.0.1:{server.server_port}"
    browser.get(f"{origin}/page.html")
    wait_for_frame(browser, 0)
    browser.find_element(By.ID, "on").click()
    wait_for_frame(browser, 1)
    assert browser.execute_script("return performance.getEntriesByType('resource').map((e) => e.name)") == []
    assert_clean(browser)
    attempt = """
        const done = arguments[1];
        const image = new Image();
        image.onload = () => done('image came');
        image.onerror = () => fetch(arguments[0] + '/fetched').then(() => done('fetch came'), () => done('refused'));
        image.src = arguments[0] + '/image';"""
    assert browser.execute_async_script(attempt, origin) == "refused"
    assert server.requests == ["/page.html"]
    browser.get_log("browser")  # the refusals are reported there; they are this test's own


def test_dark_and_light_follow_the_reader_s_system(page):
    def brightness(scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        script = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
        return [sum(map(int, c[c.index("(") + 1 : -1].split(",")[:3])) for c in page.execute_script(script)]

    (light_ground, light_ink), (dark_ground, dark_ink) = brightness("light"), brightness("dark")
    assert light_ground > 600 > 150 > light_ink and dark_ink > 600 > 150 > dark_ground
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_narrow_window_shows_input_beside_tissue_without_scrolling_sideways(page):
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        boxes = [page.find_element(By.ID, f"figure-{name}").rect for name in ("input", "tissue")]
        assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_damaged_frame_is_told_and_the_others_still_play(browser, made, tmp_path):
    text = made[0].read_text()
    start = text.index('id="frame-1">') + len('id="frame-1">')
    (tmp_path / "bad.html").write_text(text[:start] + "AAAA" + text[start + 4 :])
    browser.get((tmp_path / "bad.html").as_uri())
    wait_for_frame(browser, 0)
    browser.find_element(By.ID, "on").click()
    trouble = browser.find_element(By.ID, "trouble")
    WebDriverWait(browser, PATIENCE_S).until(lambda _: trouble.is_displayed())
    slide(browser, "seek", 2)
    wait_for_frame(browser, 2)
    browser.get_log("browser")


def test_live_figures_and_polygons_are_those_of_python(page, made):
    rng = np.random.default_rng(4)
    polygon = np.round(rng.uniform(0, 39, (7, 2)), 1)
    script = """
        const plane = new Uint8Array(48 * 40);
        fillPolygon(plane, arguments[0], 4, {width: 48, height: 40});
        return [Array.from(plane), figuresOfRegions(current, current.regions).figures];"""
    plane, live = page.execute_script(script, polygon.tolist())
    assert np.array_equal(np.reshape(plane, (40, 48)) == 4, polygon_mask(polygon, (40, 48))) and 4 in plane
    seen, tissue = (
        (db_to_grey(frames[0], 60) / 255 - 1) * 60 for frames in (made[1].cine.frames, made[1].tissue)
    )  # what the page knows of them
    inside = np.zeros((2, 40, 48), bool)
    inside[0, 5:35, 4:20] = inside[1, 5:35, 26:44] = True
    expected = region_figures(seen, tissue, *inside)
    before, after = (gcnr(frame[inside[0]], frame[inside[1]]) for frame in (seen, tissue))
    expected["gcnr"] = {"input": before, "tissue": after, "delta": after - before}
    assert set(live) == set(expected)
    for name, entry in expected.items():
        for part, value in entry.items():
            assert live[name][part] == (None if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)), name


def test_live_figures_of_regions_of_one_level_are_those_of_the_level_and_not_of_rounding(page):
    found = page.execute_script("""
        const kept = page.dynamic_range_db;
        page.dynamic_range_db = 80;
        const of = (n) => Object.assign(new Array(256).fill(0), {0: n}); // all black
        const found = [];
        for (let n = 1; n < 400; n++) {
          const [a, b] = [of(n), of(n + 37)];
          found.push([meanOf(a, toDb), speckleSnrOf(a), cnrOf(a, b, toDb), cnrOf(a, b, amplitudeOf)]);
        }
        page.dynamic_range_db = kept;
        return found;""")
    assert found == [[-80, None, 0, 0]] * 399


def test_a_region_drawn_on_a_served_page_is_followed_and_saved_beside_the_result(browser, tmp_path):
    result = tmp_path / "a.dehazed.h5"
    make_result(result)
    page = build_review(result, tmp_path / "a.html", served=True)
    with ReviewServer(page, tmp_path / "a.rois.json", result, (40, 48)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            browser.get(server.address)
            wait_for_frame(browser, 0)
            picture = browser.find_element(By.CSS_SELECTOR, "#figure-input .picture")
            press(browser, "n")
            for dx, dy in ((-60, -60), (60, -60), (0, 60)):
                ActionChains(browser).move_to_element_with_offset(picture, dx, dy).click().perform()
            press(browser, Keys.ENTER)
            assert "Frame 1; pixels: tissue" in browser.find_element(By.ID, "live-says").text
            browser.execute_script("document.getElementById('save').click()")
            WebDriverWait(browser, PATIENCE_S).until(lambda b: "saved" in b.find_element(By.ID, "regions-say").text)
        finally:
            server.shutdown()
            thread.join()
    (region,) = json.loads((tmp_path / "a.rois.json").read_text())["regions"]
    assert region["role"] == "tissue" and "frames" not in region and len(region["polygon"]) == 3
    assert_clean(browser)


def test_less_removal_scales_the_gain_and_zoom_is_shared_by_the_pictures(page, made):
    before, after = (db_to_grey(frames[0], 60).astype(int) for frames in (made[1].cine.frames, made[1].tissue))
    slide(page, "strength", 0)
    assert np.array_equal(pixels(page, "tissue"), pixels(page, "input")) and (before != after).any()
    press(page, "z")
    moves = page.execute_script("return pictures.map(({canvas}) => canvas.style.transform)")
    assert len(set(moves)) == 1 and "scale(1.5)" in moves[0]
