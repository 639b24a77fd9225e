"""The process that an agent is.

python -m riprap.runtime.agent IN OUT          the descriptors of its two pipes
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from importlib.abc import MetaPathFinder
from pathlib import Path

import psutil

from riprap.errors import FormatError, RiprapError
from riprap.runtime.agent import FORMAT
from riprap.runtime.agent.element import DriverGoneError, KeptElement
from riprap.runtime.checkpointing.protection import ElementProtection
from riprap.runtime.checkpointing.schedule import FreshPage, Status
from riprap.runtime.link import Link, Message
from riprap.state.checkpoints.increments import load_compiled
from riprap.state.leases import sweep
from riprap.state.ledger import BatchRecord
from riprap.state.pages import page_root

# Batches come first; but one that gets no processor at all would let pages pile up.
_NICE = 5
_SWEEP_SECONDS = 600.0


class Agent:
    """Does what the driver says, until the driver is gone."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._turn = threading.Lock()
        self._elements: dict[str, KeptElement] = {}

    def serve(self) -> None:
        """Heed messages; when there are no more, finish what is being saved."""
        for message in self._link.messages():
            match message:
                case {"say": "open"}:
                    self._open(message)
                case {"say": "batch", "place": place} if place in self._elements:
                    self._elements[place].take(
                        BatchRecord.from_json(message["record"]),
                        [FreshPage(slot, (low, high), page) for slot, (low, high), page in message["fresh"]],
                        message["entered"],
                        message["waiting"],
                    )
                case {"say": "waiting", "place": place, "waiting": waiting} if place in self._elements:
                    self._elements[place].wait_from(waiting)
                case {"say": "close", "place": place, "save": save}:
                    if place in self._elements:
                        self._elements.pop(place).close(save=save)
                    self._link.send("closed", place=place)
        for element in self._elements.values():
            element.close(save=False)

    def _open(self, message: Message) -> None:
        place = message["protection"]["home"]
        try:
            if message["format"] != FORMAT:
                raise FormatError(
                    f"the agent speaks {FORMAT}, the driver {message['format']}: install one version of Riprap"
                )
            record = message["record"]
            self._elements[place] = KeptElement(
                ElementProtection.from_json(message["protection"]),
                Path(message["folder"]),
                BatchRecord.from_json(record) if record is not None else None,
                message["waiting"],
                {operator: Status(**status) for operator, status in message["statuses"].items()},
                self._turn,
                self._link,
            )
        except DriverGoneError:
            # It started too late, and nobody listens.
            return
        except (RiprapError, OSError) as error:
            self._link.send("refused", place=place, error=type(error).__name__, message=str(error))
        else:
            self._link.send("opened", place=place)


class _WithoutPandas(MetaPathFinder):
    """Arrow imports pandas, where it is there, for the first array it makes: a third of a second, for nothing."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the agent has no use for pandas", name=name)


def step_back() -> None:
    """Let others go first, with processors and disks."""
    os.nice(_NICE)
    with contextlib.suppress(psutil.Error, OSError, AttributeError):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_BE, 7)
    # Where the kernel schedules sessions, a process's own priority counts only within its session.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICE))


def _sweep_now_and_then() -> None:
    while True:
        time.sleep(_SWEEP_SECONDS)
        sweep(page_root())


def main() -> None:
    """Serve until the driver closes its pipe, or dies."""
    incoming, outgoing = int(sys.argv[1]), int(sys.argv[2])
    for number in (incoming, outgoing):
        os.set_inheritable(number, False)
    step_back()
    sys.meta_path.insert(0, _WithoutPandas())
    load_compiled()
    threading.Thread(target=_sweep_now_and_then, name="sweep", daemon=True).start()
    Agent(Link(incoming, outgoing)).serve()
    sys.stderr.flush()
    # All that counts is saved, and nobody waits for what is left.
    os._exit(0)


if __name__ == "__main__":
    main()
