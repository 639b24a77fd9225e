"""The pages that can be wrong without anyone noticing."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from riprap.application import Application
from riprap.apps.bargain import bargain
from riprap.apps.market import write_feed
from riprap.graph.connectors import parquet

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


def test_every_module_is_listed_with_its_own_words() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "whats_here.py"))
    assert script["PAGE"].read_text() == script["page"](), "run: python docs/whats_here.py"


def test_the_operators_page_says_what_the_operators_say() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "operators_page.py"))
    assert script["PAGE"].read_text() == script["page"](), "run: python docs/operators_page.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    missing = [t for t in targets if not (page.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_is_left_to_fill_in(page: Path) -> None:
    assert not re.search(r"\b(TODO|TBD|FIXME|[A-Z]+_TABLE|[A-Z_]+_FIGURE)\b", page.read_text())


def test_the_example_of_the_readme_is_an_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_feed(tmp_path / "demo" / "feed", 1000)
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)\nwith app.run", (ROOT / "README.md").read_text(), re.S)
    names: dict[str, Application] = {}

    exec(example, names)

    built_in = bargain("demo/feed", parquet("out/"))
    assert [o.name for o in names["app"].graph()] == [o.name for o in built_in.graph()]
    assert [o.summary() for o in names["app"].graph()] == [o.summary() for o in built_in.graph()]


def test_the_package_shows_the_readme() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["readme"] == "README.md"
