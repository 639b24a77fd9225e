"""The ledger: what it says is so, and what it does not say is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riprap.errors import FormatError, LedgerError
from riprap.state.ledger import BatchRecord, Ledger, Manifest, Output, page_name

RECORD = BatchRecord(
    epoch=0,
    batch=12,
    sources={"Source": (100, 250), "Spark": (None, '{"offset":3}')},
    manifests=(
        Manifest((0, 4), {"Aggregator/0": ("p3", "p1"), "Join/1": ()}),
        Manifest((4, 8), {"Aggregator/0": ("p2",)}),
    ),
    outputs={"Sink": (Output("o1", 17), Output("o2", 0)), "Other": ()},
)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(str(tmp_path / "ledger"))
    made.begin(8)
    return made


def test_a_record_comes_back_as_it_was_written(ledger: Ledger) -> None:
    ledger.write(RECORD)

    assert ledger.get(12) == ledger.find(12) == RECORD
    assert ledger.batches() == [-1, 12]


def test_a_record_names_its_pages() -> None:
    assert RECORD.pages() == {"p1", "p2", "p3", "o1", "o2"}


def test_an_epoch_begins_once(ledger: Ledger) -> None:
    assert ledger.get(-1) == BatchRecord(epoch=0, batch=-1, manifests=(Manifest((0, 8), {}),))
    ledger.write(BatchRecord(epoch=0, batch=-1, sources={"kept": (0, 1)}))

    ledger.begin(8)

    assert ledger.get(-1).sources == {"kept": (0, 1)}


def test_epochs_do_not_see_each_other(ledger: Ledger) -> None:
    ledger.write(RECORD)
    second = Ledger(ledger.folder, epoch=1)
    second.begin(8)

    assert second.batches() == [-1]
    assert second.find(12) is None


def test_a_missing_record_is_an_error_that_lists_what_there_is(ledger: Ledger) -> None:
    ledger.write(RECORD)

    assert ledger.find(11) is None
    with pytest.raises(LedgerError) as caught:
        ledger.get(11)
    assert str(caught.value) == (
        f"the ledger in {ledger.folder} has no record of batch 11 (epoch 0); it has [-1, 12]. "
        "Was the folder put back from an older copy?"
    )


@pytest.mark.parametrize(
    "text",
    ['{"format": "riprap-ledger/9", "epoch": 0, "batch": 3}', "{}", "[]", "null", '{"format": "riprap-', ""],
)
def test_a_record_of_another_format_is_an_error(ledger: Ledger, text: str) -> None:
    path = Path(ledger.folder) / "0000-0000000003.json"
    path.write_text(text)

    with pytest.raises(FormatError, match=r"0000-0000000003\.json is (not|damaged)"):
        ledger.find(3)


def test_a_record_carries_its_format(ledger: Ledger) -> None:
    ledger.write(RECORD)

    data = json.loads((Path(ledger.folder) / "0000-0000000012.json").read_text())

    assert data["format"] == "riprap-ledger/1"
    assert data["manifests"][1] == {"buckets": [4, 8], "pages": {"Aggregator/0": ["p2"]}}


def test_a_torn_write_does_not_exist(ledger: Ledger) -> None:
    (Path(ledger.folder) / "0000-0000000013.4711.tmp").write_text('{"format": "riprap-le')

    assert ledger.batches() == [-1]
    assert ledger.find(13) is None


def test_forgotten_records_are_gone(ledger: Ledger) -> None:
    ledger.write(RECORD)

    ledger.forget([12, 99])

    assert ledger.batches() == [-1]


def test_state_of_cuts_manifests_down_to_the_buckets() -> None:
    assert RECORD.state_of(0, 8) == RECORD.manifests
    assert RECORD.state_of(0, 4) == RECORD.manifests[:1]
    assert RECORD.state_of(3, 5) == (
        Manifest((3, 4), RECORD.manifests[0].pages),
        Manifest((4, 5), RECORD.manifests[1].pages),
    )
    assert BatchRecord(epoch=0, batch=-1).state_of(0, 8) == ()


@given(buckets=st.integers(1, 30), before=st.integers(1, 30), after=st.integers(1, 30))
def test_state_of_covers_all_buckets_once_for_any_numbers_of_tasks(
    buckets: int, before: int, after: int
) -> None:
    def spans(tasks: int) -> list[tuple[int, int]]:
        return [(buckets * t // tasks, buckets * (t + 1) // tasks) for t in range(tasks)]

    manifests = tuple(
        Manifest(span, {"agg/0": (f"page-{n}",)}) for n, span in enumerate(spans(min(before, buckets)))
    )
    record = BatchRecord(epoch=0, batch=0, manifests=manifests)

    found = [m for span in spans(min(after, buckets)) for m in record.state_of(*span)]

    # Every bucket is there once, with the page of the task that had it.
    assert [b for m in found for b in range(*m.buckets)] == list(range(buckets))
    for part in found:
        (owner,) = (m for m in manifests if m.buckets[0] <= part.buckets[0] < m.buckets[1])
        assert part.buckets[1] <= owner.buckets[1]
        assert part.pages == owner.pages


def test_page_names_sort_by_age_and_tell_attempts_apart() -> None:
    names = [
        page_name(epoch=0, batch=9, attempt="0.1", slot="agg/0"),
        page_name(epoch=0, batch=10, attempt="0.1", slot="agg/0"),
        page_name(epoch=0, batch=10, attempt="0.2", slot="agg/0"),
        page_name(epoch=1, batch=0, attempt="0.1", slot="agg/0"),
    ]

    assert names == sorted(names)
    assert len(set(names)) == 4
    assert all("/" not in name for name in names)
