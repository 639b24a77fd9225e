"""Describing a dataflow: operators, streams, windows and policies as values. Nothing here runs anything."""

from riprap.graph.application import Application
from riprap.graph.graph import Graph
from riprap.graph.loading import load
from riprap.graph.stream import Stream

__all__ = ["Application", "Graph", "Stream", "load"]
