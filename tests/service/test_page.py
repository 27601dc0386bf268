"""The page in a real browser: headless Chromium. Skipped where Chromium and its driver are not installed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from tests.e2e.support import put
from tests.service.conftest import TOKEN, Served

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs Debian's packages chromium and chromium-driver"
)
LIMIT = 30.0


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def wait(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except (NoSuchElementException, StaleElementReferenceException):
            pass
        time.sleep(0.1)
    raise AssertionError(f"it never came to be that {what}")


def lit(browser: webdriver.Chrome) -> list[str]:
    return [c.text for c in browser.find_elements(By.CSS_SELECTOR, ".column.lit")]


def test_a_pipeline_is_created_watched_and_stopped_on_the_page(served: Served, browser: webdriver.Chrome) -> None:
    browser.get(served.url)
    wait("the stream is shown", lambda: len(browser.find_elements(By.CSS_SELECTOR, ".column")) == 4)
    assert lit(browser) == []
    box = browser.find_element(By.ID, "sql")
    box.send_keys("CREATE PIPELINE hot INTO out AS SELECT a, d FROM s WHERE a > 1")
    assert [k.text for k in browser.find_elements(By.CSS_SELECTOR, "#highlight .k")][:2] == ["CREATE", "PIPELINE"]
    browser.find_element(By.ID, "explain").click()
    wait("the plan is shown", lambda: "hot" in browser.find_element(By.CSS_SELECTOR, "#answer pre").text)
    assert served.mini.hub.pipelines == {}
    browser.find_element(By.ID, "run").click()
    wait("two columns light up", lambda: lit(browser) == ["a", "d"])
    put(served.directory.parent / "in" / "0.json", [json.dumps({"a": i, "d": f"d{i}"}) for i in range(5)])
    served.mini.drain()
    rows = "[data-key='pipeline hot'] [data-cell='rows_out']"
    wait("rows arrive", lambda: browser.find_element(By.CSS_SELECTOR, rows).text == "3")
    browser.find_element(By.CSS_SELECTOR, "[data-key='pipeline hot'] .link").click()
    wait("its rows are shown", lambda: "d4" in browser.find_element(By.ID, "detail-body").text)
    browser.find_element(By.CSS_SELECTOR, "[data-key='pipeline hot'] [data-action='stop']").click()
    browser.find_element(By.CSS_SELECTOR, "#confirm button[value='yes']").click()
    wait("the columns go dark", lambda: lit(browser) == [])
    state = "[data-key='pipeline hot'] [data-cell='state']"
    wait("it says stopped", lambda: browser.find_element(By.CSS_SELECTOR, state).text == "stopped")
    entries: list[dict[str, str]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    assert [entry for entry in entries if entry["level"] == "SEVERE"] == []


def test_the_page_asks_for_the_token_and_shows_errors_as_the_hub_words_them(
    guarded: Served, browser: webdriver.Chrome
) -> None:
    browser.get(guarded.url)
    wait("the token is asked for", lambda: browser.find_element(By.ID, "login").get_attribute("open") is not None)
    browser.find_element(By.ID, "token").send_keys(TOKEN)
    browser.find_element(By.CSS_SELECTOR, "#login button").click()
    wait("the stream is shown", lambda: len(browser.find_elements(By.CSS_SELECTOR, ".column")) == 4)
    browser.find_element(By.ID, "sql").send_keys("SELECT zz FROM s")
    browser.find_element(By.ID, "explain").click()
    wait("the error is shown", lambda: "UNKNOWN_COLUMN" in browser.find_element(By.CSS_SELECTOR, "#answer .error").text)
