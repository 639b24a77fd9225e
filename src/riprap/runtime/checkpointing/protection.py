"""What is saved of a processing element, and how: a small value that travels to the agent, which has no plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riprap.runtime.checkpointing.durable import Durable
from riprap.runtime.site import Site

if TYPE_CHECKING:
    from riprap.compiler import Plan

Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """An operator whose state is saved. ``group`` is None where groups are cut by size; ``sealed`` is whether its state
    is objects of the user's; ``slides`` are the operator's own."""

    name: str
    every: float | None
    keep: int
    group: int | None
    layout: str
    slots: tuple[str, ...]
    slides: tuple[str, ...]
    sealed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementProtection:
    """The protected operators of an element, where its state is, and where it is saved.

    ``spans`` are the buckets of each task. ``replays`` is whether what came in since the last checkpoint is kept
    upstream, to be computed again after a loss: then all operators are saved as of one batch, which is a *cut*, and
    those of a ``region`` are numbered. With ``marks`` only batches that are marked are saved, but for the first if
    ``at_once``: what an operator had before is not to come back.
    """

    element: str
    home: str
    site: Site
    durable: Durable
    buckets: int
    spans: tuple[Range, ...]
    replays: bool
    region: str | None
    marks: bool
    at_once: bool
    operators: tuple[Protected, ...]

    @classmethod
    def of(
        cls,
        plan: Plan,
        site: Site,
        durable: Durable,
        layouts: Mapping[str, str],
        *,
        home: Path,
        at_once: bool = False,
    ) -> ElementProtection:
        """Take from a plan what its agent has to know."""
        operators = [(plan.graph[name], saving) for name, saving in plan.protected.items()]
        return cls(
            element=plan.name,
            home=str(home),
            site=site,
            durable=durable,
            buckets=plan.buckets,
            spans=tuple(plan.span(task) for task in range(plan.tasks)),
            replays=plan.replays,
            region=plan.region,
            marks=bool(plan.marked),
            at_once=at_once,
            operators=tuple(
                Protected(
                    name=operator.name,
                    every=saving.every,
                    keep=saving.keep,
                    group=saving.group,
                    layout=layouts[operator.name],
                    slots=plan.saved_slots(operator.name),
                    slides=tuple(f"{operator.name}/{slot}" for slot in operator.slides),
                    sealed=operator.holds_objects,
                )
                for operator, saving in operators
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """Return what :meth:`from_json` takes; the key that seals objects is not in it."""
        return {**asdict(self), "durable": self.durable.address()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ElementProtection:
        """Take a protection from another process."""
        return cls(
            element=data["element"],
            home=data["home"],
            site=Site.from_json(data["site"]),
            durable=Durable.at(**data["durable"]),
            buckets=data["buckets"],
            spans=tuple((low, high) for low, high in data["spans"]),
            replays=data["replays"],
            region=data["region"],
            marks=data["marks"],
            at_once=data["at_once"],
            operators=tuple(
                Protected(**{**o, "slots": tuple(o["slots"]), "slides": tuple(o["slides"])})
                for o in data["operators"]
            ),
        )
