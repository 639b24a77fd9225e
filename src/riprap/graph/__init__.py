"""Describing a dataflow: operators, streams, windows and policies as values. Nothing here runs anything."""

from riprap.graph.application import Application, Stream, load
from riprap.graph.graph import Graph

__all__ = ["Application", "Graph", "Stream", "load"]
