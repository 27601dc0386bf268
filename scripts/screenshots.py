"""Take the pictures of the live page in docs/images: a real hub, in headless Chromium, light, dark and phone width.

Needs Debian's packages chromium and chromium-driver. `python scripts/screenshots.py [DIRECTORY]`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
)  # fmt: skip
WARM_SECONDS = 45
APP = """
CREATE STREAM sensors (
  ts TIMESTAMP, device STRING, site STRING, temp DOUBLE, hum DOUBLE, pressure DOUBLE, co2 DOUBLE, lux DOUBLE,
  wind DOUBLE, lat DOUBLE, lon DOUBLE, volt DOUBLE, batt DOUBLE, status STRING, online BOOLEAN, errors INT,
  uptime BIGINT, firmware STRING, price DECIMAL(10,2), raw BINARY,
  WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS
) WITH (source = 'generator', format = 'json', rate = '8000', start = '{start}', cardinality = '40',
        disorder = '0.05', spread = '8s');
CREATE SINK alarms WITH (type = 'memory', max_rows = '10000');
CREATE SINK minutes WITH (type = 'memory', max_rows = '10000');
CREATE PIPELINE hot INTO alarms AS SELECT ts, device, temp FROM sensors WHERE temp > 33.5;
CREATE PIPELINE cold INTO alarms AS SELECT ts, device, temp FROM sensors WHERE temp < 6;
CREATE PIPELINE climate INTO minutes AS
  SELECT window.start AS at, device, count(*) AS readings, round(avg(temp), 2) AS temp
  FROM sensors GROUP BY window(ts, '10 seconds'), device;
CREATE PIPELINE loudest INTO minutes AS
  SELECT window.start AS at, device, max(temp) AS hottest, min(temp) AS coldest
  FROM sensors GROUP BY window(ts, '10 seconds'), device;
CREATE PIPELINE volume INTO minutes AS
  SELECT window.start AS at, count(*) AS readings FROM sensors GROUP BY window(ts, '10 seconds');
CREATE PIPELINE ratio INTO minutes AS SELECT device, 1 / (errors - errors) AS x FROM sensors;
"""
STATEMENT = """CREATE PIPELINE power INTO minutes AS
SELECT window.start AS at, device, min(batt) AS lowest, round(avg(volt), 2) AS volt
FROM sensors WHERE online GROUP BY window(ts, '10 seconds'), device"""


@contextmanager
def served(work: Path) -> Iterator[str]:
    """A hub with a few pipelines; one of them fails."""
    app = work / "app.sql"
    app.write_text(APP.format(start=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")))
    command = [sys.executable, "-m", "headrace.cli", "serve", str(app), "--port", "0", "--state-dir", str(work / "s")]
    with open(work / "log", "w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        yield url
    finally:
        process.terminate()
        process.wait(90)


@contextmanager
def browser(width: int, height: int, theme: str, url: str) -> Iterator[webdriver.Chrome]:
    """The page in a window of this size."""
    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--window-size={width},{height}"):
        options.add_argument(flag)
    if width < 600:  # a window cannot be that narrow
        options.add_experimental_option("mobileEmulation", {"deviceMetrics": {"width": width, "height": height}})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        driver.get(url)
        driver.execute_script("theme(arguments[0])", theme)
        yield driver
    finally:
        driver.quit()


def main() -> None:
    """Take all pictures."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        sys.exit("needs Chromium and its driver (Debian: apt-get install chromium chromium-driver)")
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "images"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="headrace-page-") as scratch, served(Path(scratch)) as url:
        deadline = time.monotonic() + 120
        while len(httpx.get(f"{url}/api/v1/pipelines").json()) < 6:
            assert time.monotonic() < deadline, "the pipelines are not there"
            time.sleep(0.5)
        with browser(1400, 1500, "light", url) as page:
            time.sleep(WARM_SECONDS)
            page.find_element(By.ID, "sql").send_keys(STATEMENT)
            time.sleep(2.5)
            page.save_screenshot(str(target / "page.png"))
            page.execute_script("theme('dark')")
            page.find_element(By.ID, "run").click()
            time.sleep(8)
            page.find_element(By.CSS_SELECTOR, "[data-key='pipeline climate'] .link").click()
            time.sleep(3)
            page.save_screenshot(str(target / "page-dark.png"))
        with browser(390, 1500, "light", url) as page:
            time.sleep(20)
            page.save_screenshot(str(target / "page-phone.png"))
    for picture in sorted(target.glob("page*.png")):
        print(f"{picture}: {picture.stat().st_size // 1000} KB")


if __name__ == "__main__":
    main()
