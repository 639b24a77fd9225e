"""The pages of a model: all that was predicted is in them, and a browser draws it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.model.made import PROFILE, about, comparison, crash, fit, graph, point, prediction, sweep

from riprap.model.advice import advice
from riprap.model.number_words import duration, shown
from riprap.model.prediction import Estimate
from riprap.model.report import write_comparison, write_page
from riprap.model.sweep import Point


class Text(HTMLParser):
    """What a page says, what it would fetch, and what its script is told."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.said: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self._inside = ""
        self.told: Any = None
        self.feed(file.read_text(encoding="utf-8"))
        self.all = " ".join(self.said)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._inside = "told" if ("id", "told") in attributes else tag
        self.tags.append(tag)
        self.fetched += [v for n, v in attributes if n in ("src", "href") and v is not None]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "told":
            self.told = json.loads(data)
        elif self._inside not in ("style", "script") and data.strip():
            self.said.append(data.strip())


def page_of(tmp_path: Path, points: list[Point], **more: Any) -> Text:
    write_page(tmp_path / "page.html", graph(), PROFILE, points, **more)
    return Text(tmp_path / "page.html")


def test_every_combination_and_number_is_in_the_page(tmp_path: Path) -> None:
    page = page_of(tmp_path, sweep(), seed=17)

    for each in sweep():
        made = each.prediction
        for estimate in (
            made.availability,
            made.tainted_tuples,
            made.share.scaled(100),
            made.lost,
            made.crashes,
        ):
            mean, half = shown(estimate).split(" ± ")
            assert mean in page.all
            assert f"± {half}" in page.all
    for words in (
        "none",
        "checkpoint",
        "replicas",
        "+4",
        "2.5 MB/s",
        "one in 90 min",
        "Seed 17",
        "100 replications",
    ):
        assert words in page.all
    assert page.fetched == []
    assert not re.search(r"url\((?!#)|@import", (tmp_path / "page.html").read_text())


def test_lines_are_drawn_against_whatever_was_varied(tmp_path: Path) -> None:
    made = sweep()[0].prediction
    points = [
        point(technique, made, rate, recovery=recovery, crash_rate=crashes)
        for technique in ("none", "checkpoint") for rate in (1.0, 2.0) for recovery in (3.5, 15.0)
        for crashes in (1 / 5400, 1 / 1800)
    ]  # fmt: skip

    figures = page_of(tmp_path, points).told["figures"]

    assert [f["title"] for f in figures[::3]] == [
        "Availability against input rate",
        "Availability against crashes of each operator",
        "Availability against recovery",
    ]
    rate, crashes, _ = figures[::3]
    assert [s["name"] for s in rate["series"]][:2] == [
        "none, crashes of each operator one in 90 min, recovery 3.5 s",
        "checkpoint, crashes of each operator one in 90 min, recovery 3.5 s",
    ]
    assert rate["ticks"] == [[1.0, "1"], [2.0, "2"]]
    assert crashes["ticks"] == [[1 / 5400, "90 min"], [1 / 1800, "30 min"]]
    assert sum("if faults did not spread" in s["name"] for s in crashes["series"]) == 8
    assert all(len(s["points"]) == 2 for f in figures for s in f["series"])


def test_one_technique_leaves_names_and_colours_to_the_other_settings(tmp_path: Path) -> None:
    made = sweep()[0].prediction
    points = [point("none", made, rate, recovery=r) for rate in (1.0, 2.0) for r in (3.5, 15.0)]
    series = page_of(tmp_path, points).told["figures"][0]["series"]

    assert [(s["name"], s["colour"], s["form"], s["dash"]) for s in series] == [
        ("recovery 3.5 s", 0, 0, 0),
        ("recovery 15 s", 1, 1, 1),
    ]


def test_what_is_best_is_marked_among_those_asked_the_same(tmp_path: Path) -> None:
    page_of(tmp_path, sweep())
    rows = re.findall(r'<tr[^>]*data-technique="(\w+)">(.*?)</tr>', (tmp_path / "page.html").read_text())
    marked = [(name, ["best" in cell for cell in row.split("<td")[3:]]) for name, row in rows]

    # Availability (two are alike), tainted tuples, share, copies, checkpoints, and three that are not ranked.
    assert marked[:3] == [
        ("none", [False, False, False, True, True, False, False, False]),
        ("checkpoint", [True, False, False, True, False, False, False, False]),
        ("replicas", [True, True, True, False, True, False, False, False]),
    ]


def test_one_combination_has_large_figures_and_its_output_over_time(tmp_path: Path) -> None:
    page = page_of(tmp_path, [crash()], measured=[(0.5, 24.0), (1.5, 28.0)])
    (figure,) = page.told["figures"]

    assert [s["name"] for s in figure["series"]] == ["predicted, clean", "predicted, tainted", "measured"]
    assert figure["series"][1]["points"][15]["y"] == pytest.approx(30.0)
    assert figure["series"][2]["points"][1] == {
        "x": 1.5,
        "y": 28.0,
        "tip": "measured, 1.5 s: 28.0 tuples a second",
    }
    assert figure["marks"] == [{"x": 30.0, "name": "Odd crashes"}]
    assert "0.8800" in page.said


def test_fitted_curves_have_a_panel_for_each_rate(tmp_path: Path) -> None:
    panels = page_of(tmp_path, sweep(), fits=[fit("Sums")]).told["figures"][-2:]

    assert [p["title"] for p in panels] == ["At 250 tuples a second", "At 350 tuples a second"]
    observed, fitted = panels[0]["series"]
    assert observed["line"] is False
    assert [p["x"] for p in fitted["points"]] == [1, 3, 5, 8, 12, 17]
    assert fitted["points"][0]["y"] == 500 + 1.9 * 250


