"""Looking at a run's checkpoints from outside of it: which operators have state, and where its versions are."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from riprap.compiler.passes import prune_columns
from riprap.errors import CorruptValueError, FormatError, RunError
from riprap.graph.graph import Graph
from riprap.graph.regions import region_by_operator
from riprap.graph.replicas import copy_name, split_copy_name
from riprap.operators.custom import Custom
from riprap.runtime.checkpointing.durable import Durable
from riprap.runtime.checkpointing.recovery import cancel_wish, read_wishes, wish
from riprap.runtime.folder import RunFolder
from riprap.state.checkpoints.manifest import CheckpointManifest
from riprap.state.checkpoints.versions import Versions
from riprap.state.leases import GLANCE_SECONDS, lock
from riprap.state.ledger import Ledger
from riprap.state.pages import LEASE


def describe_operators(graph: Graph) -> dict[str, Any]:
    """Say of every stateful operator what people call the parts of its state, and how it is protected."""
    needed, regions = prune_columns(graph), region_by_operator(graph)
    kept = {name for name, region in regions.items() if region.terms.survives("host")}
    return {
        o.name: {
            "kind": o.kind,
            "key": list(o.key or ()),
            "columns": dict(o.kept_columns(needed)),
            "slides": sorted(o.slides),
            "replays": o.replays or o.name in kept,
            "protected": o.saving is not None or (o.name in kept and o.recording is None),
            "recorded": o.recording is not None,
            "region": regions[o.name].name if o.name in regions else None,
        }
        for o in graph
        if o.stateful
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a run's folder says of a stateful operator. ``protected`` is None where it does not say; ``recorded`` is
    whether its open windows are recorded in its output log, so that there are no versions.

    ``region`` names the consistent region it is in, if it is in one. Of an operator with replicas each has state of its
    own, under the ``name`` of a copy, ``sums~a``.
    """

    name: str
    operator: str
    replica: str | None = None
    element: str
    layout: str
    kind: str = ""
    key: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    slides: tuple[str, ...] = ()
    replays: bool = False
    protected: bool | None = None
    recorded: bool = False
    region: str | None = None

    @property
    def objects(self) -> bool:
        """Whether its state is objects of the user's."""
        return self.kind == Custom.__name__

    @property
    def whole(self) -> bool:
        """Whether a part of its state is worse than nothing."""
        return self.objects or self.replays


@dataclass(frozen=True, slots=True)
class Inspection:
    """A run's checkpoints, to be read while the run is alive or not."""

    folder: RunFolder
    application: str
    durable: Durable
    operators: Mapping[str, About]

    @classmethod
    def of(cls, path: Path) -> Inspection:
        """Read what there is to know of the run in a folder."""
        folder = RunFolder(path.resolve(), time.time)
        run = folder.about()
        durable = Durable.of(folder.path, folder.identity, run["options"].get("store"))
        return cls(folder, run["application"], durable, _operators(folder.state_layout() or {}))

    def home(self, operator: str) -> Path:
        """Return the folder of an operator's processing element."""
        return self.folder.path / "elements" / self.operators[operator].element

    @contextlib.contextmanager
    def reading(self, operator: str) -> Iterator[Versions | None]:
        """Open an operator's versions to be read; None where there is no store yet."""
        about = self.operators[operator]
        # A database of RocksDB's is an element's own, and only one with protected operators has any.
        bare = self.durable.url.startswith("rocksdb:") and not any(
            o.protected in (True, None) for o in self.operators.values() if o.element == about.element
        )
        if bare or self.durable.never_made:
            yield None
            return
        with contextlib.closing(self.durable.open(about.element, readonly=True)) as store:
            yield self._durable(about).versions(store, about.operator)

    @contextlib.contextmanager
    def writing(self, operator: str) -> Iterator[Versions]:
        """Open an operator's versions to be changed: only in a run that is :meth:`at_rest`."""
        about = self.operators[operator]
        with contextlib.closing(self.durable.open(about.element)) as store:
            yield self._durable(about).versions(store, about.operator)

    def _durable(self, about: About) -> Durable:
        return replace(self.durable, replica=about.replica)

    def windows_of(self, operator: str) -> dict[str, Any] | None:
        """Return how the windows of an operator stand that are recorded in its output log, None before any batch."""
        element = self.operators[operator].element
        line = (
            self.folder.last_metrics([element]).get(element, {}) if self.operators[operator].recorded else {}
        )
        return line.get("windows")

    def wish_of(self, operator: str) -> Any:
        """Return what an operator is to start from when the run is taken up, None if nobody asked for anything."""
        return read_wishes(self.home(operator)).get(self.operators[operator].operator)

    def wish(self, operator: str, what: int | str) -> None:
        """Ask that an operator start from a version, or afresh."""
        wish(self.home(operator), self.operators[operator].operator, what)

    def cancel_wish(self, operator: str) -> bool:
        """Take back what was asked for an operator; return whether there was anything."""
        return cancel_wish(self.home(operator), self.operators[operator].operator)

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        """Hold a run that is not going, so that nobody takes it up meanwhile; refuse one that is alive."""
        locks = sorted((self.folder.path / "processes").glob("*.lock"))
        with contextlib.ExitStack() as held:
            for path in (self.folder.path / LEASE, *locks):
                try:
                    file = held.enter_context(open(path))
                except FileNotFoundError:
                    continue
                if not lock(file.fileno(), wait=GLANCE_SECONDS):
                    raise RunError(
                        f"the run in {self.folder.path} is alive: its state changes while it goes on. Interrupt it "
                        "first: with Ctrl-C twice where it runs (once ends it for good), or by ending its process"
                    )
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCut:
    """The versions of all operators of an element, by operator, that are as of one batch.

    ``behind`` is how many batches on record would be computed again after it.
    """

    region: str
    element: str
    batch: int
    time: float
    size: int
    behind: int
    versions: Mapping[str, int]


