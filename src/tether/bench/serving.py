"""`tether bench serve`: a decision over HTTP on this machine, beside a handler that does nothing; and memory over many.

The service and the bare handler are processes of their own, the load comes from this one. A decision is two requests,
act and observe, one after the other on one connection; a plant is a connection. Each size is measured alternately.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tether.bench.loops import run
from tether.bench.speed import Measurement, ratio
from tether.serve.tokens import Role, new_token
from tether.systems import registry
from tether.systems.system import System

PLANTS = (1, 16, 256)
PACED = (256, 2048, 1.0)
"""Plants, rounds of all together and seconds of a round, where they are not played as fast as it goes."""
WANTED = 2000.0
"""Decisions a second."""
FLAT = 1.05
"""How much the memory may grow from a tenth of the decisions to the last, as a factor."""
HORIZON = 24
AT_ONCE = 48
"""Decisions of one batch, where many are made."""
_MAIN = (sys.executable, "-c", "from tether.cli.main import main; main()")
_BARE = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def nothing(request):
    await request.body()
    return Response(b'{"nothing": true}', media_type="application/json")

routes = [Route("/v1/plants/{plant}/episodes/{episode}/{call}", nothing, methods=["POST"])]
uvicorn.run(Starlette(routes=routes), port=int(sys.argv[1]), log_level="error", access_log=False, lifespan="off")
"""


class Load(NamedTuple):
    """What a burst of decisions took."""

    pairs: Any
    """[n] seconds of each act + observe."""
    seconds: float
    """Of the whole."""
    processor: float
    """Seconds of a processor that the server took."""

    @property
    def rate(self) -> float:
        """Decisions a second."""
        return len(self.pairs) / self.seconds


class Server(NamedTuple):
    """A process that is asked."""

    process: subprocess.Popen[str]
    port: int
    token: str

    def processor(self) -> float:
        """Seconds of a processor that it has taken; 0 where the system does not tell."""
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def memory(self) -> float:
        """What it holds, MB; NaN where the system does not tell."""
        with contextlib.suppress(OSError):
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        return float("nan")


@contextlib.contextmanager
def service(folder: Path, plants: int, durability: str, kind: str) -> Iterator[Server]:
    """`tether serve` with so many plants of the first installed system."""
    token, entry = new_token("bench", Role.CONTROL)
    (folder / "tokens.toml").write_text(entry, encoding="utf-8")
    name = registry.names()[0]
    text = "".join(
        f'[plants.p{i}]\nsystem = "{name}"\nkind = "{kind}"\nlam = 2.0\nb = 2.0\n' for i in range(plants)
    )
    head = f'[journal]\npath = "journal"\ndurability = "{durability}"\n[access]\ntokens = "tokens.toml"\n'
    limits = "[limits]\nrequests_per_second = 1e9\nbody_bytes = 1000000\n"
    (folder / "guard.toml").write_text(head + limits + text, encoding="utf-8")
    with _started([*_MAIN, "serve", "guard.toml", "--port", "0"], folder) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        if found is None:
            raise OSError("the service did not start")
        yield Server(process, int(found[1]), token)


@contextlib.contextmanager
def bare(folder: Path) -> Iterator[Server]:
    """A Starlette handler that reads the body and does nothing."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with _started([sys.executable, "-c", _BARE, str(port)], folder) as process:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break
            time.sleep(0.05)
        yield Server(process, port, "none")


@contextlib.contextmanager
def _started(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    with (folder / "errors.txt").open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=30)


def request(path: str, token: str, body: Any) -> bytes:
    """A POST, as bytes."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    return (
        f"{head}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
    )


class Connection:
    """One keep-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, port: int) -> Connection:
        """To a port of this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, message: bytes) -> bytes:
        """Send a request; the body of its answer, which must be good."""
        self._writer.write(message)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        body = await self._reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r", 1)[0]))
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"{head.splitlines()[0].decode()}: {body.decode()}")
        return body

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


