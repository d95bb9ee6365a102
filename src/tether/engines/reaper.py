"""Ends whatever a driver has started and left, however the driver ended.

`python -I reaper.py MARK` waits until its standard input is closed, which the system does when a process dies, and then
kills every process that has `TETHER_CLUSTER=MARK` in its environment or a file open below MARK, the folder of the
cluster, which it removes. It imports nothing of tether: it is there for as long as the driver is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

VARIABLE = "TETHER_CLUSTER"


def started(mark: str) -> subprocess.Popen[bytes]:
    """A reaper of what has this mark; it starts when its standard input is closed."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-I", str(Path(__file__)), mark]
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)


def marked(mark: str) -> list[int]:
    """The processes that have the mark, but for this one and the driver, which may have logs open until it ends."""
    spared = {str(os.getpid()), str(os.getppid())}
    places = (place for place in Path("/proc").glob("[0-9]*") if place.name not in spared)
    return [int(place.name) for place in places if _has(place, mark)]


def _has(place: Path, mark: str) -> bool:
    """Whether the process of this folder of /proc has the mark."""
    with contextlib.suppress(OSError):
        if f"{VARIABLE}={mark}".encode() in (place / "environ").read_bytes().split(b"\0"):
            return True
        # Ray's agents write their title over their environment; their logs are below the folder of the cluster.
        return any(str(file.readlink()).startswith(f"{mark}/") for file in (place / "fd").iterdir())
    return False


def reap(mark: str) -> None:
    """Kill them, those that they start meanwhile included, and remove the folder."""
    empty = 0
    for _ in range(20):
        processes = marked(mark)
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        empty = 0 if processes else empty + 1
        if empty == 2:  # one look can miss what is about to be another program
            break
        time.sleep(0.1)
    shutil.rmtree(mark, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    reap(sys.argv[1])
