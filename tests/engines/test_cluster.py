"""Ray gives what one process gives, survives what is killed, and leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest

from tether.engines import reaper
from tether.engines.engine import Local, Silent, run
from tether.engines.pieces import Piece, Store

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="workers are pinned on Linux only"),
]

COUNT = '''
import json, os, sys, time
from functools import partial
from pathlib import Path
from tether.engines.cluster import Cluster
from tether.engines.engine import Silent, run
from tether.engines.pieces import Piece, Store

def count(here, number, report, *before):
    """Notes down who computes it; the second waits for the file `go`."""
    (here / f"{number}-{os.getpid()}-{len(os.sched_getaffinity(0))}.begun").touch()
    while number == 2 and not (here / "go").exists():
        time.sleep(0.02)
    if number == 9:
        raise ValueError("nine is no number")
    return [number / 3.0, "jax" in sys.modules, *before]

here = Path(sys.argv[1])
pieces = [Piece(f"{n}", partial(count, here, n), ("1",) if n > 1 else ()) for n in (1, 2, 3)]
'''
DRIVER = """
class Watch(Silent):
    def working(self, busy, workers):
        (here / "workers").write_text(f"{workers}")

with Cluster(workers=2) as cluster:
    run(cluster, pieces, Store(here / "pieces"), Watch())
    try:
        run(cluster, [Piece("9", partial(count, here, 9))], Store(here / "pieces"))
    except ValueError as error:
        (here / "error").write_text(str(error))
assert "jax" not in sys.modules
print(json.dumps({name: note.cores for name, note in cluster.notes.items()}))
"""
NODES = """
from ray.cluster_utils import Cluster as Nodes

nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
try:
    for _ in range(2):
        nodes.add_node(num_cpus=1)
    with Cluster(address=nodes.address) as cluster:
        run(cluster, pieces, Store(here / "pieces"))
finally:
    nodes.shutdown()
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run whose worker is killed in mid-piece, then its driver, and that goes on after that."""
    here = tmp_path_factory.mktemp("killed")
    driver = start(here, DRIVER)
    wait_for(lambda: begun(here, 2))
    (first,) = begun(here, 2)
    os.kill(worker(first), signal.SIGKILL)
    wait_for(lambda: len(begun(here, 2)) == 2)  # Ray has given the piece to another worker
    wait_for(lambda: (here / "pieces" / "1.json").exists() and (here / "pieces" / "3.json").exists())
    workers = [worker(each) for each in begun(here)]
    driver.kill()
    driver.communicate()
    wait_for(lambda: not any(map(alive, workers)))
    left_by_killed = processes(here)
    (here / "go").touch()
    again = start(here, DRIVER)
    out, _ = again.communicate(timeout=120)
    return here, again.returncode, out, left_by_killed


def start(here, driver, **more):
    """A driver that computes three pieces; everything that belongs to it has a mark in its environment."""
    script = here / "driver.py"
    script.write_text(COUNT + driver)
    return subprocess.Popen(
        [sys.executable, str(script), str(here)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Of its own, for the locks of cores: another run on this machine may have them all.
        env=os.environ | {"TETHER_TEST_RUN": str(here), "TMPDIR": str(here)} | more,
    )


def begun(here, number="*"):
    return sorted(here.glob(f"{number}-*.begun"), key=lambda file: file.stat().st_mtime_ns)


def worker(file):
    return int(file.stem.split("-")[1])


def parent(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()[1])


def children(process):
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(each) for file in found for each in file.read_text().split()]


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().split(") ")[1][0] != "Z"
    except OSError:
        return False


def processes(here):
    """Those that a driver has started, and that are still there some seconds after it."""
    found = []
    for _ in range(100):
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if f"TETHER_TEST_RUN={here}\0".encode() in (place / "environ").read_bytes() and alive(
                    place.name
                ):
                    found.append((place / "cmdline").read_bytes()[:200])
            except OSError:
                continue
        if not found:
            return []
        time.sleep(0.1)
    return found


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_a_run_survives_a_killed_worker_and_goes_on_after_a_killed_driver(killed):
    here, code, out, _ = killed
    assert code == 0
    assert list(json.loads(out)) == ["2", "9"]  # the others were found
    assert len(begun(here, 1)) == len(begun(here, 3)) == 1
    assert len({worker(each) for each in begun(here, 2)}) == 3


def test_the_driver_and_idle_workers_never_import_jax_and_a_worker_has_a_core_of_its_own(killed):
    here, _, out, _ = killed
    assert all(not json.loads(file.read_text())[1] for file in (here / "pieces").glob("*.json"))
    assert all(file.stem.endswith("-1") for file in begun(here)) or os.cpu_count() == 1
    assert all(len(cores) == 1 for cores in json.loads(out).values()) or os.cpu_count() == 1
    assert (here / "workers").read_text() == "2"


def test_nothing_is_left_running(killed):
    assert killed[3] == []
    assert processes(killed[0]) == []


def scaled(number, report, *before):
    return [number / 3.0, False, *before]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The files of the pieces, computed in this process."""
    folder = tmp_path_factory.mktemp("local")
    pieces = [Piece(f"{n}", partial(scaled, n), ("1",) if n > 1 else ()) for n in (1, 2, 3)]
    run(Local(), pieces, Store(folder), Silent())
    return {file.name: file.read_bytes() for file in folder.glob("*.json")}


def test_the_pieces_are_those_of_the_local_engine_byte_for_byte(killed, local):
    assert {name: (killed[0] / "pieces" / name).read_bytes() for name in local} == local


@pytest.fixture
def marked():
    """A folder for a cluster, and the mark of its processes, of which none is left after the test."""
    # Sockets live in it, and their names may have 107 characters.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    yield folder
    reaper.reap(folder)
    wait_for(lambda: not any(map(alive, reaper.marked(folder))), 10.0)


def test_the_piece_of_a_lost_node_is_computed_on_another_one(local, marked, tmp_path):
    soon = {"RAY_health_check_period_ms": "1000"}
    driver = start(tmp_path, NODES, RAY_TMPDIR=marked, **{reaper.VARIABLE: marked}, **soon)
    wait_for(lambda: begun(tmp_path, 2))
    node = parent(worker(*begun(tmp_path, 2)))
    assert b"raylet" in Path(f"/proc/{node}/cmdline").read_bytes()
    for process in (node, *children(node)):  # a machine that is gone takes all with it
        os.kill(process, signal.SIGKILL)
    wait_for(lambda: len(begun(tmp_path, 2)) == 2)
    (tmp_path / "go").touch()
    _, complaints = driver.communicate(timeout=120)
    assert driver.returncode == 0, complaints
    assert len({worker(each) for each in begun(tmp_path, 2)}) == 2
    assert {name: (tmp_path / "pieces" / name).read_bytes() for name in local} == local


def test_what_goes_wrong_in_a_piece_is_raised_by_the_driver(killed):
    assert (killed[0] / "error").read_text() == "nine is no number"


def test_a_process_that_has_written_over_its_environment_is_reaped_by_the_files_it_has_open(marked):
    log = Path(marked) / "agent.log"
    clean = {name: value for name, value in os.environ.items() if name != reaper.VARIABLE}
    with log.open("w") as file:
        agent = subprocess.Popen(["sleep", "60"], stdout=file, env=clean)
    assert reaper.marked(marked) == [agent.pid]
    reaper.reap(marked)
    assert agent.wait(10.0) == -signal.SIGKILL
    assert not Path(marked).exists()
