"""Ends whatever a driver has started and left, however the driver ended.

`python -I reaper.py MARK` waits until its standard input is closed, which the system does when a process dies, and then
kills every process that has `TETHER_CLUSTER=MARK` in its environment; MARK is the folder of the cluster, which it
removes. It imports nothing of tether: it is there for as long as the driver is.
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
    """The processes that have the mark, but for this one."""
    wanted = f"{VARIABLE}={mark}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (place / "environ").read_bytes().split(b"\0") and int(place.name) != os.getpid():
                found.append(int(place.name))
    return found


def reap(mark: str) -> None:
    """Kill them, those that they start meanwhile included, and remove the folder."""
    for _ in range(20):
        processes = marked(mark)
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if not processes:
            break
        time.sleep(0.1)
    shutil.rmtree(mark, ignore_errors=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    reap(sys.argv[1])
