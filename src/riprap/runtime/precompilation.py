"""Compile while Spark starts: on the first run of a version on a machine, in a process of its own.

python -m riprap.runtime.precompilation

It compiles what is known to be called, function by function, and ends with the process that started it. A worker that
comes to a function meanwhile waits for it, or compiles it itself if it is the first.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from riprap import application as application  # its operators' functions are what is compiled
from riprap.machine_code.keeping import code_folder, compile_known, uncompiled


class Precompilation:
    """The process, if there is anything to compile, and what to tell of it."""

    def __init__(self) -> None:
        self._functions = uncompiled()
        self._began = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        if self._functions:
            # If it does not start, workers do all of it.
            with contextlib.suppress(OSError):
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "riprap.runtime.precompilation"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )

    def tell(self, event: Callable[..., None]) -> None:
        """Write down, in the events of a run, why its first batch takes longer than others, if it does."""
        folder = code_folder()
        if isinstance(folder, Exception):
            event(
                "warning",
                message=f"compiled code cannot be kept: {folder}. Every process compiles for itself, which takes some "
                "20 s; set RIPRAP_CACHE to a folder that only you can write to",
            )
        elif self._process is not None:
            event(
                "compiling",
                functions=self._functions,
                message=f"the first run of this version here: {self._functions} functions are compiled, which takes "
                f"some 20 s, and kept in {folder}",
            )
            threading.Thread(
                target=self._wait, args=(self._process, event), name="compiling", daemon=True
            ).start()

    def _wait(self, process: subprocess.Popen[bytes], event: Callable[..., None]) -> None:
        process.wait()
        # By then the run may be over, and its folder gone.
        with contextlib.suppress(OSError):
            event(
                "compiled", functions=self._functions - uncompiled(), seconds=time.monotonic() - self._began
            )


def main() -> None:
    """Compile, for as long as whoever asked for it is there."""
    parent = os.getppid()
    compile_known(lambda: os.getppid() == parent)


if __name__ == "__main__":
    main()
