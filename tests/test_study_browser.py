"""A reader's page in a real browser: from the first pair to a file of answers that is scored."""

import json
import time

import pytest
from _results import make_result

pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[dev]'")
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from test_review_browser import PATIENCE_S, browser  # noqa: F401

from usdehaze.study import make_study, score_study
from usdehaze.study.design import ITEMS, read_study


def shown(browser):  # noqa: F811
    return browser.execute_script("return document.body.dataset.shown ?? ''").split(" ")[0]


def press(browser, name, value):  # noqa: F811
    browser.execute_script(f'document.querySelector(\'input[name="{name}"][value="{value}"]\').click()')


@pytest.mark.slow
def test_a_reader_judges_every_pair_offline_and_saves_answers_that_are_scored(tmp_path, browser):  # noqa: F811
    paths = [tmp_path / f"{c}.dehazed.h5" for c in range(2)]
    for path in paths:
        make_result(path, with_std=False)
    folder = tmp_path / "study"
    make_study(paths, folder, 1, frames=slice(3), with_screen=True)
    study = read_study(folder)
    (folder / "answers").mkdir()
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder / "answers")}
    )
    browser.get((folder / "reader-01.html").as_uri())
    trials = study.readers["reader-01"]
    for index, trial in enumerate(trials):
        WebDriverWait(browser, PATIENCE_S, 0.02).until(lambda b, pair=trial.pair: shown(b) == pair)
        assert f"pair {index + 1} of 2" in browser.find_element(By.ID, "where").text
        assert not browser.find_element(By.ID, "next").is_enabled()
        size = browser.execute_script(
            "const { width, height } = document.getElementById('left'); return [width, height]"
        )
        assert size == [
            59,
            33,
        ]  # 48 x 40 pixels, as many that are square: the result's rows are 2/3 of its columns apart
        tissue = next(side for side in ("left", "right") if trial.arm(side) == "tissue")
        other = "right" if tissue == "left" else "left"
        for item in ITEMS:
            press(browser, f"{tissue} {item}", 5)
            press(browser, f"{other} {item}", "-" if item == "apex" else 2)
        assert browser.find_element(By.ID, "missing").text == "1 still open on this page"
        press(browser, "choice", tissue)
        if index == 0:
            browser.find_element(By.ID, "next").click()

    def complete_again(browser):
        browser.refresh()
        WebDriverWait(browser, PATIENCE_S, 0.02).until(lambda b: shown(b) == trials[0].pair)
        return "2 complete" in browser.find_element(By.ID, "where").text

    # Answers outlive the page, which may be ahead of their store.
    WebDriverWait(browser, PATIENCE_S).until(complete_again)
    checked = browser.execute_script("return document.querySelectorAll('input:checked').length")
    assert checked == 2 * len(ITEMS) + 1
    browser.find_element(By.ID, "save").click()
    saved = folder / "answers" / "answers-reader-01.json"
    until = time.monotonic() + PATIENCE_S
    while not saved.exists() and time.monotonic() < until:
        time.sleep(0.05)
    scores = score_study(folder)
    assert scores["choice"]["share"] == 1 and scores["items"]["septum"]["difference"] == 3
    assert "apex" not in scores["items"] and json.loads(saved.read_text())["answers"][0]["seconds"] > 0
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
