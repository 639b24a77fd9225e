"""The controller of a region: its table, every word of it in every state, and what is read back of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riprap.errors import FormatError
from riprap.runtime.supervision.regions import (
    TRANSITIONS,
    RegionPhase,
    RegionSignal,
    RegionState,
    Tries,
    load_regions,
    save_regions,
)

NEW = RegionState(name="r", elements=("a", "b"), limit=3, timeout=60.0)
STATES: dict[RegionPhase, RegionState] = {
    "running": replace(NEW, tries={"a": Tries(number=1, batch=4, back=True)}),
    "resetting": NEW.begin_attempt({"a": 4}, "broken"),
    "halted": NEW.begin_attempt({"a": 4}, "broken").halt("broken for good"),
}
SAY: dict[RegionSignal, Callable[[RegionState], RegionState]] = {
    "attempt": lambda region: region.begin_attempt({"a": 5}, "again"),
    "back": lambda region: region.come_back("a"),
    "halt": lambda region: region.halt("enough"),
    "asked": lambda region: region.ask({"a": 5, "b": 9}),
}


@pytest.mark.parametrize(("phase", "signal"), [*product(get_args(RegionPhase), get_args(RegionSignal))])
def test_every_word_in_every_state(phase: RegionPhase, signal: RegionSignal) -> None:
    before = STATES[phase]
    after = SAY[signal](before)
    assert before.phase == phase
    if (phase, signal) in TRANSITIONS:
        assert after.phase == TRANSITIONS[phase, signal]
        assert after != before
    else:
        assert after == before


def test_the_table_is_that_of_the_page() -> None:
    assert TRANSITIONS == {
        ("running", "attempt"): "resetting",
        ("running", "halt"): "halted",
        ("resetting", "attempt"): "resetting",
        ("resetting", "back"): "running",
        ("resetting", "halt"): "halted",
        ("halted", "asked"): "resetting",
    }


def test_attempts_are_consecutive_until_there_is_more_on_record() -> None:
    region = NEW.begin_attempt({"a": 4}, "first")
    region = region.come_back("a")
    assert (region.phase, region.attempt) == ("running", 1), "to be back is not to have got further"
    region = region.begin_attempt({"a": 4}, "second").get_further("a", 4)
    assert (region.phase, region.attempt, region.cause) == ("resetting", 2, "second")
    region = region.get_further("a", 5)
    assert (region.phase, region.attempt) == ("running", 0)
    assert region.begin_attempt({"a": 5}, "third").attempt == 1


def test_each_element_counts_its_own_and_the_last_to_come_back_ends_a_reset() -> None:
    region = NEW.begin_attempt({"a": 4}, "first").begin_attempt({"b": 7}, "second")
    assert (region.attempt, region.away) == (1, ("a", "b"))
    region = region.begin_attempt({"b": 7}, "third")
    assert region.attempt == 2
    region = region.get_further("b", 8)
    assert (region.phase, region.attempt, region.away) == ("resetting", 1, ("a",))
    assert region.come_back("a").phase == "running"


def test_what_was_on_record_at_a_start_is_no_progress() -> None:
    # A process that died did not say of its last batch.
    region = NEW.begin_attempt({"a": 4}, "died").start("a", 6)
    assert region.get_further("a", 6).attempt == 1
    assert region.get_further("a", 7).attempt == 0
    assert region.start("a", 2) == region
    assert NEW.start("a", 6) == NEW


def test_a_reset_that_was_asked_for_counts_anew_and_takes_all_elements() -> None:
    asked = STATES["halted"].ask({"a": 4, "b": 9})
    assert (asked.attempt, asked.away) == (1, ("a", "b"))
    assert STATES["halted"].ask({}).phase == "running", "all of it has ended meanwhile"


BATCHES = st.dictionaries(st.sampled_from("ab"), st.integers(-1, 5), min_size=1)
WORDS = st.lists(
    st.one_of(
        st.tuples(st.just("attempt"), BATCHES),
        st.tuples(st.just("asked"), BATCHES),
        st.tuples(st.just("halt"), st.none()),
        st.tuples(st.sampled_from(["back", "forget"]), st.sampled_from("ab")),
        st.tuples(
            st.sampled_from(["further", "start"]), st.tuples(st.sampled_from("ab"), st.integers(-1, 9))
        ),
    ),
    max_size=30,
)


def told(region: RegionState, word: str, about: object) -> RegionState:
    made: dict[str, Callable[..., RegionState]] = {
        "attempt": lambda: region.begin_attempt(about, "broken"),  # type: ignore[arg-type]
        "asked": lambda: region.ask(about),  # type: ignore[arg-type]
        "halt": lambda: region.halt("broken for good"),
        "back": lambda: region.come_back(str(about)),
        "forget": lambda: region.forget(str(about)),
        "further": lambda: region.get_further(*about),  # type: ignore[misc]
        "start": lambda: region.start(*about),  # type: ignore[misc]
    }
    return made[word]()


@given(WORDS)
def test_whatever_is_said(words: list[tuple[str, object]]) -> None:
    region = NEW
    for word, about in words:
        before, region = region, told(region, word, about)
        if region.phase != before.phase:
            assert region.phase in {to for (at, _), to in TRANSITIONS.items() if at == before.phase}
        assert (region.phase == "resetting") == (region.phase != "halted" and bool(region.away))
        if before.phase == "halted" and word != "asked":
            assert region.phase == "halted"
        grown = region.attempt - before.attempt
        assert grown <= 1
        assert grown < 1 or word in ("attempt", "asked")


@given(st.lists(WORDS, max_size=3))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, stories: list[list[tuple[str, object]]]
) -> None:
    run = tmp_path_factory.mktemp("run")
    regions = []
    for number, story in enumerate(stories):
        region = replace(NEW, name=f"r{number}")
        for word, about in story:
            region = told(region, word, about)
        regions.append(region)
    save_regions(run, regions)
    assert load_regions(run) == {r.name: replace(r, limit=0, timeout=0.0) for r in regions}


def test_no_file_is_no_region_and_a_strange_one_is_refused(tmp_path: Path) -> None:
    assert load_regions(tmp_path) == {}
    strange = (
        {"format": "riprap-regions/9", "regions": {}},
        {"format": "riprap-regions/1", "regions": {"r": {}}},
        {"format": "riprap-regions/1", "regions": {"r": {"phase": "asleep", "elements": [], "tries": {}}}},
    )
    for data in strange:
        (tmp_path / "regions.json").write_text(json.dumps(data))
        with pytest.raises(FormatError, match=r"regions.json .*no region is taken for halted"):
            load_regions(tmp_path)
