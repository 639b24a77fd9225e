"""Streams between processing elements: an append-only log in a folder, with one writer and several readers."""

from __future__ import annotations

from riprap.channels.folder import Channel
from riprap.channels.log import ChannelWriter
from riprap.channels.reader import ChannelReader
from riprap.channels.replicas import ReplicatedReader
from riprap.channels.segment import Footer

__all__ = ["Channel", "ChannelReader", "ChannelWriter", "Footer", "ReplicatedReader"]
