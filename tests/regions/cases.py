"""The table of the fault matrix: each line is a case.

A case is the lives of one run: what happens in each, whether the host's memory goes with it, and a last life in which
nothing happens. Faults are said in words:

    driver@recorded:60          the driver dies by SIGKILL at a step of a batch (``*``: of whichever)
    driver@checkpoint-values:3  the same at a step of an agent that saves (`runtime/crash.py` has all steps)
    worker@paged:60, agent@checkpoint-values:3      a worker, or the agent, does
    error:1400, worker:1400, jvm:1400, driver:1400, driver+jvm:1400, agent:1400, supervisor:1400
                                something happens to who works on tuple 1400, or to who it works for
    store-down:400, store-up:900    checkpoints cannot be written in between
    server-down:300, server-up:1000     the server of the store is killed, and started again
    refused       the run is taken up while checkpoints cannot be read, which is an error; then they can be
    unmounted     the same, where there is nothing in the store's folder
    supervisor@region-halted:*  the supervisor dies at a step of its own
    reset         of a supervised run, what is halted is to begin anew
    executor:1400 Spark's executor, which is a process of its own then, dies
    host:1200                   of a supervised run, the driver and all it started die, and its pages go
    table:1200                  the table of a lookup changes

Who is to die while a cut is read needs one: in the first life, what reads is held up until a cut is complete. Who is
to die when a batch was computed again needs one that no cut has: in the first life agents stand still at some time,
for where batches are slow each may have been saved. Tasks read batches in a step of their own only if these are large;
where they are to die in it, those of a few rows are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

DRIVER_STEPS = ("gathered", "recorded", "published", "collected")
WORKER_STEPS = ("read", "shared", "computed", "paged", "answered")
AGENT_STEPS = ("values", "between", "manifest", "versioned", "collecting")
BACK_STEPS = ("restore-read:0", "restore-paged:0", "restore-recorded:*", "computed-again:*")
KILLS = ("driver", "driver+jvm", "supervisor")


@dataclass(frozen=True)
class Life:
    """What happens in a life of a run, and to the memory of the host when it ends."""

    faults: tuple[str, ...]
    wiped: bool = False
    supervised: bool = False

    @property
    def crash_at(self) -> str | None:
        """The step at which a process dies, as `runtime/crash.py` takes it."""
        for fault in self.faults:
            who, _, step = fault.partition("@")
            if step:
                return f"parent@{step}" if who == "driver" and step.startswith("checkpoint-") else step
        return None

    @property
    def reads_apart(self) -> bool:
        """Whether a worker dies in a step in which tasks read, and do no more."""
        return (self.crash_at or "").partition(":")[0] in ("read", "shared")

    @property
    def others_first(self) -> bool:
        """Whether a worker or an agent is to die at a step of its own, before a driver does."""
        return any(fault.startswith(("worker@", "agent@")) for fault in self.faults)

    @property
    def traps(self) -> tuple[tuple[str, int], ...]:
        """What happens at which tuple."""
        parted = (fault.partition(":") for fault in self.faults if "@" not in fault and ":" in fault)
        return tuple((what, int(seq)) for what, _, seq in parted)

    @property
    def killed(self) -> bool:
        """Whether the process that the test has started dies."""
        words = {what for what, _ in self.traps} | {f.partition("@")[0] for f in self.faults if "@" in f}
        return bool(words & set(KILLS[2:] if self.supervised else KILLS))

    @property
    def cluster(self) -> bool:
        """Whether executors are processes of their own."""
        return "executor" in dict(self.traps)

    @property
    def fails(self) -> bool:
        """Whether the run ends with an error."""
        return self.refused or (
            not self.supervised and any(what in ("error", "jvm") for what, _ in self.traps)
        )

    @property
    def ends(self) -> bool:
        """Whether the run comes to its end."""
        return not self.killed and not self.fails

    @property
    def loses_memory(self) -> bool:
        """Whether the memory of the host goes, when it ends or on the way."""
        return self.wiped or "host" in dict(self.traps)

    @property
    def refused(self) -> bool:
        """Whether it does not come to anything."""
        return "refused" in self.faults or "unmounted" in self.faults

    @property
    def apart(self) -> bool:
        """Whether it takes a process of its own."""
        return (
            self.killed
            or self.supervised
            or bool(self.crash_at)
            or bool({"jvm", "executor"} & set(dict(self.traps)))
        )


@dataclass(frozen=True)
class Case:
    """A run of a topology, with a kind of sink, that goes through some lives."""

    topology: str
    lives: tuple[Life, ...]
    sink: str = "each"
    period: str = "100ms"
    store: str = "folder"

    @property
    def quick(self) -> bool:
        """Whether it is one of those that are run with all tests."""
        return self in QUICK

    @property
    def restored(self) -> str | None:
        """The element that somebody dies of while its cut is read, "" if it may be any; None if nobody dies then."""
        for life in self.lives:
            step, _, rest = (life.crash_at or "").partition(":")
            if step.startswith("restore-"):
                return rest.partition(":")[2]
        return None

    @property
    def computes_again(self) -> bool:
        """Whether somebody dies when a batch was computed again."""
        return any((life.crash_at or "").startswith("computed-again") for life in self.lives)

    @property
    def attempts(self) -> int:
        """How many attempts are made to bring a region back before it is halted."""
        return 1 if any("region-halted" in fault for life in self.lives for fault in life.faults) else 5

    @property
    def id(self) -> str:
        lives = (
            ("+".join(life.faults) or "nothing")
            + ("-wiped" if life.wiped else "")
            + ("-supervised" if life.supervised else "")
            for life in self.lives
        )
        slow = "" if self.period == "100ms" else f"-cut-{self.period}"
        store = "" if self.store == "folder" else f"-on-{self.store}"
        return f"{self.topology}-{self.sink}{store}{slow}-{'-then-'.join(lives)}"


def life(*faults: str, wiped: bool = False, supervised: bool = False) -> Life:
    """Describe a life."""
    return Life(faults, wiped, supervised)


ALL = (
    "chain", "diamond", "sources", "aligned", "sinks", "regions", "loop", "mixed", "elements", "spark", "lookup",
    "toolkit", "clock", "dice", "byfile",
)  # fmt: skip
# Three that differ most in how they come back, for what need not be tried with all.
SOME = ("chain", "elements", "sinks")

QUICK: Sequence[Case] = (
    Case("toolkit", (life("error:1400", wiped=True),)),
    Case("elements", (life("error:900", wiped=True), life("error:1700", wiped=True)), "each", "500ms"),
    Case("loop", (life("worker:700", "error:1400", wiped=True),), "sqlite"),
    Case("spark", (life("error:1400", wiped=True),)),
    Case("mixed", (life("agent:700", "error:1400", wiped=True),)),
    Case("lookup", (life("table:800", "table:1300", "error:1400", wiped=True),)),
    Case("chain", (life("store-down:300", "store-up:1000", "error:1700", wiped=True),), "rolled"),
    Case("diamond", (life("driver@published:60", wiped=True), life("driver@computed-again:*", wiped=True))),
    Case("sinks", (life("driver@checkpoint-manifest:3", wiped=True),)),
)


def _matrix() -> Iterator[Case]:
    for topology in ALL:
        for wiped in (False, True):
            yield Case(topology, (life("error:1400", wiped=wiped),), period="1s")
            yield Case(topology, (life("driver:1400", wiped=wiped),))
        yield Case(topology, (life("worker:700"),))
        yield Case(topology, (life("worker:700", "error:1400", wiped=True),), "rolled")
        yield Case(topology, (life("agent:700", "error:1400", wiped=True),), "sqlite")
        yield Case(topology, (life("store-down:300", "store-up:1000", "error:1700", wiped=True),))
        yield Case(topology, (life("store-down:300", "error:1000", wiped=True), life("refused")))
        yield Case(topology, (life("error:1400", wiped=True), life("unmounted")))
        again = (
            life("error:900", wiped=True),
            life("error:1000", wiped=True),
            life("error:1900", wiped=True),
        )
        yield Case(topology, again, "each", "700ms")
        recorded = f"driver@recorded:{_middle(topology)}"
        yield Case(topology, (life(recorded, wiped=True), life("driver@computed-again:*", wiped=True)))
    for topology, steps in zip(SOME, (DRIVER_STEPS,) * 3, strict=True):
        for step in steps:
            yield Case(topology, (life(f"driver@{step}:60"),))
            yield Case(topology, (life(f"driver@{step}:60", wiped=True),), "rolled")
    for topology in SOME:
        for step in AGENT_STEPS:
            yield Case(_for_step(topology, step), (life(f"driver@checkpoint-{step}:3", wiped=True),))
        for step in BACK_STEPS:
            yield Case(
                topology, (life("driver:1200", wiped=True), life(f"driver@{step}", wiped=True)), "rolled"
            )
            yield Case(topology, (life("driver:1200", wiped=True), life(f"driver@{step}")), "sqlite")
    for step in WORKER_STEPS:
        yield Case(_for_step("chain", step), (life(f"worker@{step}:40"),))
        yield Case(_for_step("elements", step), (life(f"worker@{step}:40", "driver:1600", wiped=True),))
    for step in AGENT_STEPS:
        lives = (life(f"agent@checkpoint-{step}:3", "driver:1600", wiped=True),)
        yield Case(_for_step("elements", step), lives)
    for topology in ("chain", "elements", "sources", "spark"):
        yield Case(topology, (life("jvm:1400"),))
        yield Case(topology, (life("jvm:1400", wiped=True),))
        yield Case(topology, (life("driver+jvm:1400", wiped=True),), "rolled")
        yield Case(topology, (life("agent:1300", "driver+jvm:1400", wiped=True),))
        yield Case(topology, (life("driver:1200", supervised=True),))
        yield Case(topology, (life("host:1200", supervised=True),))
        yield Case(topology, (life("supervisor:1400", wiped=True, supervised=True),))
    for sink in ("rolled", "sqlite", "postgres", "redis"):
        for topology in ("elements", "sinks", "dice"):
            yield Case(topology, (life("driver@published:60", wiped=True),), sink)
            yield Case(topology, (life("driver@gathered:60"),), sink)
            yield Case(topology, (life("error:800", wiped=True), life("error:1700", wiped=True)), sink)
    again = (life("driver:1200", wiped=True), life("driver@computed-again:*", wiped=True))
    for topology in ("chain", "elements", "sources", "loop"):
        yield Case(topology, (*again, life("driver@restore-paged:0", wiped=True)))
        yield Case(
            topology, (*again, life("driver@computed-again:*"), life("error:2100", wiped=True)), "sqlite"
        )
    changes = ("table:600", "table:1000", "table:1300")
    yield Case(
        "lookup", (life(*changes, "driver:1400", wiped=True), life("driver@computed-again:*", wiped=True))
    )
    yield Case("lookup", (life(*changes, "error:1350", wiped=True), life("error:2000", wiped=True)), "rolled")


def _drawn() -> Iterator[Case]:
    """List what is to be tried where operators draw: what they put out is held, and gone back on."""
    drawn = ("driver@recorded:60:rolls", "driver@checkpoint-manifest:3:rolls", "driver@checkpoint-versioned:4:rolls",
             "driver@published:60:noisy", "agent@checkpoint-values:3:rolls", "worker@paged:60:rolls")  # fmt: skip
    for step in drawn:
        died = () if step.startswith("driver") else ("driver:1600",)
        yield Case("dice", (life(step, *died, wiped=True),), "sqlite")
    for step in ("taken-back", "forgotten", "restore-recorded", "restore-read"):
        number = 0 if step == "restore-read" else "*"
        yield Case(
            "dice", (life("driver:1200", wiped=True), life(f"driver@{step}:{number}:rolls", wiped=True))
        )
        yield Case("dice", (life("driver:1200", wiped=True), life(f"driver@{step}:{number}:rolls")), "rolled")
    yield Case("dice", (life("driver:1200", supervised=True),))
    yield Case("dice", (life("host:1200", supervised=True),))


def _away() -> Iterator[Case]:
    """List what is to be tried with stores that are no folders."""
    for topology in (*SOME, "dice"):
        down, back = "server-down:300", ("server-up:1000", "error:1700")
        yield Case(topology, (life(down, *back, wiped=True),), store="redis")
        yield Case(topology, (life(down, "error:1000", wiped=True), life("refused")), store="redis")
        yield Case(
            topology, (life(down, "agent:700", "server-up:1000", "driver:1700", wiped=True),), store="redis"
        )
        yield Case(topology, (life("driver:1400", wiped=True),), "rolled", store="redis")
        yield Case(topology, (life("error:1400", wiped=True),), store="rocksdb")
        again = (
            life("agent:700", "driver:1400", wiped=True),
            life("driver@computed-again:*", wiped=True),
        )
        yield Case(topology, again, store="rocksdb")
    yield Case(
        "elements", (life("server-down:300", "server-up:1000", "host:1200", supervised=True),), store="redis"
    )
    for step in AGENT_STEPS[:1] + AGENT_STEPS[2:]:
        for store in ("redis", "rocksdb"):
            lives = (life(f"agent@checkpoint-{step}:3", "driver:1600", wiped=True),)
            yield Case("chain", lives, store=store)


def _supervisors() -> Iterator[Case]:
    """List what is to be tried with supervisors that die at their own steps, and others after them."""
    after = life(supervised=True)
    for topology in ("chain", "elements"):
        for number, step in enumerate(("decided", "region-resetting", "region-resetting-told",
                                       "region-running", "region-running-told")):  # fmt: skip
            first = life("driver:1200", f"supervisor@{step}:*", wiped=number % 2 == 0, supervised=True)
            yield Case(topology, (first, after))
        for number, step in enumerate(("region-halted", "region-halted-told")):
            first = life("error:1400", f"supervisor@{step}:*", wiped=number % 2 == 0, supervised=True)
            yield Case(topology, (first, life("reset", supervised=True)), "rolled")
    halted = life("error:1400", "supervisor@region-halted:*", wiped=True, supervised=True)
    for step in ("region-resetting", "region-resetting-told", "region-running"):
        asked = life("reset", f"supervisor@{step}:*", wiped=True, supervised=True)
        yield Case("elements", (halted, asked, after), "sqlite")


def _executors() -> Iterator[Case]:
    """List what is to be tried where executors are processes of their own."""
    for topology in ("chain", "elements", "sources"):
        yield Case(topology, (life("executor:1400"),))
        yield Case(topology, (life("executor:700", "error:1400", wiped=True),))


def _kafka() -> Iterator[Case]:
    """List what is to be tried with Kafka, which is slow."""
    for sink in ("each", "kafka"):
        yield Case("kafka", (life("error:1400", wiped=True),), sink)
        yield Case("kafka", (life("driver:1400"),), sink)
        yield Case(
            "kafka", (life("driver:1400", wiped=True), life("driver@computed-again:*", wiped=True)), sink
        )
    yield Case("kafka", (life("worker:700", "jvm:1400", wiped=True),))
    yield Case("kafka", (life("driver@recorded:12", wiped=True),), "kafka")
    yield Case("kafka", (life("host:1200", supervised=True),))


def _for_step(topology: str, step: str) -> str:
    """Return a topology that comes by a step: it takes an operator with two windows to be between their values, and
    files whose rows take decoding to share that."""
    return {"between": "diamond", "shared": "byfile"}.get(step, topology)


def _middle(topology: str) -> int:
    """Return a batch well within a run: Spark makes one of each file, so there are 24 of them, and else 120."""
    return 16 if topology == "spark" else 60


CASES: Sequence[Case] = tuple(
    dict.fromkeys((*QUICK, *_matrix(), *_drawn(), *_away(), *_supervisors(), *_executors(), *_kafka()))
)
