"""The versions of one operator's state in a store: values first, then a manifest that names them.

A version is there once its manifest is. The newest few stay; then values that no manifest names are removed.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Literal

import pyarrow as pa

from riprap.errors import CorruptValueError, FormatError
from riprap.state.checkpoints.groups import Decoded, decode
from riprap.state.checkpoints.manifest import CheckpointManifest, Saved, manifest_key, version_of
from riprap.state.stores import Store

Step = Literal["values", "between", "manifest", "versioned", "collecting"]


def _pass(step: Step) -> None: ...


class Versions:
    """The checkpoints of an operator, in its entry of a store.

    With a ``key`` configured, values with objects of the user's are sealed with an HMAC and not read without one: they
    are pickled, and to load a pickle is to run it. ``at`` is told of every step, for tests that crash there.
    """

    def __init__(
        self,
        store: Store,
        entry: str,
        *,
        key: bytes | None = None,
        at: Callable[[Step], None] = _pass,
    ) -> None:
        self.store = store
        self.entry = entry
        self._key = key
        self._at = at
        self._manifests: dict[int, CheckpointManifest] = {}

    def numbers(self) -> list[int]:
        """Return the versions there are, newest first."""
        found = (version_of(key) for key in self.store.keys(self.entry))
        return sorted((number for number in found if number is not None), reverse=True)

    def manifest(self, version: int) -> CheckpointManifest:
        """Return a version's manifest; one that is damaged or missing is an error."""
        if version not in self._manifests:
            try:
                data = self.store.get(self.entry, manifest_key(version))
            except KeyError:
                raise CorruptValueError(
                    f"there is no manifest of version {version} in {self.entry}"
                ) from None
            self._manifests[version] = CheckpointManifest.from_bytes(data.to_pybytes())
        return self._manifests[version]

    def seal(self, data: pa.Buffer) -> str | None:
        """Return the seal of a value, None where no key is configured."""
        return None if self._key is None else hmac.digest(self._key, memoryview(data), "sha256").hex()

    def put(self, slots: Mapping[str, Mapping[str, pa.Buffer]]) -> int:
        """Store the values of each slot; return how many bytes that was.

        One of that name that is there already is written over: it may be damaged.
        """
        written = 0
        self._at("values")
        for number, values in enumerate(slots.values()):
            if number:
                self._at("between")
            if values:
                self.store.put(self.entry, values)
                written += sum(data.size for data in values.values())
        return written

    def commit(self, manifest: CheckpointManifest) -> int:
        """Store a manifest, and with it a version; return its bytes."""
        data = manifest.to_bytes()
        self._at("manifest")
        self.store.put(self.entry, {manifest.key: data})
        self._manifests[manifest.version] = manifest
        self._at("versioned")
        return len(data)

    def collect(self, keep: int) -> None:
        """Remove the versions beyond the newest ``keep``, and the values that none of the others names."""
        numbers = self.numbers()
        going = [manifest_key(number) for number in numbers[keep:]]
        # Manifests first: one without its values would be taken for damaged.
        self.store.delete(self.entry, going)
        self._at("collecting")
        named: set[str] = set()
        for number in numbers[:keep]:
            try:
                named |= self.manifest(number).values.keys()
            except (CorruptValueError, FormatError):
                # It may name anything: better to keep too much.
                return
        self.store.delete(
            self.entry, [k for k in self.store.keys(self.entry) if version_of(k) is None and k not in named]
        )
        self._manifests = {n: m for n, m in self._manifests.items() if n in numbers[:keep]}

    def drop(self, version: int) -> None:
        """Remove a version; its values go with the next collection."""
        self.store.delete(self.entry, [manifest_key(version)])
        self._manifests.pop(version, None)

    def read(self, saved: Saved, *, sealed: bool = False) -> Decoded:
        """Read a value, block by block; what is damaged, missing or not sealed as it should be is left out."""
        nothing = Decoded((None,) * saved.groups, None, None)
        try:
            data = self.store.get(self.entry, saved.name)
        except (KeyError, CorruptValueError):
            return nothing
        if sealed and self._key is not None:
            seal = self.seal(data)
            if saved.seal is None or seal is None or not hmac.compare_digest(seal, saved.seal):
                return nothing
        return decode(data, saved.name, saved.groups)
