"""The places of a model's net by name, and the conditions that are made of them."""

from __future__ import annotations

import keyword
import math
import re

from riprap.model.wiring import Wired
from riprap.san import Deterministic, Distribution, Exponential

# Lost tuples are counted by the tick.
TICK = 0.01


class NetNames:
    """What is called what in the net of a model, and how long things take in it.

    ``memoryless`` times are exponential with the same means, and processing takes none: such a net can be solved.
    """

    def __init__(self, wired: Wired, *, memoryless: bool = False) -> None:
        self.wired = wired
        self.w = wired.wiring
        self.memoryless = memoryless
        # Of one tuple: flows and lost tuples are counted in these, since places hold whole numbers.
        self.fine = 10**9 if memoryless else 1000
        self.nominal = wired.flows()
        plain = [re.sub(r"\W", "_", node.part.name) for node in wired.nodes]
        self.names = [
            (name if name[:1].isalpha() and not keyword.iskeyword(name) else f"o{name}")
            + (f"_{'ab'[node.replica]}" if node.protection.group is not None else "")
            for name, node in zip(plain, wired.nodes, strict=True)
        ]

    def lasting(self, seconds: float) -> Distribution | None:
        """Return the time of what takes so many seconds, or does on average."""
        if not self.memoryless:
            return Deterministic(seconds)
        return Exponential(1.0 / seconds) if seconds > 0 else None

    def counters(self) -> dict[str, list[str]]:
        """Return the places that only count, by what they count together and, of tainted tuples, by sink."""
        named = zip(self.names, self.wired.nodes, strict=True)
        sinks = {node.part.name: name for name, node in named if node.part.sink}
        return {
            "tainted": [f"{name}.tainted" for name in sinks.values()],
            "clean": [f"{name}.clean" for name in sinks.values()],
            "lost": ["lost"],
            "crashes": ["crashes"],
            **{f"tainted at {sink}": [f"{name}.tainted"] for sink, name in sinks.items()},
        }

    def ports(self, node: int) -> range:
        return range(self.w.node_ports[node], self.w.node_ports[node + 1])

    def outputs(self, node: int) -> range:
        return range(self.w.node_outputs[node], self.w.node_outputs[node + 1])

    def copies(self, node: int) -> range:
        return range(int(self.w.node_copies[node]))

    def stateful(self, node: int) -> list[int]:
        return [port for port in self.ports(node) if self.w.size[port] > 0]

    def at(self, port: int, what: str) -> str:
        node = int(self.w.port_node[port])
        return f"{self.names[node]}.{what}{port - self.w.node_ports[node]}"

    def held(self, link: int, kind: str) -> str:
        return f"link{link}.held{kind}"

    def out(self, node: int, output: int, what: str) -> str:
        return f"{self.names[node]}.{what}{output - self.w.node_outputs[node]}"

    def alive(self, node: int) -> str:
        return "(" + " or ".join(f"{self.names[node]}.alive{copy} == 1" for copy in self.copies(node)) + ")"

    def keeps(self, node: int) -> bool:
        """Say whether a node is in a group that keeps what it puts out, and so runs as a whole or not at all."""
        group = int(self.w.node_group[node])
        return group >= 0 and bool(self.w.group_kept[group])

    def whole(self, group: int, replica: int) -> str:
        return f"whole{group}_{'ab'[replica]}"

    def runs(self, node: int) -> str:
        """Write whether a node processes what comes in."""
        if not self.keeps(node):
            return self.alive(node)
        return f"({self.whole(int(self.w.node_group[node]), int(self.w.node_replica[node]))} == 1)"

    def ill(self, node: int, copy: int) -> str:
        bad = [
            f"{self.at(port, f'unstable{copy}_')} > 0 or {self.at(port, 'losing')} > 0"
            for port in self.stateful(node)
        ]
        return f"({' or '.join(bad)})" if bad else "False"

    def filling(self, node: int, copy: int) -> str:
        bad = [f"{self.at(port, f'filling{copy}_')} > 0" for port in self.stateful(node)]
        return f"({' or '.join(bad)})" if bad else "False"

    def any_copy(self, node: int, condition: list[str]) -> str:
        each = [f"({self.names[node]}.alive{copy} == 1 and {condition[copy]})" for copy in self.copies(node)]
        return f"({' or '.join(each)})"

    def is_up(self, *, alone: bool = False) -> str:
        """Write whether every operator has a copy that is well, or would have if faults did not spread."""
        operators: dict[int, list[str]] = {}
        for node in range(len(self.names)):
            good = [
                self.not_by_itself(node, copy)
                if alone
                else f"not {self.ill(node, copy)} and not {self.filling(node, copy)}"
                for copy in self.copies(node)
            ]
            up, group = self.any_copy(node, good), int(self.w.node_group[node])
            if group >= 0:
                up = f"(active{group} == {int(self.w.node_replica[node])} and {up})"
            operators.setdefault(int(self.w.node_operator[node]), []).append(up)
        return "1 if " + " and ".join(f"({' or '.join(each)})" for each in operators.values()) + " else 0"

    def not_by_itself(self, node: int, copy: int) -> str:
        """Write whether a copy has got over its own last crash."""
        return f"{self.names[node]}.own{copy} == 0" if self.stateful(node) else "True"

    def deliver(self, port: int, kind: str, count: int) -> str:
        node = int(self.w.port_node[port])
        put = f"{self.at(port, kind)} += {count}"
        if self.keeps(node):
            # While the other replica has it, nobody will ask this one for it.
            other = self.whole(int(self.w.node_group[node]), 1 - int(self.w.node_replica[node]))
            return f"if {self.runs(node)} or {other} == 0:\n  {put}"
        return put if self.w.node_kept[node] else f"if {self.alive(node)}:\n  {put}\nelse:\n  lost += {count}"

    def hurt_by_taint(self, port: int) -> int:
        return int(self.w.hurt[port])

    def most_lost(self, port: int) -> int:
        """Return how many lost tuples make a port as unstable as it can be."""
        alpha, beta, gamma = (float(a[port]) for a in (self.w.alpha, self.w.beta, self.w.gamma))
        more = (gamma - alpha) * float(self.w.size[port])
        return max(1, math.ceil(more / beta)) if beta > 0 else 1

    def need(self, port: int, lost: str) -> str:
        size = float(self.w.size[port])
        alpha, beta, gamma = (float(a[port]) for a in (self.w.alpha, self.w.beta, self.w.gamma))
        return f"floor(min({alpha * size!r} + {beta!r} * {lost}, {gamma * size!r}))"
