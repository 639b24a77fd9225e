"""``riprap state``: what it says of checkpoints is what went into them, and it changes nothing unasked."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Command
from tests.cli.saved_run import LAYOUT, SavedRun, three_versions

from riprap.runtime.checkpointing.comparison import overlap
from riprap.runtime.checkpointing.recovery import read_wishes
from riprap.state.leases import Lease
from riprap.state.pages import page_root


@pytest.fixture
def run(tmp_path: Path) -> SavedRun:
    return three_versions(tmp_path / "runs")


def as_windows(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Put rows together, and check that they are in order."""
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["ticker"], []).append(int(row["size"]))
        assert int(row["nr"]) == len(found[row["ticker"]])
    assert list(found) == sorted(found)
    return found


def show(riprap: Command, run: SavedRun, *arguments: str) -> dict[str, Any]:
    outcome = riprap("state", "show", run.folder, "sums", "--json", "--limit", "100000", *arguments)
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def test_list_has_a_line_a_version_and_names_operators_without(riprap: Command, run: SavedRun) -> None:
    outcome = riprap("state", "list", "latest")

    lines = outcome.out.splitlines()
    listed = [line.split() for line in lines if " ago " in line]
    assert outcome.code == 0
    assert [line[0] for line in listed] == ["sums", "2", "1"]
    assert listed[0][1] == "3"
    assert "bare: no checkpoints, it has no protect= policy" in lines
    assert "fresh: no checkpoints, none was saved yet" in lines
    assert "inlet" not in outcome.out


def test_list_counts_what_is_in_the_store(riprap: Command, run: SavedRun) -> None:
    (sums,) = json.loads(riprap("state", "--json", "list", "app", "sums").out)["operators"]

    there = set(run.versions.store.keys(run.versions.entry))
    for version in sums["versions"]:
        manifest = run.manifests[version["version"]]
        names = {saved.name for saved in manifest.slots["sums/0"]}
        assert names <= there
        assert version["values"] == len(names)
        sizes = [run.versions.store.get(run.versions.entry, name).size for name in names]
        assert version["bytes"] == sum(sizes)
        assert version["batch"] == {1: 0, 2: 2, 3: 3}[version["version"]]
        assert version["tuples"] >= sum(map(len, run.saved[version["version"]].values()))
        assert version["damaged"] is None


@pytest.mark.parametrize("version", [1, 2, 3])
def test_show_is_what_the_windows_held(riprap: Command, run: SavedRun, version: int) -> None:
    (slot,) = show(riprap, run, "--version", str(version))["slots"].values()

    assert as_windows(slot["rows"]) == run.saved[version]
    assert slot["keys"] == len(run.saved[version])
    assert slot["tuples"] == sum(map(len, run.saved[version].values()))
    assert all(row["held"] == len(run.saved[version][row["ticker"]]) for row in slot["rows"])


def test_show_without_a_version_is_the_newest_and_a_key_can_be_named(riprap: Command, run: SavedRun) -> None:
    found = show(riprap, run, "--key", "IBM")

    assert found["version"] == 3
    assert as_windows(found["slots"]["0"]["rows"]) == {"IBM": run.saved[3]["IBM"]}
    refused = riprap("state", "show", run.folder, "sums", "--key", "ABC")
    assert (refused.code, "has no key 'ABC'" in refused.err) == (2, True)


def test_show_writes_a_key_once_and_says_what_it_leaves_out(riprap: Command, run: SavedRun) -> None:
    out = riprap("state", "show", "app", "sums", "--version", "1", "--limit", "4").out

    assert LAYOUT in out
    assert "6 tuples of 3 keys" in out
    rows = [line.split() for line in out.split("─\n")[1].splitlines() if line.strip("─ ")][:4]
    assert rows == [["HPQ", "1", "1", "10"], ["IBM", "3", "1", "1"], ["2", "2"], ["3", "3"]]
    assert "and 2 more" in out


