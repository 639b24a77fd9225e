"""What goes wrong in the net of a model: crashes, corruption, failover, and who loses tuples by it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from riprap.model.arrays import CHECKPOINT, SCRATCH, WHOLE, Question
from riprap.model.tokens.names import TICK, NetNames
from riprap.model.wiring import Wired
from riprap.san import Activity, Case, Deterministic, Exponential, InputGate, OutputGate


class FaultNet(NetNames):
    """The part of a net that faults are."""

    def __init__(self, wired: Wired, asked: Question, *, memoryless: bool = False) -> None:
        super().__init__(wired, memoryless=memoryless)
        self.asked = asked

    def places(self) -> dict[str, int]:
        """Return the places that faults need, with their first tokens."""
        places = dict.fromkeys(("changed", "lost", "crashes", "ticking"), 0)
        for group in range(len(self.w.group_failover)):
            places |= {f"active{group}": 0, f"working{group}": 1, f"ready{group}": 1}
            if self.w.group_peer[group]:
                places |= {self.whole(group, replica): 1 for replica in (0, 1)}
            if self.w.group_kept[group]:
                places |= {self._stale(group, replica): 0 for replica in (0, 1)}
        for unit in range(len(self.wired.units)):
            places |= {f"unit{unit}.up": 1, f"unit{unit}.forced": 1}
        for port in range(len(self.w.port_node)):
            places |= {
                self.at(port, "flow"): round(self.nominal[port] * self.fine),
                self.at(port, "losing"): 0,
            }
            if self.w.size[port] > 0:
                places[self.at(port, "lost")] = 0
                for copy in self.copies(int(self.w.port_node[port])):
                    places |= {self.at(port, f"unstable{copy}_"): 0, self.at(port, f"filling{copy}_"): 0}
        return places

    def activities(self) -> Iterator[Activity]:
        """Yield what goes wrong, and what follows from it."""
        yield self._look()
        # What is lost until a recovery is counted before it, if both are due at the same time.
        yield from self._missing() if self.memoryless else self._tick()
        for node in range(len(self.names)):
            yield from self._strikes(node)
        for unit in range(len(self.wired.units)):
            yield from self._crashes(unit)
        for group in range(len(self.w.group_failover)):
            yield from self._failover(group)

    def _crashes(self, unit: int) -> Iterator[Activity]:
        members = self.wired.units[unit]
        label = f"unit{unit}"
        down = [f"{label}.up = 0", "changed = 1", "crashes += 1"]
        for node, copy in members:
            down += [f"{self.names[node]}.alive{copy} = 0", f"{self.names[node]}.struck{copy} = 0"]
            down += self._dropped(node) + self._emptied(node, copy)
        if self.asked.crash_rate[unit] > 0:
            yield Activity(
                f"{label}.crash",
                time=Exponential(float(self.asked.crash_rate[unit])),
                gates=[InputGate(when=f"{label}.up == 1"), OutputGate(then="\n".join(down))],
            )
        if np.isfinite(self.asked.crash_at[unit]):
            yield Activity(
                f"{label}.forced_crash",
                time=Deterministic(float(self.asked.crash_at[unit])),
                takes={f"{label}.forced": 1},
                gates=[OutputGate(then="\n".join(down))],
            )
        back = [f"{label}.up = 1", "changed = 1"]
        for node, copy in members:
            back += self._restored(node, copy)
        yield Activity(
            f"{label}.recover",
            time=self.lasting(float(self.asked.recovery[unit])),
            gates=[InputGate(when=f"{label}.up == 0"), OutputGate(then="\n".join(back))],
        )

    def _dropped(self, node: int) -> list[str]:
        """Write what becomes of the tuples inside an operator whose last copy crashes."""
        lines = []
        for port in self.ports(node):
            clean, bad, work, workbad = (self.at(port, what) for what in ("in", "bad", "work", "workbad"))
            if self.w.node_kept[node]:
                lines += [f"{clean} += {work}", f"{bad} += {workbad}", f"{work} = 0", f"{workbad} = 0"]
            else:
                lines += [f"lost += {clean} + {bad} + {work} + {workbad}"]
                lines += [f"{place} = 0" for place in (clean, bad, work, workbad)]
        for output in self.outputs(node):
            lines += [f"{self.out(node, output, 'send')} = 0", f"{self.out(node, output, 'sendbad')} = 0"]
        lines.append(f"{self.names[node]}.idle = 1")
        inner = "\n".join("  " + line for line in lines)
        return [f"if not {self.alive(node)}:\n{inner}"]

    def _emptied(self, node: int, copy: int) -> list[str]:
        """Write that what comes back empty, or with another copy's state, keeps no count: fewer markings."""
        if self.w.node_restore[node] != SCRATCH:
            return []
        counts = [
            self.at(port, f"{what}{copy}_")
            for port in self.stateful(node)
            for what in ("unstable", "filling")
        ]
        lost = "".join(f"\n  {self.at(port, 'lost')} = 0" for port in self.stateful(node))
        return [f"{count} = 0" for count in counts] + ([f"if not {self.alive(node)}:{lost}"] if lost else [])

    def _restored(self, node: int, copy: int) -> list[str]:
        return [*self._state_restored(node, copy), f"{self.names[node]}.alive{copy} = 1"]

    def _state_restored(self, node: int, copy: int) -> list[str]:
        name = self.names[node]
        lines: list[str] = []
        others = [f"{name}.alive{other} == 1" for other in self.copies(node) if other != copy]
        for port in self.stateful(node):
            if self.w.node_restore[node] == WHOLE:
                continue
            unstable, filling = self.at(port, f"unstable{copy}_"), self.at(port, f"filling{copy}_")
            lost = self.at(port, "lost")
            if self.w.node_restore[node] == CHECKPOINT:
                age = float(self.w.node_age[node].mean())
                lost_in_all = f"({lost} / {self.fine} + {float(self.nominal[port]) * age!r})"
                alone = [f"{unstable} = max({unstable}, {self.need(port, lost_in_all)})"]
            else:
                alone = [f"{unstable} = 0", f"{filling} = {int(self.w.size[port])}"]
            alone += [f"{lost} = 0", f"{name}.own{copy} = 1"]
            if others:
                other = 1 - copy
                handed = [
                    f"{unstable} = {self.at(port, f'unstable{other}_')}",
                    f"{filling} = {self.at(port, f'filling{other}_')}",
                ]
                lines.append(_if(" or ".join(others), handed, alone))
            else:
                lines += alone
        return lines

    def _look(self) -> Activity:
        """Make the activity that sees which tuples are lost, whenever something has failed or come back."""
        lines: list[str] = ["changed = 0"]
        for group in range(len(self.w.group_failover)):
            whole = [
                " and ".join(f"{self.names[node]}.alive0 == 1" for node in self._members(group, replica))
                for replica in (0, 1)
            ]
            lines.append(
                f"working{group} = (1 if ({whole[0]}) else 0) if active{group} == 0 else (1 if ({whole[1]}) else 0)"
            )
            lines.append(
                f"ready{group} = (1 if ({whole[1]}) else 0) if active{group} == 0 else (1 if ({whole[0]}) else 0)"
            )
        flows = self._flows()
        for port, terms in flows.items():
            lines.append(f"{self.at(port, 'flow')} = " + (" + ".join(terms) or "0"))
        lines.append("ticking = 0")
        for port in range(len(self.w.port_node)):
            lines += self._suffered(port)
        for group in range(len(self.w.group_failover)):
            if self.w.group_peer[group]:
                lines += self._joined(group)
        return Activity(
            "look",
            time=None,
            priority=10,
            gates=[InputGate(when="changed > 0"), OutputGate(then="\n".join(lines))],
        )

    def _members(self, group: int, replica: int) -> list[int]:
        return [
            node
            for node in range(len(self.names))
            if self.w.node_group[node] == group and self.w.node_replica[node] == replica
        ]

    def _stale(self, group: int, replica: int) -> str:
        return f"stale{group}_{'ab'[replica]}"

    def _joined(self, group: int) -> list[str]:
        """Write what a replica has that is whole again, and which are: until then ``whole`` says which were."""
        lines = []
        for replica in (0, 1):
            now = f"(working{group} if active{group} == {replica} else ready{group}) == 1"
            other = f"{self.whole(group, 1 - replica)} == 1 and working{group} + ready{group} == 2"
            given: list[str] = []
            restored: list[str] = []
            for node in self._members(group, replica):
                given += self._taken_over(node, int(self.w.node_twin[node]))
                restored += self._state_restored(node, 0)
            body = _nested(f"if {other}:", given)
            if self.w.group_kept[group]:
                stale = self._stale(group, replica)
                body += _nested(f"elif {stale} == 1:", restored) if restored else []
                body += [f"{stale} = 0"]
            lines += _nested(f"if {self.whole(group, replica)} == 0 and {now}:", body)
            lines += [f"{self.whole(group, replica)} = 1 if {now} else 0"]
        for replica in (0, 1) if self.w.group_kept[group] else ():
            behind = f"{self.whole(group, replica)} == 0 and {self.whole(group, 1 - replica)} == 1"
            lines += _nested(f"if {behind}:", [f"{self._stale(group, replica)} = 1"])
        return lines

    def _taken_over(self, node: int, twin: int) -> list[str]:
        """Write that an operator of a replica has the state of the other's, which had what waited for it."""
        lines = []
        if self.stateful(node):
            lines.append(f"{self.names[node]}.own0 = {self.names[twin]}.own0")
        for port, other in zip(self.ports(node), self.ports(twin), strict=True):
            if self.w.size[port] > 0:
                lines += [
                    f"{self.at(port, what)} = {self.at(other, what)}"
                    for what in ("unstable0_", "filling0_", "lost")
                ]
            if self.keeps(node):
                lines += [f"{self.at(port, what)} = 0" for what in ("in", "bad")]
        return lines or ["changed = 0"]

    def _flows(self) -> dict[int, list[str]]:
        """Write the tuples a second at each port, in fine parts of one, as what comes from the ports before it."""
        flows: dict[int, list[str]] = {
            port: [str(round(float(rate) * self.fine))] if rate > 0 else []
            for port, rate in enumerate(self.w.port_rate)
        }
        for node in range(len(self.names)):
            passes = "1" if self.w.node_kept[node] else f"(1 if {self.alive(node)} else 0)"
            for port in self.ports(node):
                for output in self.outputs(node):
                    share = float(self.w.clean[port, output - self.w.node_outputs[node]])
                    for link in range(self.w.output_links[output], self.w.output_links[output + 1]):
                        if share == 0:
                            continue
                        group, gate = int(self.w.link_group[link]), ""
                        if group >= 0:
                            replica = int(self.w.node_replica[node])
                            gate = f" * (1 if active{group} == {replica} else 0)"
                            gate += "" if self.keeps(node) else f" * working{group}"
                        flows[int(self.w.link_port[link])].append(
                            f"floor({self.at(port, 'flow')} * {share!r} * {passes}{gate} + 0.5)"
                        )
        return flows

    def _suffered(self, port: int) -> list[str]:
        node = int(self.w.port_node[port])
        losing, nominal = self.at(port, "losing"), round(float(self.nominal[port]) * self.fine)
        # Rounding at each operator on the way must not pass for loss.
        missing = f"{nominal} - {self.at(port, 'flow')}"
        now = f"({missing} if {missing} > {max(10, nominal // 10**6)} else 0)"
        if not self.w.node_kept[node]:
            now = f"({now} if {self.alive(node)} else {nominal})"
        lines = []
        if self.w.size[port] > 0:
            lost = self.at(port, "lost")
            hurt = []
            for copy in self.copies(node):
                unstable = self.at(port, f"unstable{copy}_")
                need = self.need(port, f"({lost} / {self.fine})")
                hurt.append(
                    f"if {self.names[node]}.alive{copy} == 1:\n    {unstable} = max({unstable}, {need})"
                )
            body = "\n  ".join([*hurt, f"{lost} = 0"])
            lines.append(f"if {losing} > 0 and {now} == 0 and {lost} > 0:\n  {body}")
        lines.append(f"{losing} = {now}")
        lines.append(f"if {losing} > 0:\n  ticking = 1")
        return lines

    def _tick(self) -> Iterator[Activity]:
        lines = [
            f"{self.at(port, 'lost')} += floor({self.at(port, 'losing')} * {TICK} + 0.5)"
            for port in range(len(self.w.port_node))
            if self.w.size[port] > 0
        ]
        if lines:
            yield Activity(
                "tick",
                time=Deterministic(TICK),
                gates=[InputGate(when="ticking == 1"), OutputGate(then="\n".join(lines))],
            )

    def _missing(self) -> Iterator[Activity]:
        """Yield what counts lost tuples one by one, as many as make a difference, where the net is memoryless."""
        for node in range(len(self.names)):
            for port in self.stateful(node):
                losing, lost = self.at(port, "losing"), self.at(port, "lost")
                when = f"{losing} > 0 and {lost} < {self.most_lost(port) * self.fine}"
                # What comes back empty does not ask what it lost while it was down.
                if self.w.node_restore[node] == SCRATCH:
                    when += f" and {self.alive(node)}"
                yield Activity(
                    self.at(port, "miss"),
                    time=Exponential(f"{losing} / {self.fine}"),
                    gates=[InputGate(when=when), OutputGate(then=f"{lost} += {self.fine}")],
                )

    def _strikes(self, node: int) -> Iterator[Activity]:
        rate = float(self.asked.corruption_rate[node])
        fed = any(self.nominal[port] > 0 for port in self.ports(node))
        for copy in self.copies(node) if rate > 0 and fed else ():
            name = self.names[node]
            one = Case(0.5 if self.stateful(node) else 1, then=f"{name}.struck{copy} += 1")
            cases = [one]
            if self.stateful(node):
                lines = []
                for port in self.stateful(node):
                    unstable = self.at(port, f"unstable{copy}_")
                    lines.append(f"{unstable} = max({unstable}, {self.hurt_by_taint(port)})")
                cases.append(Case(0.5, then="\n".join(lines)))
            yield Activity(
                f"{name}.strike{copy}",
                time=Exponential(rate),
                gates=[InputGate(when=f"{name}.alive{copy} == 1")],
                cases=cases,
            )

    def _failover(self, group: int) -> Iterator[Activity]:
        yield Activity(
            f"failover{group}",
            time=self.lasting(float(self.w.group_failover[group])),
            gates=[
                InputGate(when=f"working{group} == 0 and ready{group} == 1"),
                OutputGate(then=f"active{group} = 1 - active{group}\nchanged = 1"),
            ],
        )


def _nested(head: str, body: list[str]) -> list[str]:
    return [head, *("  " + line for text in body for line in text.split("\n"))]


def _if(condition: str, then: list[str], otherwise: list[str]) -> str:
    inner, outer = ("\n".join("  " + line for line in lines) for lines in (then, otherwise))
    return f"if {condition}:\n{inner}\nelse:\n{outer}"
