"""Test applications, and what is plugged into them, without Spark."""

from __future__ import annotations

from riprap.testing.element import forget_instances
from riprap.testing.rehearsal import Rehearsal

__all__ = ["Rehearsal", "forget_instances"]