@pytest.mark.parametrize("ending", ["parquet", "csv", "json"])
def test_show_writes_files(riprap: Command, run: SavedRun, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"state.{ending}"
    # What is printed is limited; the file is not.
    outcome = riprap("state", "show", run.folder, "sums", "--out", path, "--limit", "1")

    assert outcome.code == 0, outcome.err
    rows = {
        "parquet": lambda: pq.read_table(path).to_pylist(),
        "csv": lambda: pyarrow.csv.read_csv(path).to_pylist(),
        "json": lambda: [json.loads(line) for line in path.read_text().splitlines()],
    }[ending]()
    assert as_windows(rows) == run.saved[3]


def test_verify_reads_every_value_once(riprap: Command, run: SavedRun) -> None:
    outcome = riprap("state", "verify", "latest", "--json")

    found = json.loads(outcome.out)
    sizes = {s.name: s.size for m in run.manifests.values() for s in m.slots["sums/0"]}
    assert (outcome.code, found["sound"], found["bytes"]) == (0, True, sum(sizes.values()))
    assert [v["version"] for v in found["versions"]] == [3, 2, 1]
    assert "MB/s" in riprap("state", "verify", "latest").out


def test_verify_finds_any_flipped_bit(riprap: Command, run: SavedRun) -> None:
    (saved, *_) = run.manifests[1].slots["sums/0"]
    chance = random.Random(5)
    for offset in chance.sample(range(saved.size), 30):
        run.change(saved.name, offset)
        assert riprap("state", "verify", "app", "sums").code == 1, f"byte {offset} of {saved.size}"
        run.change(saved.name, offset)
    assert riprap("state", "verify", "app", "sums").code == 0


def test_verify_names_the_damaged_group_and_what_it_costs(riprap: Command, run: SavedRun) -> None:
    groups = [(s, n) for s in run.manifests[2].slots["sums/0"] for n in range(s.groups)]
    for saved, number in groups:
        block = run.table(saved).groups[number]
        run.change(saved.name, block.offset + block.length - 1)

        outcome = riprap("state", "verify", run.folder, "sums", "--json")

        found = {v["version"]: v for v in json.loads(outcome.out)["versions"]}
        assert outcome.code == 1
        for version, manifest in run.manifests.items():
            named = [(d["value"], d["group"], d["tuples"]) for d in found[version]["damages"]]
            has = saved.name in {s.name for s in manifest.slots["sums/0"]}
            assert named == ([(saved.name, number, block.tuples)] if has else [])
        left = as_windows(show(riprap, run, "--version", "2")["slots"]["0"]["rows"])
        wanted = run.saved[2]
        missing = sum(map(len, wanted.values())) - sum(map(len, left.values()))
        assert found[2]["lost"] == missing
        assert all(set(tuples) <= set(wanted[key]) for key, tuples in left.items())
        text = riprap("state", "verify", run.folder, "sums").out
        assert f"value {saved.name}, group {number}: the group does not have its digest" in text
        run.change(saved.name, block.offset + block.length - 1)


def test_missing_values_and_damaged_manifests_are_marked(riprap: Command, run: SavedRun) -> None:
    store, entry = run.versions.store, run.versions.entry
    newest, older = (set(run.manifests[n].values) for n in (3, 1))
    store.delete(entry, [(newest - older).pop()])
    store.put(entry, {run.manifests[2].key: b"nonsense"})

    listed = riprap("state", "list", "app", "sums").out
    verified = riprap("state", "verify", "app")

    assert "sums, version 3: 1 of its values is missing" in listed
    assert "sums, version 2: a checkpoint's manifest is damaged" in listed
    assert [line.split()[-1] for line in listed.splitlines()[4:7]] == ["damaged", "damaged", "2"]
    assert verified.code == 1
    assert "the value is missing" in verified.out
    assert verified.out.count("cannot be used") == 2
    assert "no checkpoints" in verified.err
    assert riprap("state", "verify", "app", "sums", "--version", "1").code == 0


@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 3), (1, 3), (3, 1), (2, 2)])
def test_diff_says_which_tuples_came_and_went(riprap: Command, run: SavedRun, old: int, new: int) -> None:
    found = json.loads(riprap("state", "diff", "app", "sums", str(old), str(new), "--json").out)

    before, after = run.saved[old], run.saved[new]
    (slot,) = found["slots"].values()
    for change in slot["changes"]:
        key = change["key"]["ticker"]
        had, has = before.get(key, []), after.get(key, [])
        went, came = ([t["size"] for t in change[side]] for side in ("went", "came"))
        # From what there was take what went, add what came: that is what there is.
        left = list(had)
        for each in went:
            left.remove(each)
        assert sorted([*left, *came]) == sorted(has)
        assert change["change"] == ("new" if not had else "gone" if not has else "changed")
    changed = {c["key"]["ticker"] for c in slot["changes"]}
    assert changed == {k for k in before | after if before.get(k) != after.get(k)}
    assert slot["keys_same"] == len(before.keys() & after.keys() - changed)
    sizes = [{s.name: s.size for s in run.manifests[n].slots["sums/0"]} for n in (old, new)]
    shared = sizes[0].keys() & sizes[1].keys()
    assert found["bytes"] == {
        "shared": sum(sizes[0][name] for name in shared),
        "before": sum(size for name, size in sizes[0].items() if name not in shared),
        "after": sum(size for name, size in sizes[1].items() if name not in shared),
    }


