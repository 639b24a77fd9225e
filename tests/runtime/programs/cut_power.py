"""Cut the power of a disk while a program writes to it, and keep what survived. Run as root, in mounts of its own.

    unshare --mount python cut_power.py spec.json

``{"image": an ext4 image, "disk": where to mount it, "program": [words], "ready": the file that says when,
"survived": where the disk's files go}``
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

# EXT4_IOC_SHUTDOWN, and that neither data nor the journal is written any more.
_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, 2


def main(spec: dict[str, object]) -> None:
    image, disk, ready = str(spec["image"]), Path(str(spec["disk"])), Path(str(spec["ready"]))
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
    program = subprocess.Popen(spec["program"], start_new_session=True)  # type: ignore[call-overload]
    while not ready.exists():
        assert program.poll() is None, "the program ended before the power was cut"
        time.sleep(0.001)
    descriptor = os.open(disk, os.O_RDONLY)
    fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
    os.close(descriptor)
    os.killpg(program.pid, 9)
    program.wait()
    while subprocess.run(["umount", disk], capture_output=True, check=False).returncode:
        # What the program started is still dying.
        time.sleep(0.05)
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
    shutil.copytree(disk, str(spec["survived"]), dirs_exist_ok=True, symlinks=True)
    subprocess.run(["umount", disk], check=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
