"""An archive of classes is used once it is whole; what is unfinished, or unused, goes."""

import os
from pathlib import Path

from riprap.runtime.jvm_options import jvm_options

NOW = 1_000_000.0


class Machine:
    """A Java runtime and a cache."""

    def __init__(self, folder: Path) -> None:
        self.java = folder / "java"
        self.base = self.java / "lib" / "server" / "classes.jsa"
        self.base.parent.mkdir(parents=True)
        self.base.touch()
        self.environ = {"RIPRAP_CACHE": str(folder / "cache")}
        self.cache = folder / "cache" / f"classes-{os.getuid()}"

    def start(self) -> tuple[str, Path]:
        """Return what a JVM would be told of the archive."""
        option, _, file = jvm_options(self.java, self.environ, lambda: NOW)[-1].partition("=")
        return option, Path(file)

    def change_java(self) -> None:
        """Install another one."""
        self.base.write_bytes(self.base.read_bytes() + b".")


def test_a_jvm_leaves_an_archive_and_later_ones_use_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)

    option, part = machine.start()
    assert option == "-XX:ArchiveClassesAtExit"
    part.write_bytes(b"\0\0\0\0 the head is not written yet")
    os.utime(part, (NOW, NOW))
    option, another = machine.start()
    assert (option, another == part) == ("-XX:ArchiveClassesAtExit", False)

    part.write_bytes(b"HEAD and all")
    option, archive = machine.start()
    assert option == "-XX:SharedArchiveFile"
    assert archive.read_bytes() == b"HEAD and all"
    assert machine.start() == (option, archive)

    another.write_bytes(b"HEAD too late")
    assert machine.start() == (option, archive)
    assert [*machine.cache.iterdir()] == [archive]


def test_remains_go(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for _ in range(4):
        machine.change_java()
        machine.start()[1].write_bytes(b"HEAD")
        machine.start()
    assert len([*machine.cache.glob("*.jsa")]) == 2
    machine.change_java()
    part = machine.start()[1]
    part.write_bytes(b"\0\0\0\0 its JVM was killed")
    os.utime(part, (NOW - 7200, NOW - 7200))
    machine.start()
    assert not part.exists()


def test_sparks_own_settings_are_left_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert jvm_options(machine.java, {**machine.environ, "SPARK_CONF_DIR": "/etc/spark"}) == []
    machine.base.unlink()
    assert not any("Archive" in option for option in jvm_options(machine.java, machine.environ))
    (tmp_path / "cache").touch()
    machine.base.touch()
    assert not any("Archive" in option for option in jvm_options(machine.java, machine.environ))
