"""A headless Chromium, driven by Selenium with the chromedriver that is installed beside it."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
SILENT = ("background-networking", "component-update", "sync", "quic", "gpu", "dev-shm-usage")
FLAGS = ["--headless", "--no-sandbox", "--no-first-run", "--window-size=1600,1100"]
FLAGS += [f"--disable-{each}" for each in SILENT]

needs_browser = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="no Chromium with its driver (Debian: apt-get install chromium-driver)"
)


@contextmanager
def browser() -> Iterator[Chrome]:
    """With a profile of its own; a wait ends after a minute."""
    options = ChromeOptions()
    options.binary_location = str(BROWSER)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    profile = tempfile.mkdtemp()
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    driver = Chrome(options, Service(executable_path=DRIVER))  # the path is given: nothing is downloaded
    try:
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def wait_for(page: Chrome, expression: str) -> Any:
    """The value of a JavaScript expression, as soon as it is true."""
    said = f"{expression} did not come true within a minute"
    return WebDriverWait(page, 60, 0.2).until(lambda page: page.execute_script(f"return {expression}"), said)


def complaints(page: Chrome) -> list[str]:
    """What the page has written to its console as errors."""
    return [entry["message"] for entry in page.get_log("browser") if entry["level"] == "SEVERE"]


def go_offline(page: Chrome) -> None:
    page.set_network_conditions(offline=True, latency=0, throughput=0)
