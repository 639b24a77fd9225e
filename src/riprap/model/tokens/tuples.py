"""What happens to tuples in the net of a model: they come, are processed one at a time, and are sent on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from riprap.model.tokens.names import NetNames
from riprap.san import Activity, Case, Deterministic, InputGate, OutputGate

# Tuples that wait in front of a port before those who send to it have to wait.
_BUFFER = 1000


class TupleNet(NetNames):
    """The part of a net that tuples pass through."""

    def places(self) -> dict[str, int]:
        """Return the places of all operators, with their first tokens."""
        return {
            place: tokens
            for node in range(len(self.names))
            for place, tokens in self._places_of(node).items()
        }

    def activities(self) -> Iterator[Activity]:
        """Yield what happens to tuples, operator by operator."""
        for node in range(len(self.names)):
            yield from self._arrivals(node)
            for port in self.ports(node):
                yield from self._processing(node, port)
            yield from self._sending(node)
        yield from self._late()

    def _places_of(self, node: int) -> dict[str, int]:
        name = self.names[node]
        places = {f"{name}.idle": 1}
        for copy in self.copies(node):
            places |= {f"{name}.alive{copy}": 1, f"{name}.struck{copy}": 0}
            if self.stateful(node):
                places[f"{name}.own{copy}"] = 0
        if self.w.node_sink[node] >= 0:
            places |= {f"{name}.clean": 0, f"{name}.tainted": 0}
        for port in self.ports(node):
            places |= {self.at(port, what): 0 for what in ("in", "bad", "work", "workbad")}
        for output in self.outputs(node):
            places |= {self.out(node, output, what): 0 for what in ("send", "sendbad")}
            if self.keeps(node):
                places |= {
                    self.held(link, kind): 0 for link in self._leaving(output) for kind in ("in", "bad")
                }
        return places

    def _leaving(self, output: int) -> list[int]:
        """List the connections by which what is put out leaves a group."""
        links = range(int(self.w.output_links[output]), int(self.w.output_links[output + 1]))
        return [link for link in links if self.w.link_group[link] >= 0]

    def _arrivals(self, node: int) -> Iterator[Activity]:
        for port in self.ports(node):
            if self.w.port_rate[port] > 0:
                # Whatever becomes of the tuple, the next one comes as it would have.
                then = self.deliver(port, "in", 1)
                yield Activity(
                    self.at(port, "arrive"),
                    time=self.lasting(1.0 / float(self.w.port_rate[port])),
                    gates=[OutputGate(then=then)],
                )

    def _processing(self, node: int, port: int) -> Iterator[Activity]:
        name = self.names[node]
        for waiting, working in (("in", "work"), ("bad", "workbad")):
            yield Activity(
                self.at(port, f"start_{waiting}"),
                time=None,
                priority=self._turn(node),
                takes={f"{name}.idle": 1, self.at(port, waiting): 1},
                puts={self.at(port, working): 1},
                gates=[InputGate(when=self.runs(node))],
            )
            tainted = working == "workbad"
            yield Activity(
                self.at(port, f"process_{waiting}"),
                time=None if self.memoryless else Deterministic(self._seconds(node, port)),
                priority=self._turn(node) if self.memoryless else 0,
                takes={self.at(port, working): 1},
                puts={f"{name}.idle": 1} if not self.outputs(node) else {},
                cases=list(self._cases(node, port, tainted)),
            )

    def _seconds(self, node: int, port: int) -> float:
        return float(self.wired.nodes[node].part.entries[port - self.w.node_ports[node]].port.time)

    def _turn(self, node: int) -> int:
        """Return the priority of what an operator does at once: where all is, upstream comes first."""
        return -node if self.memoryless else 0

    def _cases(self, node: int, port: int, tainted: bool) -> Iterator[Case]:
        after = self._taken_in(node, port, tainted)
        if self.w.node_sink[node] >= 0:
            name = self.names[node]
            struck = f"if {name}.struck0 > 0:\n  {name}.tainted += 1\nelse:\n  {name}.clean += 1"
            yield Case(1, then=(f"{name}.tainted += 1" if tainted else struck) + after)
            return
        if not self.outputs(node):
            yield Case(1, then=after.lstrip("\n"))
            return
        ill = self.any_copy(node, [self.ill(node, copy) for copy in self.copies(node)])
        whole = self.any_copy(node, [f"not {self.ill(node, copy)}" for copy in self.copies(node)])
        sound = self.any_copy(
            node, [f"not {self.ill(node, c)} and not {self.filling(node, c)}" for c in self.copies(node)]
        )
        struck = "(" + " or ".join(f"{self.names[node]}.struck{copy} > 0" for copy in self.copies(node)) + ")"
        alone = "(" + " + ".join(f"{self.names[node]}.alive{copy}" for copy in self.copies(node)) + " == 1)"
        comes_clean = "False" if tainted else f"({whole} and not ({struck} and {alone}))"
        comes_tainted = "True" if tainted else f"({ill} or {struck})"
        for probability, sent in self._combinations(node, port, comes_clean, comes_tainted, sound):
            back = "" if sent else f"\n{self.names[node]}.idle += 1"
            yield Case(probability, then="\n".join(sent) + back + after)

    def _combinations(
        self, node: int, port: int, comes_clean: str, comes_tainted: str, sound: str
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield all that may come out for one tuple: its probability, and what is sent."""
        options: list[list[tuple[str, list[str]]]] = []
        for kind, comes in (("send", comes_clean), ("sendbad", comes_tainted)):
            if comes == "False":
                continue
            chances = []
            for output in self.outputs(node):
                place = output - int(self.w.node_outputs[node])
                if kind == "sendbad":
                    share = f"{float(self.w.tainted[port, place])!r}"
                elif self.stateful(node):
                    full, part = float(self.w.clean[port, place]), float(self.w.scratch[port, place])
                    share = f"({full!r} if {sound} else {part!r})"
                else:
                    share = f"{float(self.w.clean[port, place])!r}"
                most = float(max(table[port, place] for table in (self.w.clean, self.w.tainted)))
                if most == 0.0:
                    continue
                chances.append((self.out(node, output, kind), share, most))
            if self.w.exclusive[port]:
                each = [(f"({share} if {comes} else 0)", [f"{sent} += 1"]) for sent, share, _ in chances]
                rest = "max(0, 1 - " + " - ".join(p for p, _ in each) + ")"
                options.append([*each, (rest, [])])
                continue
            for sent, share, most in chances:
                options.append(list(_counts(sent, share, comes, most)))
        combined: list[tuple[str, list[str]]] = [("1", [])]
        for option in options:
            combined = [(f"{p} * {q}", [*sent, *more]) for p, sent in combined for q, more in option]
        yield from combined

    def _taken_in(self, node: int, port: int, tainted: bool) -> str:
        lines: list[str] = []
        for copy in self.copies(node):
            struck = f"{self.names[node]}.struck{copy}"
            effects: list[str] = []
            if not tainted:
                effects.append(f"{struck} = max(0, {struck} - 1)")
            if self.w.size[port] > 0:
                unstable, filling = self.at(port, f"unstable{copy}_"), self.at(port, f"filling{copy}_")
                hurt = self.hurt_by_taint(port)
                effects.append(
                    f"{unstable} = " + (f"max({unstable}, {hurt})" if tainted else f"max(0, {unstable} - 1)")
                )
                effects.append(f"{filling} = max(0, {filling} - 1)")
                healed = f"not {self.ill(node, copy)} and not {self.filling(node, copy)}"
                effects.append(f"if {healed}:\n    {self.names[node]}.own{copy} = 0")
            if effects:
                lines.append(f"if {self.names[node]}.alive{copy} == 1:\n  " + "\n  ".join(effects))
        return "".join(f"\n{line}" for line in lines)

    def _sending(self, node: int) -> Iterator[Activity]:
        for output in self.outputs(node):
            links = range(self.w.output_links[output], self.w.output_links[output + 1])
            room = " and ".join(
                f"({self.at(p, 'in')} + {self.at(p, 'bad')} < {_BUFFER})"
                for p in (int(self.w.link_port[link]) for link in links)
                if not self.w.node_kept[self.w.port_node[p]]
            )
            for kind, into in (("send", "in"), ("sendbad", "bad")):
                lines = []
                for link in links:
                    put = self.deliver(int(self.w.link_port[link]), into, 1)
                    group = int(self.w.link_group[link])
                    if group >= 0:
                        inner = "\n".join("  " + line for line in put.split("\n"))
                        replica = int(self.w.node_replica[node])
                        put = f"if working{group} == 1 and active{group} == {replica}:\n{inner}"
                        if self.keeps(node):
                            waits = f"working{group} == 0 and active{group} != {replica}"
                            put += f"\nelif {waits}:\n  {self.held(link, into)} += 1"
                    lines.append(put)
                rest = " + ".join(
                    self.out(node, o, k) for o in self.outputs(node) for k in ("send", "sendbad")
                )
                back = f"if {rest} == 0:\n  {self.names[node]}.idle += 1"
                yield Activity(
                    self.out(node, output, f"{kind}_on_"),
                    time=None,
                    priority=self._turn(node),
                    takes={self.out(node, output, kind): 1},
                    gates=[
                        *([InputGate(when=room)] if room else []),
                        OutputGate(then="\n".join([*lines, back])),
                    ],
                )

    def _late(self) -> Iterator[Activity]:
        """Yield what lets tuples go on that a group has put out while none of its replicas was active."""
        for node in filter(self.keeps, range(len(self.names))):
            for output in self.outputs(node):
                for link in self._leaving(output):
                    for kind in ("in", "bad"):
                        yield Activity(
                            f"{self.held(link, kind)}.late",
                            time=None,
                            priority=self._turn(node),
                            takes={self.held(link, kind): 1},
                            gates=[
                                InputGate(when=f"working{int(self.w.link_group[link])} == 1"),
                                OutputGate(then=self.deliver(int(self.w.link_port[link]), kind, 1)),
                            ],
                        )


def _counts(place: str, share: str, comes: str, most: float) -> Iterator[tuple[str, list[str]]]:
    """Yield how many tuples come out, each with its probability: the whole part of the share, or one more."""
    for count in range(int(np.ceil(most)) + 1):
        chance = f"max(0, 1 - abs({share} - {count}))"
        chance = f"({chance} if {comes} else {1 if count == 0 else 0})"
        yield chance, [f"{place} += {count}"] if count else []
