"""A Kafka broker for tests: one process that is broker and controller, without ZooKeeper."""

from __future__ import annotations

import subprocess
import time

from tests.services import kafka_wire
from tests.services.broker_jars import broker_jars
from tests.services.ports import free_port
from tests.services.relay import Relay
from tests.services.server import Server, UnavailableError, fresh_name

from riprap.runtime.java import JavaNotFoundError, find_java

# Any 16 bytes in URL-safe base 64.
_CLUSTER = "cmlwcmFwLXRlc3RzLS0tLQ"


class Kafka(Server):
    """Kafka on loopback; ``address`` is what clients call the bootstrap servers."""

    name = "kafka"

    def __init__(self) -> None:
        self._jars = broker_jars()
        try:
            self._java = str(find_java() / "bin" / "java")
        except JavaNotFoundError as error:
            raise UnavailableError(f"no Java for the Kafka broker: {error}") from error
        super().__init__()
        self._controller_port = free_port()
        self._behind_relay_port = free_port()
        self._relay_port = free_port()

    def topic(self, partitions: int = 1) -> str:
        """Create a topic and return its name."""
        self.ensure_running()
        name = fresh_name()
        kafka_wire.create_topic(self.host, self.port, name, partitions)
        end = time.monotonic() + 30
        while not kafka_wire.is_led(self.host, self.port, name):
            assert time.monotonic() < end, f"the topic {name} has no leader"
            time.sleep(0.02)
        return name

    def relay(self) -> Relay:
        """Return a relay whose clients stay on it, one at a time.

        A client asks the broker for its address and goes there: a relay before ``address`` would lose it. This one
        stands before a second door of the broker, which gives the relay's address.
        """
        return Relay(self.host, self._behind_relay_port, port=self._relay_port)

    def _prepare(self) -> None:
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.host}:{self._controller_port}",
            "listeners": (
                f"PLAINTEXT://{self.address},RELAYED://{self.host}:{self._behind_relay_port},"
                f"CONTROLLER://{self.host}:{self._controller_port}"
            ),
            "advertised.listeners": f"PLAINTEXT://{self.address},RELAYED://{self.host}:{self._relay_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,RELAYED:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            # After a kill, the broker may not come back before its old session has run out.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        }
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        with self.log.open("ab") as log:
            subprocess.run(
                self._java_command(
                    "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )

    def _command(self) -> list[str]:
        return self._java_command("kafka.Kafka", str(self.folder / "server.properties"))

    def _java_command(self, *arguments: str) -> list[str]:
        # For a few messages the first compiler is enough, and the broker is up sooner.
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [self._java, *options, logging, "-cp", f"{self._jars}/*", *arguments]

    def _answers(self) -> bool:
        return kafka_wire.answers(self.host, self.port)
