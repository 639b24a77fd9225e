"""The folder of a campaign: what it is, what is known of it so far, and what it found.

<root>/<application>/<campaign>-<fingerprint>/      and  <root>/<application>/latest -> the newest
    campaign.json    format, application, the campaign in plain values, its targets and why, versions
    golden.jsonl     a line for each golden run: its score over the affected tuples of each place, and in every section
    trials.jsonl     a line for each trial: its score over the affected tuples, the sections whose score is another
    spark.log        what Spark's JVM and workers print;  graph.svg: the application
    result.json      the metrics, once all is known;  report.html, trials.csv, trials.parquet: made of it

A folder has the fingerprint of what was asked for in its name, so the same question finds what is known already. A last
line that a crash cut off is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from riprap.errors import RunError
from riprap.faults.campaign import Campaign
from riprap.faults.scored_trials import GoldenScored, Scored
from riprap.graph.graph import Graph
from riprap.state.durable_files import load_json, save_json
from riprap.state.leases import lock

# 1 counted positions of lags and delays from 0, a last section that is cut short as a whole one, and had R and I of
# the longest outage alone.
FORMAT = "riprap-campaign/2"
T = TypeVar("T")


def fingerprint(graph: Graph, campaign: Campaign, about: Mapping[str, Any]) -> str:
    """Return what tells one question from another: the graph, the campaign, the feed and what else it depends on."""
    content = {
        "format": FORMAT,
        "operators": [
            [o.name, o.kind, o.summary(), [list(port) for port in o.ports], repr(o.protect)] for o in graph
        ],
        "campaign": campaign.describe(),
        **(
            {"groups": [[g.name, g.operators, g.failover, g.detect] for g in graph.groups]}
            if graph.groups
            else {}
        ),
        "about": about,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:10]


class CampaignFolder:
    """The folder of one campaign."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path, about: Mapping[str, Any]) -> Iterator[CampaignFolder]:
        """Open the folder of a campaign, or make it, for this process alone; one with another in it is refused."""
        opened = cls._open(path, about)
        with open(path / ".lock", "wb") as held:
            if not lock(held.fileno()):
                raise RunError(f"another process is at work in {path}. Wait for it, or name another folder")
            for name in ("trials.jsonl", "golden.jsonl"):
                _cut_off(path / name)
            yield opened

    @classmethod
    def _open(cls, path: Path, about: Mapping[str, Any]) -> CampaignFolder:
        file = path / "campaign.json"
        if file.exists():
            earlier = read_json(file)
            if earlier["fingerprint"] != about["fingerprint"]:
                raise RunError(
                    f"{path} holds another campaign, or this one on another feed or application. Name another folder"
                )
            return cls(path)
        if path.is_dir() and any(path.iterdir()):
            raise RunError(f"{path} is there and is no campaign's folder. Name another")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        save_json(file, {"format": FORMAT, **about}, indent=2)
        return cls(path)

    def be_latest(self) -> None:
        """Let ``latest`` beside it point to it."""
        link = self.path.parent / f".latest-{uuid.uuid4().hex[:6]}"
        link.symlink_to(self.path.name)
        link.rename(self.path.parent / "latest")

    @property
    def about(self) -> dict[str, Any]:
        """What the campaign is."""
        return read_json(self.path / "campaign.json")

    @property
    def result(self) -> dict[str, Any] | None:
        """What it found, once all is known."""
        file = self.path / "result.json"
        return read_json(file) if file.exists() else None

    def trials(self) -> list[Scored]:
        """Read the trials that are known; of one that was tried again, what came of it last."""
        lines = _read(self.path / "trials.jsonl", Scored.from_json)
        return list({trial.id: trial for trial in lines}.values())

    def golden(self) -> list[GoldenScored]:
        """Read the golden runs that are known, in order."""
        by_seed = {run.seed: run for run in _read(self.path / "golden.jsonl", GoldenScored.from_json)}
        return [by_seed[seed] for seed in sorted(by_seed)]

    def add_trials(self, trials: Sequence[Scored]) -> None:
        """Write trials down."""
        _append(self.path / "trials.jsonl", [t.to_json() for t in trials])

    def add_golden(self, runs: Sequence[GoldenScored]) -> None:
        """Write golden runs down."""
        _append(self.path / "golden.jsonl", [run.to_json() for run in runs])

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write down what was found."""
        save_json(self.path / "result.json", {"format": FORMAT, **result})


def read_json(file: Path) -> dict[str, Any]:
    """Read one of a campaign's files."""
    content = load_json(
        file,
        FORMAT,
        {},
        remedy="Put it back from a copy, or give the command of 'riprap inject' again with another folder",
    )
    if content is None:
        raise RunError(f"{file} is not there")
    return content


def _read(file: Path, make: Callable[[Mapping[str, Any]], T]) -> list[T]:
    if not file.exists():
        return []
    return [
        make(json.loads(line)) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")
    ]


def _append(file: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    if not lines:
        return
    with open(file, "ab") as out:
        out.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        out.flush()
        os.fsync(out.fileno())


def _cut_off(file: Path) -> None:
    """Remove a last line that is not whole."""
    if file.exists():
        data = file.read_bytes()
        if not data.endswith(b"\n"):
            os.truncate(file, data.rfind(b"\n") + 1)
