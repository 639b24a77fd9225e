"""Reading every value of a version, to see whether it is what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from riprap.errors import CorruptValueError, FormatError, SealError
from riprap.runtime.checkpointing.inspection import About
from riprap.state.checkpoints.groups import Table
from riprap.state.checkpoints.manifest import Saved
from riprap.state.checkpoints.restoring import restore
from riprap.state.checkpoints.versions import Versions

OnRead = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What is wrong with a part of a version: a group of a value, a whole value, or the manifest."""

    why: str
    slot: str = ""
    value: str = ""
    group: int | None = None
    tuples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What came of reading a version. ``lost`` counts the tuples that would be missing if it were restored."""

    operator: str
    version: int
    values: int = 0
    groups: int = 0
    size: int = 0
    tuples: int = 0
    damages: tuple[Damage, ...] = ()
    usable: bool = True
    lost: int = 0


@dataclass(slots=True)
class Verifier:
    """Checks the versions of an operator; a value that several versions share is read once.

    ``tell`` hears of bytes as they are dealt with, and ``checked`` counts those that were read.
    """

    versions: Versions
    about: About
    tell: OnRead = lambda size: None
    checked: int = 0
    _damaged: dict[str, tuple[Damage, ...]] = field(default_factory=dict)

    def verify(self, number: int) -> Verification:
        """Check a version."""
        try:
            manifest = self.versions.manifest(number)
        except (CorruptValueError, FormatError) as error:
            damage = Damage(why=str(error))
            return Verification(operator=self.about.name, version=number, damages=(damage,), usable=False)
        damages = [
            *self._refusals(number),
            *(
                damage
                for slot, listed in manifest.slots.items()
                for saved in listed
                for damage in self._check(slot, saved)
            ),
        ]
        usable, lost = self._outcome(number) if damages else (True, 0)
        return Verification(
            operator=self.about.name,
            version=number,
            values=len(manifest.values),
            groups=sum(saved.groups for saved in manifest.values.values()),
            size=manifest.size,
            tuples=manifest.tuples,
            damages=tuple(damages),
            usable=usable,
            lost=lost,
        )

    def to_read(self, numbers: Iterable[int]) -> int:
        """Say how many bytes it takes to check some versions."""
        sizes: dict[str, int] = {}
        for number in numbers:
            try:
                manifest = self.versions.manifest(number)
            except (CorruptValueError, FormatError):
                continue
            sizes.update({name: saved.size for name, saved in manifest.values.items()})
        return sum(sizes.values())

    def _outcome(self, number: int) -> tuple[bool, int]:
        """Say whether a damaged version could be restored, and how many tuples would be missing."""
        try:
            restored = restore(
                self.versions,
                layout=self.versions.manifest(number).layout,
                lost_until=None,
                sealed=self.about.objects and self.versions.keyed,
                whole=self.about.whole,
                version=number,
                warn=lambda text: None,
            )
        except SealError:
            return False, 0
        return restored is not None, restored.damaged if restored is not None else 0

    def _refusals(self, number: int) -> list[Damage]:
        """Say what is wrong with the seal of a version of objects; without a key nobody can tell."""
        if self.about.objects and self.versions.keyed:
            try:
                self.versions.check_seal(number)
            except SealError as error:
                return [Damage(why=f"{error}: it would be refused")]
        return []

    def _check(self, slot: str, saved: Saved) -> tuple[Damage, ...]:
        if saved.name not in self._damaged:
            self._damaged[saved.name] = tuple(self._damages(slot, saved))
            self.tell(saved.size)
        return self._damaged[saved.name]

    def _damages(self, slot: str, saved: Saved) -> list[Damage]:
        def damage(why: str, group: int | None = None, tuples: int | None = None) -> Damage:
            many = saved.tuples if tuples is None else tuples
            return Damage(why=why, slot=slot, value=saved.name, group=group, tuples=many)

        try:
            data = self.versions.store.get(self.versions.entry, saved.name)
        except KeyError:
            return [damage("the value is missing")]
        except CorruptValueError as error:
            return [damage(str(error))]
        self.checked += data.size
        damages = []
        if not self._is_sealed(saved, data):
            damages.append(damage("the value does not have the seal of the key that is configured"))
        table = Table.read(data, saved.name, saved.groups)
        if table is None:
            return [*damages, damage("both copies of its table are damaged")]
        if not table.twice:
            damages.append(damage("one of the two copies of its table is damaged", tuples=0))
        if table.header.of(data) is None:
            damages.append(damage("its schema is damaged"))
        for number, group in enumerate(table.groups):
            if group.of(data) is None:
                damages.append(damage("the group does not have its digest", number, group.tuples))
        if table.index.of(data) is None:
            damages.append(damage("its index does not have its digest", tuples=0))
        if table.counts.of(data) is None:
            damages.append(damage("its counts do not have their digest", tuples=0))
        return damages

    def _is_sealed(self, saved: Saved, data: pa.Buffer) -> bool:
        if not (self.about.objects or saved.seal is not None):
            return True
        seal = self.versions.seal(data)
        return seal is None or seal == saved.seal
