"""Models of faults, a file each: what happens to tuples on their way into an operator."""

from __future__ import annotations

from collections.abc import Mapping

from riprap.faults.models.corruption import Corruption
from riprap.faults.models.duplication import Duplication
from riprap.faults.models.lag import Lag
from riprap.faults.models.lateness import Lateness
from riprap.faults.models.loss import Loss
from riprap.faults.models.reordering import Reordering
from riprap.graph.faults import FaultModel

# What they are called in a campaign file; a lag is not one to choose, but what interleaving is made of.
MODELS: Mapping[str, type[FaultModel]] = {
    "loss": Loss,
    "duplication": Duplication,
    "delay": Lateness,
    "reordering": Reordering,
    "corruption": Corruption,
}

__all__ = ["MODELS", "Corruption", "Duplication", "Lag", "Lateness", "Loss", "Reordering"]
