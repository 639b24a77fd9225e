"""The versions of one operator's state in a store: values first, then a manifest that names them.

A version is there once its manifest is. The newest few stay; then values that no manifest names are removed.
"""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Literal

import pyarrow as pa

from riprap.errors import CorruptValueError, FormatError, SealError
from riprap.state.checkpoints.groups import DecodedValue, decode, is_intact
from riprap.state.checkpoints.manifest import CheckpointManifest, Saved, manifest_key, version_of
from riprap.state.seals import KEY_FILE, seal
from riprap.state.stores import Store

SaveStep = Literal["values", "between", "manifest", "versioned", "collecting"]


def _pass(step: SaveStep) -> None: ...


class Versions:
    """The checkpoints of an operator, in its entry of a store.

    With a ``key`` configured, values with objects of the user's are sealed with an HMAC, and manifests too; objects are
    not read without both: they are pickled, and to load a pickle is to run it. ``at`` is told of every step, for tests
    that crash there.
    """

    def __init__(
        self,
        store: Store,
        entry: str,
        *,
        key: bytes | None = None,
        at: Callable[[SaveStep], None] = _pass,
    ) -> None:
        self.store = store
        self.entry = entry
        self._key = key
        self._at = at
        self._manifests: dict[int, CheckpointManifest] = {}
        self._seals: dict[int, str | None] = {}

    @property
    def keyed(self) -> bool:
        """Whether a key is configured."""
        return self._key is not None

    def numbers(self) -> list[int]:
        """Return the versions there are, newest first."""
        numbers = (version_of(key) for key in self.store.keys(self.entry))
        return sorted((number for number in numbers if number is not None), reverse=True)

    def by_batch(self) -> dict[int, int]:
        """Return the newest version of each batch; those whose manifests cannot be used are left out."""
        found: dict[int, int] = {}
        for number in reversed(self.numbers()):
            with contextlib.suppress(CorruptValueError, FormatError):
                found[self.manifest(number).batch] = number
        return found

    def manifest(self, version: int) -> CheckpointManifest:
        """Return a version's manifest; one that is damaged or missing is an error."""
        if version not in self._manifests:
            try:
                data = self.store.get(self.entry, manifest_key(version)).to_pybytes()
            except KeyError:
                raise CorruptValueError(
                    f"there is no manifest of version {version} in {self.entry}"
                ) from None
            manifest = CheckpointManifest.from_bytes(data)
            if manifest.version != version:
                raise CorruptValueError(
                    f"the manifest of version {version} says that it is of version {manifest.version}"
                )
            self._seals[version] = self._seal_manifest(version, data.partition(b"\n")[2])
            self._manifests[version] = manifest
        return self._manifests[version]

    def check_seal(self, version: int) -> None:
        """Refuse a version with objects whose manifest is not sealed as it should be."""
        manifest, expected = self.manifest(version), self._seals[version]
        sealed = manifest.seal is not None or any(saved.seal for saved in manifest.values.values())
        if expected is None:
            if sealed:
                raise SealError(
                    f"version {version} of {self.entry} is sealed, and no key is given to check it with. Name the file "
                    f"of the key it was saved with in {KEY_FILE}"
                )
        elif manifest.seal is None:
            raise SealError(f"version {version} has no seal, though {KEY_FILE} names a key")
        elif not hmac.compare_digest(manifest.seal, expected):
            raise SealError(f"version {version} does not have the seal of the key in {KEY_FILE}")

    def _seal_manifest(self, version: int, body: bytes) -> str | None:
        if self._key is None:
            return None
        return seal(self._key, "manifest", self.entry.encode(), manifest_key(version).encode(), body).hex()

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
        data = manifest.to_bytes(lambda body: self._seal_manifest(manifest.version, body))
        self._at("manifest")
        self.store.put(self.entry, {manifest.key: data})
        sealed = self._seal_manifest(manifest.version, data.partition(b"\n")[2])
        self._seals[manifest.version] = sealed
        self._manifests[manifest.version] = replace(manifest, seal=sealed)
        self._at("versioned")
        return len(data)

    def collect(self, keep: int) -> None:
        """Remove the versions beyond the newest ``keep``, and the values that none of the others names."""
        self.keep_only(self.numbers()[:keep])

    def keep_only(self, kept: Collection[int]) -> None:
        """Remove all other versions, and the values that none of those that stay names."""
        going = [manifest_key(number) for number in self.numbers() if number not in kept]
        # Manifests first: one without its values would be taken for damaged.
        self.store.delete(self.entry, going)
        self._at("collecting")
        named: set[str] = set()
        for number in kept:
            try:
                named |= self.manifest(number).values.keys()
            except (CorruptValueError, FormatError):
                # It may name anything: better to keep too much.
                return
        self.store.delete(
            self.entry, [k for k in self.store.keys(self.entry) if version_of(k) is None and k not in named]
        )
        self._manifests = {n: m for n, m in self._manifests.items() if n in kept}

    def drop(self, version: int) -> None:
        """Remove a version; its values go with the next collection."""
        self.store.delete(self.entry, [manifest_key(version)])
        self._manifests.pop(version, None)

    def read(self, saved: Saved, *, sealed: bool = False) -> DecodedValue:
        """Read a value, block by block; what is damaged or missing is left out, and of a ``sealed`` one all.

        One that is intact and not sealed as it should be is an error: that is no damage.
        """
        nothing = DecodedValue((None,) * saved.groups, None, None)
        try:
            data = self.store.get(self.entry, saved.name)
        except (KeyError, CorruptValueError):
            return nothing
        expected = self.seal(data) if sealed else None
        if expected is not None and not hmac.compare_digest(saved.seal or "", expected):
            if is_intact(data, saved.name, saved.groups):
                raise SealError(f"value {saved.name} does not have the seal of the key in {KEY_FILE}")
            return nothing
        return decode(data, saved.name, saved.groups)