class Plan:
    """What is asked, round by round: observations of the system, proposals of somebody who knows nothing."""

    def __init__(self, system: System, seed: int) -> None:
        env = system.env()
        episodes = system.draw(seed, 1, HORIZON)
        drawn = [{name: episodes[name][0][h] for name in env.drawn_names} for h in range(HORIZON)]
        self.observations = [np.asarray(env.observation(env.initial(), each)).tolist() for each in drawn]
        rng = np.random.default_rng(seed)
        self.proposals = rng.uniform(*env.action_range(), (HORIZON, *env.action_shape)).tolist()
        self.cost = env.cost_floor + 0.5

    def act(self, number: int) -> dict[str, Any]:
        """The question of a round."""
        h = number - 1
        return {"round": number, "observation": self.observations[h], "proposal": self.proposals[h]}

    def observe(self, number: int) -> dict[str, Any]:
        """Its outcome."""
        return {"round": number, "cost": self.cost}


def burst(server: Server, plan: Plan, plants: int, decisions: int, name: str, pause: float = 0.0) -> Load:
    """So many decisions, on as many connections as there are plants.

    Args:
        server: Who is asked.
        plan: What is asked.
        plants: How many.
        decisions: Of all of them together.
        name: Of the episodes; new for every burst.
        pause: Seconds between two rounds of a plant; 0 for as fast as it goes.
    """
    pairs: list[float] = []

    async def loop(plant: int, rounds: int) -> None:
        connection = await Connection.to(server.port)
        if pause:
            await asyncio.sleep(pause * plant / plants)
        number, begun = HORIZON, 0
        for _ in range(rounds):
            if number == HORIZON:
                number, begun = 0, begun + 1
                path = f"/v1/plants/p{plant}/episodes/{name}-{begun}"
                await connection.ask(request(f"{path}/reset", server.token, {}))
            number += 1
            act = request(f"{path}/act", server.token, plan.act(number))
            observe = request(f"{path}/observe", server.token, plan.observe(number))
            start = time.perf_counter()
            await connection.ask(act)
            await connection.ask(observe)
            pairs.append(time.perf_counter() - start)
            if pause:
                await asyncio.sleep(max(0.0, pause - pairs[-1]))
        await connection.close()

    async def everybody() -> None:
        await asyncio.gather(*(loop(plant, max(1, decisions // plants)) for plant in range(plants)))

    before, start = server.processor(), time.perf_counter()
    run(everybody())
    return Load(np.array(pairs), time.perf_counter() - start, server.processor() - before)


def bench_serve(
    seed: int, repetitions: int, decisions: int, durability: str = "process", kind: str = "lipschitz"
) -> Iterator[Measurement]:
    """Latency and rate for each number of plants, beside the bare handler.

    Args:
        seed: Of what is asked.
        repetitions: How often each is measured, alternately.
        decisions: Of each burst.
        durability: Of the journal.
        kind: Of the certificate.
    """
    plan = Plan(registry.find(registry.names()[0]), seed)
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        ours = stack.enter_context(service(folder, max(PLANTS), durability, kind))
        nothing = stack.enter_context(bare(folder))
        burst(ours, plan, 1, 200, "warm")
        burst(nothing, plan, 1, 200, "warm")
        for plants in PLANTS:
            loads: list[Load] = []
            yardsticks: list[Load] = []
            for repetition in range(repetitions):
                loads.append(burst(ours, plan, plants, decisions, f"r{plants}-{repetition}"))
                yardsticks.append(burst(nothing, plan, plants, decisions, f"r{plants}-{repetition}"))
            yield from _compared(plants, loads, yardsticks)
        plants, rounds, pause = PACED
        paced = [burst(ours, plan, plants, rounds, f"paced-{i}", pause) for i in range(min(repetitions, 3))]
        for share in (50, 99):
            what = f"act + observe, {plants} plants, a round every {pause:g} s each, p{share}"
            yield _milliseconds(what, [float(np.percentile(each.pairs, share)) for each in paced])


def _compared(plants: int, loads: list[Load], yardsticks: list[Load]) -> Iterator[Measurement]:
    who = f"{plants} plant{'s' if plants > 1 else ''}"
    for share in (50, 99):
        ours = [float(np.percentile(each.pairs, share)) for each in loads]
        theirs = [float(np.percentile(each.pairs, share)) for each in yardsticks]
        yield _milliseconds(f"act + observe, {who}, p{share}", ours)
        yield _milliseconds(f"bare Starlette, {who}, p{share}", theirs)
        yield ratio(f"act + observe / bare, {who}, p{share}", ours, theirs, "times", "", lambda _: True)
    rates = [each.rate for each in loads]
    wanted = f">= {WANTED:g}" if plants > 1 else ""
    yield _measured(f"decisions a second, {who}", rates, "1/s", wanted, WANTED)
    busy = [len(each.pairs) / each.processor for each in loads if each.processor > 0.0]
    if busy:
        yield _measured(f"decisions a second of its processor, {who}", busy, "1/s", wanted, WANTED)


def _milliseconds(what: str, seconds: list[float]) -> Measurement:
    return _measured(what, [1e3 * each for each in seconds], "ms")


def _measured(what: str, values: list[float], unit: str, target: str = "", least: float = 0.0) -> Measurement:
    middle = float(np.median(values))
    return Measurement(
        what, middle, min(values), max(values), unit, target, middle >= least if target else None
    )


def bench_memory(
    seed: int, decisions: int, durability: str, report: Callable[[int, int], None], minutes: float = math.inf
) -> Iterator[Measurement]:
    """What the service holds from a tenth of so many decisions to the last of them.

    Args:
        seed: Of what is asked.
        decisions: How many; in batches, on one connection.
        durability: Of the journal.
        report: Called with how many are done, of how many.
        minutes: After which it ends with as many as there are by then.
    """
    plan = Plan(registry.find(registry.names()[0]), seed)
    held: list[float] = []

    async def many(server: Server) -> int:
        connection = await Connection.to(server.port)
        rounds, done, number, began = AT_ONCE // 2, 0, 0, time.monotonic()
        while done < decisions and time.monotonic() - began < 60.0 * minutes:
            number += 1
            calls: list[dict[str, Any]] = []
            for plant in ("p0", "p1"):
                names = {"plant": plant, "episode": f"many-{number}"}
                calls.append({"call": "reset", **names})
                for h in range(1, rounds + 1):
                    calls += [
                        {"call": "act", **names, **plan.act(h)},
                        {"call": "observe", **names, **plan.observe(h)},
                    ]
            body = await connection.ask(request("/v1/batch", server.token, {"calls": calls}))
            if body.count(b'"status":200') != len(calls):
                raise RuntimeError(f"a call of a batch was refused: {body.decode()[:500]}")
            done += AT_ONCE
            if done // (decisions // 100 or 1) > len(held):
                held.append(server.memory())
                report(done, decisions)
        await connection.close()
        return done

    with tempfile.TemporaryDirectory() as place, service(Path(place), 2, durability, "lipschitz") as server:
        before, start = server.processor(), time.perf_counter()
        done = run(many(server))
        seconds, busy = time.perf_counter() - start, server.processor() - before
    early, late = held[: max(1, len(held) // 10)], held[len(held) // 10 :]
    what = f"memory of the service over {done:,} decisions"
    yield Measurement(what, float(np.median(held)), min(held), max(held), "MB")
    grown = max(late) / early[-1]
    yield Measurement(
        f"{what}: largest / after a tenth", grown, grown, grown, "times", f"<= {FLAT}", grown <= FLAT
    )
    yield _measured("decisions a second, in batches", [done / seconds], "1/s")
    if busy > 0.0:
        yield _measured("decisions a second of its processor, in batches", [done / busy], "1/s")
