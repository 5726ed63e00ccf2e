"""The live page in a real browser."""

import time

from test_live_screens import FRAMES, shown
from test_review_browser import browser  # noqa: F401 (a fixture)

from usdehaze.live.web import WebScreen

PATIENCE_S = 60


def until(condition):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def test_the_page_shows_frames_and_one_that_stands_still_does_not_look_live(browser):  # noqa: F811
    screen = WebScreen(0, False, lambda: "all is well")
    page = browser

    def state():
        return page.execute_script("return [document.getElementById('state').textContent, document.body.className]")

    def width():
        screen.show(shown(0))
        return page.execute_script("return document.getElementById('picture').naturalWidth")

    page.get(screen.address)  # loads, though the pictures never end
    until(lambda: width() == 3 * FRAMES.shape[2] + 8 and state() == ["all is well", ""])
    until(lambda: state()[0].startswith("no new frame for ") and state()[1] == "old")
    screen.close()
    until(lambda: state() == ["the stream has ended", "old"])