def test_diff_takes_a_window_for_a_queue(riprap: Command, run: SavedRun) -> None:
    out = riprap("state", "diff", "app", "sums", "2", "3").out

    assert "2 tuples came, 3 went; keys: 2 changed, 0 new, 1 gone, 1 same" in out
    rows = [line.split() for line in out.splitlines() if line[:1] in "+-" and line.strip("─ ")]
    # NOK had 30, 30, 31 and got another 30: what it had stays.
    assert rows == [
        ["-", "IBM", "3"],
        ["+", "IBM", "9"],
        ["+", "NOK", "30"],
        ["-", "SUN", "gone", "key", "20"],
        ["-", "SUN", "gone", "key", "21"],
    ]


def test_overlap_is_the_longest() -> None:
    chance = random.Random(2)
    for _ in range(3000):
        old, new = ([chance.randrange(3) for _ in range(chance.randrange(8))] for _ in range(2))
        fits = [n for n in range(min(len(old), len(new)) + 1) if old[len(old) - n :] == new[:n]]
        assert overlap(old, new) == max(fits), (old, new)


def test_restore_writes_a_wish_and_says_what_will_be(riprap: Command, run: SavedRun) -> None:
    home = run.folder / "elements" / "main"

    outcome = riprap("state", "restore", "app", "sums", "--version", "2")

    assert (outcome.code, read_wishes(home)) == (0, {"sums": 2})
    many = sum(map(len, run.saved[2].values()))
    assert f"'sums' starts from version 2: {many} tuples as they were after batch 2" in outcome.out
    assert "sliding windows" in outcome.out
    assert "starts from version 2 when the run is taken up" in riprap("state", "list", "app").out
    refused = riprap("state", "drop", "app", "sums", "--version", "2")
    assert (refused.code, "is to start from version 2" in refused.err) == (2, True)
    assert riprap("state", "restore", "app", "bare", "--fresh").code == 0
    assert read_wishes(home) == {"sums": 2, "bare": "fresh"}
    assert riprap("state", "restore", "app", "sums", "--cancel").code == 0
    assert read_wishes(home) == {"bare": "fresh"}


def test_all_versions_go_at_once_and_unasked_only_of_a_run_that_has_ended(
    riprap: Command, run: SavedRun
) -> None:
    refused = riprap("state", "drop", "app", "sums", "--all")
    assert (refused.code, "the run can be taken up" in refused.err) == (2, True)
    (run.folder / "ended").touch()

    outcome = riprap("state", "drop", "app", "sums", "--all", "--json")

    assert outcome.code == 0
    assert json.loads(outcome.out)["left"] == []
    assert run.versions.store.keys(run.versions.entry) == []


def test_a_damaged_version_is_not_restored_unasked(riprap: Command, run: SavedRun) -> None:
    home = run.folder / "elements" / "main"
    saved = run.manifests[3].slots["sums/0"][0]
    run.change(saved.name, run.table(saved).groups[0].offset)

    refused = riprap("state", "restore", "app", "sums", "--version", "3")
    assert (refused.code, read_wishes(home)) == (1, {})
    assert "With --force it is restored without" in refused.err
    assert riprap("state", "restore", "app", "sums", "--version", "3", "--force").code == 0
    assert read_wishes(home) == {"sums": 3}

    run.change(saved.name, run.table(saved).index.offset)
    refused = riprap("state", "restore", "app", "sums", "--version", "3", "--force")
    assert (refused.code, "Choose another" in refused.err) == (1, True)


