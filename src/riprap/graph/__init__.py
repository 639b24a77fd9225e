"""Describing a dataflow: streams, operators, policies and the graph of them as values. Nothing here runs anything."""

from riprap.graph.graph import Graph
from riprap.graph.stream import Stream

__all__ = ["Graph", "Stream"]
