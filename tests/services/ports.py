"""Free ports on loopback that stay free while their server is down."""

from __future__ import annotations

import random
import socket
from pathlib import Path

HOST = "127.0.0.1"

_LOWEST = 10240
_given: set[int] = set()


def _first_ephemeral() -> int:
    """Return the first port the system hands to outgoing connections."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        first = 49152
    return first if first > _LOWEST + 1000 else 65536


def free_port() -> int:
    """Return a port nobody listens on, never the same one twice.

    It lies below the ports of outgoing connections. From among those, a client that tries again and again to reach
    a dead server could be given the server's port, and would then be connected to itself.
    """
    end = _first_ephemeral()
    for _ in range(1000):
        port = random.randrange(_LOWEST, end)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise RuntimeError(f"no free port between {_LOWEST} and {end} on {HOST}")
