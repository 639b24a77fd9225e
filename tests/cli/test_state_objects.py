"""State that is an object of the user's: its size is told, and what is in it only to who asks for that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.cli.conftest import Command
from tests.cli.saved_run import BUCKETS
from tests.customs import telling

import riprap as rr
from riprap.compiler import compile_graph, describe_state
from riprap.operators.custom.objects import save
from riprap.runtime.checkpointing.durable import KEY_FILE, Durable
from riprap.runtime.checkpointing.inspection import describe_operators
from riprap.runtime.task import save_plan
from riprap.state.checkpoints.increments import Fresh, SlotState, no_seal
from riprap.state.checkpoints.manifest import CheckpointManifest
from riprap.state.checkpoints.versions import Versions
from riprap.state.keys import encode_keys
from riprap.state.seals import KEY as KEY_OF_RUN
from riprap.state.seals import make_key, read_key
from riprap.state.stores import open_store
from riprap.state.windows import Contents, make_page

KEY = b"0123456789abcdef"


class Total(rr.CustomOperator):
    """Adds up; whoever loads its state leaves a trace."""

    total = 41

    def checkpoint(self) -> Any:
        return {"total": self.total, "trace": Trace()}

    def reset(self, saved: Any) -> None:
        self.total = saved["total"]

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None: ...


class Trace:
    """What a pickle can do."""

    loaded = 0

    def __reduce__(self) -> Any:
        return _leave_trace, ()


def _leave_trace() -> str:
    Trace.loaded += 1
    return "was here"


def make_run(runs: Path, key: bytes | None) -> tuple[Path, Versions]:
    """Make a run of a custom operator with one checkpoint, sealed if there is a key."""
    graph = telling(Total, protect=rr.checkpoint(every="10s")).graph()
    plan = compile_graph(graph, buckets=BUCKETS, tasks=1).plans[0]
    folder = runs / "app" / "2026-01-01-000000-abcdef"
    home = folder / "elements" / plan.name
    home.mkdir(parents=True)
    make_key(folder)
    save_plan(home / "plan-0.pickle", plan)
    (folder / "run.json").write_text(
        json.dumps({"format": "riprap-run/1", "application": "app", "options": {}})
    )
    layout = {
        "elements": {plan.name: ["it"]},
        "buckets": BUCKETS,
        "operators": describe_state(graph),
        "about": describe_operators(graph),
    }
    (folder / "state.json").write_text(json.dumps(layout))
    operator: Any = graph["it"]
    keys, _ = encode_keys([], 1)
    kept = pa.struct([("object", pa.large_binary()), ("token", pa.string())])
    tuples = pa.array(
        [{"object": save(operator, Total(), read_key(folder / KEY_OF_RUN)), "token": "t"}], kept
    )
    page = make_page(keys, Contents(np.array([0, 1]), tuples, np.zeros((1, 1), np.int64)))
    durable = Durable.of(folder, f"app-{folder.name}", None)
    versions = Versions(open_store(folder / "checkpoints"), durable.entry("it"), key=key)
    seal = versions.seal if key is not None else no_seal
    state, values = SlotState((0, BUCKETS), None, [], seal).advance([Fresh(page, 0.0, 1.0)], lambda saved: [])
    versions.put({"it/0": values})
    versions.commit(
        CheckpointManifest(
            operator="it",
            layout=describe_state(graph)["it"],
            version=1,
            time=1.0,
            batch=0,
            buckets=BUCKETS,
            rate=0.0,
            slots={"it/0": tuple(k.saved for k in state.kept)},
        )
    )
    return folder, versions


@pytest.fixture(autouse=True)
def untouched() -> None:
    Trace.loaded = 0


def test_an_object_is_loaded_only_when_asked_for(riprap: Command, tmp_path: Path) -> None:
    folder, _ = make_run(tmp_path, None)

    plain = riprap("state", "show", folder, "it", "--json")
    hint = riprap("state", "show", folder, "it")
    assert riprap("state", "verify", folder).code == 0
    (row,) = json.loads(plain.out)["slots"]["0"]["rows"]
    size = len(save(telling(Total).graph()["it"], Total(), b""))  # type: ignore[arg-type]
    assert (row["bytes"], "object" in row, Trace.loaded) == (size, False, 0)
    assert "--load shows them, and runs code to do so" in hint.out

    loaded = riprap("state", "show", folder, "it", "--load", "--json")
    (row,) = json.loads(loaded.out)["slots"]["0"]["rows"]
    assert row["object"] == repr({"total": 41, "trace": "was here"})
    assert Trace.loaded == 1


def test_what_is_sealed_is_not_loaded_without_its_seal(
    riprap: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = make_run(tmp_path, KEY)
    assert riprap("state", "show", folder, "it").code == 0

    without = riprap("state", "show", folder, "it", "--load")
    assert (without.code, KEY_FILE in without.err) == (2, True)

    (tmp_path / "key").write_bytes(KEY[::-1])
    (tmp_path / "key").chmod(0o400)
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    other = riprap("state", "show", folder, "it", "--load")
    verified = riprap("state", "verify", folder)
    assert (other.code, verified.code, Trace.loaded) == (1, 1, 0)
    assert "does not have the seal of the key" in verified.out

    (tmp_path / "key").unlink()
    (tmp_path / "secret").write_bytes(KEY)
    (tmp_path / "key").symlink_to("secret")
    (tmp_path / "secret").chmod(0o644)
    refused = riprap("state", "verify", folder)
    assert (refused.code, "has mode 0644: others" in refused.err) == (1, True)
    (tmp_path / "secret").chmod(0o400)
    assert riprap("state", "verify", folder).code == 0
    assert "was here" in riprap("state", "show", folder, "it", "--load").out
    assert Trace.loaded == 1


def test_what_is_not_sealed_is_not_loaded_where_there_is_a_key(
    riprap: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = make_run(tmp_path, None)
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o400)
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))

    assert riprap("state", "show", folder, "it", "--load").code == 1
    assert riprap("state", "verify", folder).code == 1
    assert riprap("state", "restore", folder, "it", "--version", "1").code == 1
    assert Trace.loaded == 0