@pytest.mark.parametrize(
    "action", [("restore", "--version", "1"), ("restore", "--fresh"), ("drop", "--version", "1")]
)
def test_a_run_that_is_alive_is_left_alone(riprap: Command, run: SavedRun, action: tuple[str, ...]) -> None:
    lease = Lease.take(page_root() / f"app-{run.folder.name}", run.folder)
    try:
        outcome = riprap("state", action[0], "app", "sums", *action[1:])
    finally:
        lease.release()

    assert (outcome.code, "is alive" in outcome.err) == (1, True)
    assert run.versions.numbers() == [3, 2, 1]
    assert not (run.folder / "elements").exists()
    assert riprap("state", action[0], "app", "sums", *action[1:]).code == 0


def test_drop_removes_a_version_and_what_it_alone_has(riprap: Command, run: SavedRun) -> None:
    assert riprap("state", "drop", "app", "sums", "--version", "3").code == 0
    assert riprap("state", "drop", "app", "sums", "--version", "1").code == 0

    assert riprap("state", "verify", "app", "sums").code == 0
    (slot,) = show(riprap, run)["slots"].values()
    assert as_windows(slot["rows"]) == run.saved[2]
    assert set(run.versions.store.keys(run.versions.entry)) == {
        run.manifests[2].key,
        *run.manifests[2].values,
    }
    refused = riprap("state", "drop", "app", "sums", "--version", "2")
    assert (refused.code, "the only one" in refused.err) == (2, True)
    assert riprap("state", "drop", "app", "sums", "--version", "2", "--force").code == 0
    assert run.versions.store.keys(run.versions.entry) == []


def test_a_run_that_has_ended_is_not_restored(riprap: Command, run: SavedRun) -> None:
    (run.folder / "ended").touch()

    outcome = riprap("state", "restore", "app", "sums", "--version", "1")

    assert (outcome.code, "has ended" in outcome.err) == (1, True)
    assert riprap("state", "verify", "app", "sums").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list", "nothing"], "no run 'nothing' under runs. There are runs of: app"),
        (["list", "app", "sum"], "has no operator 'sum' with state. It has: sums, bare, fresh"),
        (["show", "app", "bare"], "'bare' has no checkpoints: it has no protect= policy"),
        (["show", "app", "sums", "--version", "9"], "'sums' has no version 9. It has: 3, 2, 1"),
        (["show", "app", "sums", "--slot", "7"], "'sums' has no slot '7'. It has: 0"),
        (["show", "app", "sums", "--load"], "is no objects of yours"),
        (["show", "app", "sums", "--out", "x.txt"], "end it in .parquet, .csv, .json"),
        (["diff", "app", "sums", "1", "7"], "'sums' has no version 7"),
        (["verify", "app", "--version", "1"], "Name the operator too"),
        (["restore", "app", "bare", "--version", "1"], "'bare' has no protect= policy"),
        (["restore", "app", "sums", "--version", "4"], "'sums' has no version 4"),
        (["drop", "app", "sums", "--version", "4"], "'sums' has no version 4"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(
    riprap: Command, run: SavedRun, arguments: list[str], said: str
) -> None:
    outcome = riprap("state", *arguments)

    assert outcome.code == 2
    assert said in outcome.err


def test_the_newest_run_of_all_applications_is_latest(riprap: Command, run: SavedRun, tmp_path: Path) -> None:
    other = SavedRun(tmp_path / "runs", name="other")
    later = other.folder.with_name("2026-01-02-000000-abcdef")
    other.folder.rename(later)
    (later.parent / "latest").unlink()
    (later.parent / "latest").symlink_to(later.name)

    found = [json.loads(riprap("state", "list", r, "--json").out) for r in ("latest", "app", run.folder)]

    assert [Path(f["run_folder"]) for f in found] == [later, run.folder, run.folder]


def test_a_window_of_which_all_went_is_not_taken_for_one_with_the_same_numbers(
    riprap: Command, tmp_path: Path
) -> None:
    run = SavedRun(tmp_path / "runs")
    run.batch({"IBM": [1, 2, 3, 4, 5, 6]})
    run.checkpoint()
    run.batch({"IBM": [7, 1, 2, 3, 4, 8]})
    run.checkpoint()

    (slot,) = json.loads(riprap("state", "diff", "app", "sums", "1", "2", "--json").out)["slots"].values()

    assert (slot["tuples_came"], slot["tuples_went"]) == (6, 6)
