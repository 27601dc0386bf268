"""The page in a real browser: headless Chromium. Skipped where Chromium and its driver are not installed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.e2e.support import put
from tests.service.conftest import TOKEN, Served
from tests.service.process import serving

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs Debian's packages chromium and chromium-driver"
)
LIMIT = 30.0
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1280,1000",
)  # fmt: skip


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = str(CHROMIUM)
    for argument in FLAGS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def wait(what: str, condition: Callable[[], object], limit: float = LIMIT) -> None:
    deadline = time.monotonic() + limit
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


def errors(browser: webdriver.Chrome) -> list[dict[str, str]]:
    entries: list[dict[str, str]] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry for entry in entries if entry["level"] == "SEVERE"]


def script(browser: webdriver.Chrome, text: str) -> object:
    found: object = browser.execute_script(text)
    return found


def test_a_statement_shows_what_it_would_change_before_it_creates_anything(
    served: Served, browser: webdriver.Chrome
) -> None:
    served.mini.hub.sql("CREATE PIPELINE first INTO out AS SELECT a FROM s")
    served.mini.drain()
    browser.get(served.url)
    wait("the stream is shown", lambda: lit(browser) == ["a"])
    box = browser.find_element(By.ID, "sql")
    box.send_keys("CREATE PIPELINE hot INTO out AS SELECT a, d FROM s WHERE a > 1")
    assert [k.text for k in browser.find_elements(By.CSS_SELECTOR, "#highlight .k")][:2] == ["CREATE", "PIPELINE"]
    wait("its change is shown", lambda: "decode +1 column: d" in browser.find_element(By.ID, "preview").text)
    assert [c.text for c in browser.find_elements(By.CSS_SELECTOR, ".column.next")] == ["d"]
    assert list(served.mini.hub.pipelines) == ["first"]
    assert browser.find_element(By.ID, "run").text == "Create pipeline"
    box.send_keys(" AND zz > 1")
    wait("the mistake is shown", lambda: "UNKNOWN_COLUMN" in browser.find_element(By.ID, "preview").text)
    browser.find_element(By.CSS_SELECTOR, "[data-column='a']").click()
    wait("who asks is told", lambda: "decoded for first" in browser.find_element(By.CSS_SELECTOR, ".asked").text)
    # Run at once, without waiting for the preview: it is shown first, and nothing is created.
    box.clear()
    box.send_keys("CREATE PIPELINE quick INTO out AS SELECT b FROM s")
    box.send_keys(Keys.CONTROL, Keys.ENTER)
    wait("its change is shown", lambda: "column: b" in browser.find_element(By.ID, "preview").text)
    assert list(served.mini.hub.pipelines) == ["first"]


def test_a_failure_is_shown_with_its_code_advice_and_time(served: Served, browser: webdriver.Chrome) -> None:
    served.mini.hub.sql("CREATE PIPELINE bad INTO out AS SELECT 1 / (a - a) AS x FROM s")
    put(served.directory.parent / "in" / "0.json", ['{"a": 1}'])
    served.mini.drain()
    browser.get(served.url)
    row = "[data-key='pipeline bad'] [data-cell='state']"
    wait("it is shown as failed", lambda: "EVALUATION_FAILED" in browser.find_element(By.CSS_SELECTOR, row).text)
    browser.find_element(By.CSS_SELECTOR, "[data-key='pipeline bad'] .link").click()
    wait("the failure is told", lambda: "EVALUATION_FAILED" in browser.find_element(By.CSS_SELECTOR, ".failure b").text)
    assert browser.find_element(By.CSS_SELECTOR, "#detail .failure .advice").text
    script(browser, "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))")
    assert not browser.find_element(By.ID, "detail").is_displayed()
    assert errors(browser) == []


def test_three_hundred_pipelines_are_listed_in_parts_and_found_by_a_filter(
    served: Served, browser: webdriver.Chrome
) -> None:
    statements = ";".join(
        f"CREATE PIPELINE p{i} INTO out AS SELECT c, count(*) AS n FROM s WHERE a > {i} GROUP BY c" for i in range(300)
    )
    served.mini.hub.sql(statements)
    served.mini.drain()
    browser.get(served.url)
    rows = "#pipelines tbody tr:not(.family)"
    wait("the first hundred are shown", lambda: len(browser.find_elements(By.CSS_SELECTOR, rows)) == 100)
    assert browser.find_element(By.ID, "pipeline-count").text == "300"
    browser.find_element(By.ID, "filter").send_keys("p29")
    wait("eleven match", lambda: len(browser.find_elements(By.CSS_SELECTOR, rows)) == 11)
    timed = "const t = performance.now(); for (let i = 0; i < 5; i++) draw(); return (performance.now() - t) / 5"
    took = script(browser, timed)
    assert isinstance(took, float | int)
    print(f"drawing 300 pipelines takes {took:.1f} ms")
    assert errors(browser) == []


def test_everything_that_can_be_pressed_has_a_name_and_fits_a_phone(served: Served, browser: webdriver.Chrome) -> None:
    served.mini.hub.sql("CREATE PIPELINE p INTO out AS SELECT a FROM s")
    served.mini.drain()
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 375, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    browser.get(served.url)
    wait("the pipeline is shown", lambda: browser.find_element(By.CSS_SELECTOR, "[data-key='pipeline p']"))
    assert script(browser, "return document.documentElement.scrollWidth") == 375
    unnamed = script(
        browser,
        "return [...document.querySelectorAll('button, input, textarea, canvas')]"
        ".filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML)",
    )
    assert unnamed == []
    assert errors(browser) == []


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


@pytest.mark.spark
def test_a_pipeline_is_created_watched_and_stopped_on_the_page_of_a_real_server(
    tmp_path: Path, browser: webdriver.Chrome
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "app.sql").write_text(
        "CREATE STREAM s (a BIGINT, b STRING, c INT, d STRING) WITH (source = 'files', format = 'json', "
        f"path = '{tmp_path / 'in'}'); CREATE SINK out WITH (type = 'memory');"
    )
    with serving(tmp_path) as server:
        browser.get(server.url)
        wait("the stream is shown", lambda: len(browser.find_elements(By.CSS_SELECTOR, ".column")) == 4)
        assert lit(browser) == []
        browser.find_element(By.ID, "sql").send_keys("CREATE PIPELINE hot INTO out AS SELECT a, d FROM s WHERE a > 1")
        wait("it can be created", lambda: browser.find_element(By.ID, "run").text == "Create pipeline")
        assert server.get("/api/v1/pipelines") == []
        browser.find_element(By.ID, "run").click()
        wait("two columns light up", lambda: lit(browser) == ["a", "d"], 120)
        put(tmp_path / "in" / "0.json", [json.dumps({"a": i, "d": f"d{i}"}) for i in range(5)])
        rows = "[data-key='pipeline hot'] [data-cell='rows_out']"
        wait("rows arrive", lambda: browser.find_element(By.CSS_SELECTOR, rows).text == "3", 120)
        browser.find_element(By.CSS_SELECTOR, "[data-key='pipeline hot'] .link").click()
        wait("its rows are shown", lambda: "d4" in browser.find_element(By.ID, "detail-body").text)
        browser.find_element(By.ID, "close").click()
        browser.find_element(By.CSS_SELECTOR, "[data-key='pipeline hot'] [data-action='stop']").click()
        browser.find_element(By.ID, "confirm-yes").click()
        wait("the columns go dark", lambda: lit(browser) == [], 60)
        state = "[data-key='pipeline hot'] [data-cell='state']"
        wait("it says stopped", lambda: browser.find_element(By.CSS_SELECTOR, state).text == "stopped")
        assert errors(browser) == []
