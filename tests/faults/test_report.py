"""The report: written as one page that needs nothing else, and looked at in a browser."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.faults.test_chain import application, campaign

from riprap.drawing.pages import for_script
from riprap.errors import RunError
from riprap.faults import Loss, inject
from riprap.faults.folder import CampaignFolder
from riprap.faults.report import write_report

TARGETS = ("Rows", "Odd", "Sums")


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("campaign") / "c"
    asked = campaign(
        targets=tuple((name,) for name in TARGETS), interleave=2, repetitions=3, golden=5,
        models={"loss": Loss(), "half": Loss(keep=0.5)},
    )  # fmt: skip
    inject(application(), asked, folder=path, spark=spark)
    write_report(CampaignFolder(path))
    return path


class Addresses(HTMLParser):
    """What a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [v for n, v in attributes if n in ("src", "href") and v is not None]


def test_the_page_needs_nothing_else(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    parser = Addresses()
    parser.feed(page)

    assert parser.found == []
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_the_page_says_what_to_do_and_how_long_it_took(folder: Path) -> None:
    page = (folder / "report.html").read_text()

    assert "<h2>What to do</h2>" in page
    assert "Through the streaming runtime one run took" in page
    assert "108 trials and 5 golden runs over 60 tuples" in page


def test_what_a_page_is_told_cannot_end_its_script() -> None:
    assert "</script" not in for_script({"name": "</script><b>"})


def test_every_trial_is_in_the_tables(folder: Path) -> None:
    trials = CampaignFolder(folder).trials()
    for table in (pa_csv.read_csv(folder / "trials.csv"), pq.read_table(folder / "trials.parquet")):
        assert table.num_rows == len(trials) == 108
        assert set(table["targets"].to_pylist()) == set(TARGETS)
        assert table["affected_score"].to_pylist() == [t.affected for t in trials]


def test_a_campaign_that_is_not_done_has_no_report(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "c")
    (tmp_path / "c" / "result.json").unlink()

    with pytest.raises(RunError, match="is not done"):
        write_report(CampaignFolder(tmp_path / "c"))


def test_the_page_renders_and_its_figures_respond(folder: Path, browser: Any) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    browser.get((folder / "report.html").as_uri())
    assert browser.find_element(By.TAG_NAME, "body").get_attribute("data-ready") == "yes"
    assert not [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]

    told = json.loads((folder / "result.json").read_text())["operators"]
    rows = browser.find_elements(By.CSS_SELECTOR, "#metrics tr")
    assert len(rows) == len(TARGETS)
    first = next(o for o in told if o["model"] == "loss")
    assert f"{first['I']:.2f}" in rows[0].text
    assert browser.find_element(By.ID, "chosen").text == first["targets"][0]
    for figure in ("by-outage", "by-offset", "over-time"):
        points = browser.find_elements(By.CSS_SELECTOR, f"#{figure} .point")
        assert points, figure
        box = browser.find_element(By.CSS_SELECTOR, f"#{figure} svg").rect
        assert box["width"] > 200
        assert box["height"] > 100
    cells = browser.find_elements(By.CSS_SELECTOR, "#at-offsets tr:last-child td")
    at = first["by_outage"][-1]
    assert [cell.text for cell in cells][1:-1] == [
        f"{r} ({i:.2f})" for r, i in zip(at["R_at"], at["I_at"], strict=True)
    ]
    # An operator is chosen in the table, and in the drawing.
    before = browser.find_element(By.ID, "by-outage").get_attribute("innerHTML")
    rows[-1].click()
    last = rows[-1].get_attribute("data-name")
    assert browser.find_element(By.ID, "chosen").text == last
    assert browser.find_element(By.ID, "by-outage").get_attribute("innerHTML") != before
    group = browser.find_element(By.CSS_SELECTOR, f".drawing .operator[data-name='{first['targets'][0]}']")
    group.find_element(By.TAG_NAME, "text").click()
    assert browser.find_element(By.ID, "chosen").text == first["targets"][0]
    # A line is hidden by its name, and shown again.
    lines = len(browser.find_elements(By.CSS_SELECTOR, "#by-offset .series"))
    name = browser.find_element(By.CSS_SELECTOR, "#by-offset .legend button")
    name.click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#by-offset .series")) == lines - 1
    name.click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#by-offset .series")) == lines
    # A point says what it is.
    point = browser.find_element(By.CSS_SELECTOR, "#by-offset .point")
    ActionChains(browser).move_to_element(point).perform()
    assert " at " in browser.find_element(By.ID, "tip").text
    # Another model has other figures.
    browser.find_elements(By.CSS_SELECTOR, ".models button")[1].click()
    half = next(o for o in told if o["model"] == "half")
    assert f"{half['I']:.2f}" in browser.find_element(By.CSS_SELECTOR, "#metrics tr").text