def cuts_of(run: Inspection, listed: Sequence[tuple[About, Sequence[Listed]]]) -> list[RegionCut]:
    """Return the cuts of the regions of a run, element by element, the newest first."""
    cuts = []
    for element in dict.fromkeys(about.element for about, _ in listed if about.region is not None):
        operators = {about.name: versions for about, versions in listed if about.element == element}
        saved: dict[int, dict[str, CheckpointManifest]] = {}
        for name, versions in operators.items():
            for manifest in (version.manifest for version in versions):
                if manifest is not None:
                    saved.setdefault(manifest.batch, {})[name] = manifest
        ledger = Ledger(str(run.folder.path / "elements" / element / "ledger"))
        newest = max(ledger.batches(), default=-1)
        cuts += [
            RegionCut(
                region=next(about.region for about, _ in listed if about.element == element) or "",
                element=element,
                batch=batch,
                time=max(manifest.time for manifest in manifests.values()),
                size=sum(manifest.size for manifest in manifests.values()),
                behind=newest - batch,
                versions={name: manifest.version for name, manifest in manifests.items()},
            )
            for batch, manifests in sorted(saved.items(), reverse=True)
            if len(manifests) == len(operators)
        ]
    return cuts


def _operators(layout: Mapping[str, Any]) -> dict[str, About]:
    # Inlets and outlets are listed beside operators; an inlet has the name of the operator whose stream it is, and
    # comes after it.
    homes: dict[str, str] = {}
    found: dict[str, About] = {}
    for element, names in layout.get("elements", {}).items():
        whole, replica = split_copy_name(element)
        for name in names:
            if name in layout["operators"] and homes.setdefault(name, whole) == whole:
                about = _about(name, element, replica, layout)
                found.setdefault(about.name, about)
    return found


def _about(name: str, element: str, replica: str | None, layout: Mapping[str, Any]) -> About:
    described: Mapping[str, Any] = layout.get("about", {}).get(name, {})
    details: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in described.items()}
    shown = name if replica is None else copy_name(name, replica)
    return About(
        name=shown,
        operator=name,
        replica=replica,
        element=element,
        layout=layout["operators"][name],
        **details,
    )


@dataclass(frozen=True, slots=True)
class Listed:
    """A version in a list: its manifest, or why there is none; and how many of its values the store lacks."""

    number: int
    manifest: CheckpointManifest | None
    lacks: int = 0
    why: str = ""

    @property
    def damaged(self) -> str:
        """What a look at the list alone shows to be wrong, nothing if all is well."""
        verb = "is" if self.lacks == 1 else "are"
        return self.why or (f"{self.lacks} of its values {verb} missing" if self.lacks else "")


def list_versions(versions: Versions | None) -> list[Listed]:
    """List the versions of an operator, newest first. Values are looked for, not read."""
    if versions is None:
        return []
    stored = set(versions.store.keys(versions.entry))
    return [_listed(versions, number, stored) for number in versions.numbers()]


def _listed(versions: Versions, number: int, stored: Collection[str]) -> Listed:
    try:
        manifest = versions.manifest(number)
    except (CorruptValueError, FormatError) as error:
        return Listed(number, None, why=str(error))
    return Listed(number, manifest, sum(name not in stored for name in manifest.values))
