"""Elements marked as a consistent region, whatever their operators say of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from riprap.compiler import Layout, compile_graph
from riprap.graph.regions import Region
from riprap.protection import RegionTerms
from riprap.runtime.supervision import supervisor


def mark(layout: Layout, regions: dict[str, list[str]], *, limit: int, timeout: float) -> Layout:
    """Return a layout in which these elements, by region, are in regions."""
    terms = RegionTerms(
        trigger="periodic",
        period=2.0,
        drain_timeout=60.0,
        reset_timeout=timeout,
        max_consecutive_reset_attempts=limit,
        durable="host",
    )
    homes = {element: region for region, elements in regions.items() for element in elements}
    return replace(
        layout,
        plans=tuple(replace(plan, region=homes.get(plan.name)) for plan in layout.plans),
        regions=tuple(
            Region(
                name=name,
                terms=terms,
                starts=(name,),
                operators=(name,),
                ends=(),
                reasons={},
                autonomous_ports={},
            )
            for name in regions
        ),
    )


def mark_all(
    monkeypatch: pytest.MonkeyPatch, regions: dict[str, list[str]], *, limit: int = 2, timeout: float = 120.0
) -> None:
    """Let every supervisor of the test find these elements in regions."""

    def compiled(*args: Any, **options: Any) -> Layout:
        return mark(compile_graph(*args, **options), regions, limit=limit, timeout=timeout)

    monkeypatch.setattr(supervisor, "compile_graph", compiled)