def test_names_are_text_and_never_tags(tmp_path: Path) -> None:
    points = [Point(replace(p.setting, technique="<b>bold</b>"), p.prediction) for p in sweep()[::3]]
    write_page(tmp_path / "page.html", replace(graph(), name="<b>"), PROFILE, points)
    page = Text(tmp_path / "page.html")

    assert "What to expect of <b>" in page.said
    assert "<b>bold</b>" in page.said
    assert "state of 'Sums' is <i>as large as it gets</i>" in page.said
    assert "i" not in page.tags


def test_one_replication_has_no_interval(tmp_path: Path) -> None:
    one = Estimate(0.5, -float("inf"), float("inf"))
    page = page_of(tmp_path, [point("none", prediction(one, one)), point("other", prediction(one, one))])

    assert "± ?" in page.all
    assert "cannot be told apart" in page.all


def test_advice_says_what_the_step_up_buys_and_costs() -> None:
    first, second, trend, spreading = advice(sweep())

    assert first.startswith("<b>checkpoint</b> against <b>none</b>: fewer tainted tuples, by at least 40 %")
    assert "availability is higher" in first
    assert "writes 2.5 MB/s of checkpoints instead of no checkpoints" in first
    assert "<b>replicas</b> against <b>checkpoint</b>: less than half as many tainted tuples" in second
    assert "availability cannot be told apart in any setting" in second
    assert "It takes 4 more copies of operators" in second
    # Availability rises too, but for two techniques within their intervals.
    assert trend == (
        "From input rate 100 tuples/s to 400 tuples/s: tainted tuples rise and tainted share rises, "
        "whatever the other settings."
    )
    assert "faults spread" in spreading


def test_advice_is_silent_where_intervals_meet() -> None:
    alike = about(0.99, 0.05), about(100, 30)
    lines = advice([point("a", prediction(*alike), 1.0), point("b", prediction(*alike, copies=1), 1.0)])

    assert lines == [
        "<b>b</b> against <b>a</b>: tainted tuples cannot be told apart; availability cannot be told apart. "
        "It takes 1 more copy of operators.",
        "Intervals of tainted tuples are as wide as ± 30 %. About 900 replications would bring them to 10 %.",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.5, "0.5 s"),
        (90, "90 s"),
        (5400, "90 min"),
        (7200, "2 h"),
        (1 / 5.56e-4, "30 min"),
        (86_400 * 30, "30 days"),
    ],
)
def test_times_are_in_units_that_people_use(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_the_comparison_has_every_operator(tmp_path: Path) -> None:
    write_comparison(tmp_path / "page.html", comparison(), seed=1)
    page = Text(tmp_path / "page.html")

    for each in comparison().operators:
        assert each.operator in page.said
        assert f"{each.I:.2f}" in page.said
    assert "Availability ranks Rows and Odd otherwise than R does." in page.all
    assert "Tainted tuples rank no two operators otherwise" in page.all
    assert page.said.count("?") == 1
    assert [len(f["series"]) for f in page.told["figures"]] == [3, 4]


def test_the_page_renders_and_its_figures_respond(tmp_path: Path, browser: Any) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    page_of(tmp_path, sweep(), fits=[fit()])
    browser.get((tmp_path / "page.html").as_uri())
    assert browser.find_element(By.TAG_NAME, "body").get_attribute("data-ready") == "yes"
    assert not [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    assert len(browser.find_elements(By.CSS_SELECTOR, ".drawing .operator")) == 3
    assert len(browser.find_elements(By.CSS_SELECTOR, "figure svg.chart")) == 5
    assert len(browser.find_elements(By.CSS_SELECTOR, "#figure-1 .point")) == 9
    # A line is hidden by its name, and shown again.
    name = browser.find_element(By.CSS_SELECTOR, "#figure-1 .legend button")
    for lines, pressed in ((2, "false"), (3, "true")):
        name.click()
        assert len(browser.find_elements(By.CSS_SELECTOR, "#figure-1 .chart .series")) == lines
        assert name.get_attribute("aria-pressed") == pressed
    # A point says what it is: under the pointer, with the keyboard, and to a reader of the page.
    chosen = browser.find_element(By.CSS_SELECTOR, "#figure-1 .point")
    words = "none; input rate 100 tuples/s: tainted tuples 4,000 ± 210"
    ActionChains(browser).move_to_element(chosen).perform()
    assert browser.find_element(By.ID, "tip").text == words
    last = browser.find_elements(By.CSS_SELECTOR, "#figure-1 .point")[-1]
    browser.execute_script("arguments[0].focus()", last)
    assert "replicas; input rate 400" in browser.find_element(By.ID, "tip").text
    assert chosen.get_attribute("aria-label") == words
    # The table fits the page.
    card = browser.find_element(By.CSS_SELECTOR, ".card:has(table)")
    assert browser.execute_script("return arguments[0].scrollWidth <= arguments[0].clientWidth", card)


def test_the_pages_of_one_crash_and_of_a_comparison_render(tmp_path: Path, browser: Any) -> None:
    from selenium.webdriver.common.by import By

    write_comparison(tmp_path / "comparison.html", comparison())
    write_page(tmp_path / "crash.html", graph(), PROFILE, [crash()])
    for name, points in (("comparison", 7), ("crash", 120)):
        browser.get((tmp_path / f"{name}.html").as_uri())
        assert browser.find_element(By.TAG_NAME, "body").get_attribute("data-ready") == "yes"
        assert not [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
        assert len(browser.find_elements(By.CSS_SELECTOR, ".point")) == points
