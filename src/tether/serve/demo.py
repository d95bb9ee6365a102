"""`tether demo`: the whole stack as plain processes on this machine, a story in five acts, and nothing left behind.

Processes: a service with a journal, and a simulated plant with a learner for each installed system. The story: the
learners play under guard; an operator stops one of them and lets it go on; the service is killed with SIGKILL, the
plants play their backups; it comes back with the account as it was.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from tether.serve.tokens import Role, new_token
from tether.systems import registry

LAM, B = 0.5, 0.5
"""Of every plant."""
ACTS = {"stop": 0.3, "resume": 0.5, "kill": 0.65, "recover": 0.75}
"""When each act begins, as a share of the time."""
START = 30.0
"""Seconds in which a process must have begun."""
_MAIN = (sys.executable, "-c", "from tether.cli.main import main; main()")


class Demo:
    """The processes of one demonstration.

    Args:
        folder: For configuration, tokens and journal.
        port: Of the service; 0 for any that is free.
        say: What to do with a line for the spectator.
    """

    def __init__(self, folder: Path, port: int, say: Callable[[str], None]) -> None:
        self.folder, self.say = folder, say
        self.systems = registry.names()
        self.plants = [f"{name}-1" for name in self.systems]
        self.url = ""
        self._port = port
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._secrets = self._configure()
        self.lines: list[str] = []

    def _configure(self) -> dict[Role, str]:
        plants = "".join(
            f'\n[plants.{plant}]\nsystem = "{system}"\nlam = {LAM}\nb = {B}\n'
            for plant, system in zip(self.plants, self.systems, strict=True)
        )
        text = f'[journal]\npath = "journal"\n\n[access]\ntokens = "tokens.toml"\n{plants}'
        (self.folder / "guard.toml").write_text(text, encoding="utf-8")
        made = {role: new_token(f"demo-{role}", role) for role in Role}
        entries = "\n".join(entry for _, entry in made.values())
        (self.folder / "tokens.toml").write_text(entries, encoding="utf-8")
        (self.folder / "plc.token").write_text(made[Role.CONTROL][0], encoding="utf-8")
        return {role: secret for role, (secret, _) in made.items()}

    @property
    def link(self) -> str:
        """The dashboard, with an operator's token behind the #, where no server sees it."""
        return f"{self.url}/#token={self._secrets[Role.OPERATOR]}"

    def start_service(self) -> None:
        """Start the service, and wait until it says where it is; the second time it is where it was."""
        self._start("service", "serve", "guard.toml", "--port", str(self._port))
        began = time.monotonic()
        while not (found := [line for line in self.lines if line.startswith("Guarding")]):
            if self._running["service"].poll() is not None or time.monotonic() - began > START:
                raise OSError(f"the service did not start: {' '.join(self.lines[-3:])}")
            time.sleep(0.02)
        address = re.search(r"http://[\d.]+:(\d+)", found[-1])
        assert address is not None
        self.url, self._port = address[0], int(address[1])
        self.lines.clear()

    def start_plants(self) -> None:
        """Start a plant for each system."""
        for seed, (plant, system) in enumerate(zip(self.plants, self.systems, strict=True)):
            options = ["--system", system, "--lam", str(LAM), "--b", str(B), "--token-file", "plc.token"]
            self._start(plant, "plant", self.url, plant, *options, "--pause", "0.25", "--seed", str(seed))

    def _start(self, name: str, *arguments: str) -> None:
        process = subprocess.Popen(
            [*_MAIN, *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            start_new_session=True,  # Ctrl-C is for this process, which then ends the others
        )
        self._running[name] = process
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError):  # closed while it was read
            for line in process.stdout:
                self.lines.append(line.rstrip())

    def operator(self, what: str, why: str) -> None:
        """Do what an operator can do."""
        headers = {"Authorization": f"Bearer {self._secrets[Role.OPERATOR]}"}
        httpx.post(
            f"{self.url}/v1/{what}", json={"why": why}, headers=headers, timeout=5.0, trust_env=False
        ).raise_for_status()

    def accounts(self) -> dict[str, Any]:
        """The first round that each open episode's account does not hold yet, and its cost."""
        headers = {"Authorization": f"Bearer {self._secrets[Role.READER]}"}
        status = httpx.get(f"{self.url}/v1/status", headers=headers, timeout=5.0, trust_env=False).json()
        return {
            f"{plant} {episode['episode']}": (episode["account"], episode["cost"])
            for plant, about in status["plants"].items()
            for episode in about["episodes"]
        }

    def signal_plants(self, number: signal.Signals) -> None:
        """SIGSTOP makes the plants stand still, SIGCONT lets them go on."""
        for name in self.plants:
            self._running[name].send_signal(number)

    def kill_service(self) -> None:
        """SIGKILL: no chance to write anything."""
        process = self._running.pop("service")
        process.send_signal(signal.SIGKILL)
        process.wait()

    def broken(self) -> list[str]:
        """What the plants' auditors complained about, and plants that have ended."""
        complaints = [line for line in self.lines if "BROKEN" in line or "Traceback" in line]
        ended = [name for name, process in self._running.items() if process.poll() is not None]
        return complaints + [f"{name} has ended" for name in ended]

    def stop(self) -> None:
        """End every process that was started."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._running.clear()


def story(demo: Demo, seconds: float) -> Iterator[None]:
    """The acts in their order; each step is to be taken as soon as its time has come.

    Raises:
        ValueError: The promise was broken, or something was not as it was before the kill.
    """
    began, first = time.monotonic(), demo.plants[0]

    def until(share: float) -> Iterator[None]:
        while time.monotonic() - began < share * seconds:
            if complaints := demo.broken():
                raise ValueError(f"the demonstration failed: {'; '.join(complaints)}")
            for line in [line for line in demo.lines if "kept in every round" in line]:
                demo.lines.remove(line)
                demo.say(f"  {line}")
            yield

    demo.say(f"Learners run {', '.join(demo.plants)} under guard.")
    yield from until(ACTS["stop"])
    demo.operator(f"plants/{first}/prior-now", "the demonstration: a stop")
    demo.say(f"An operator stops the learner of {first}: the prior plays from the next round on.")
    yield from until(ACTS["resume"])
    demo.operator(f"plants/{first}/resume", "the demonstration: all is well")
    demo.say(f"The operator lets {first} go on.")
    yield from until(ACTS["kill"])
    demo.signal_plants(signal.SIGSTOP)
    time.sleep(0.2)  # what they have sent is answered
    before = demo.accounts()
    demo.kill_service()
    demo.signal_plants(signal.SIGCONT)
    demo.say("The service is killed (SIGKILL). The plants get no answer and play their backups.")
    yield from until(ACTS["recover"])
    demo.signal_plants(signal.SIGSTOP)
    demo.start_service()
    after = demo.accounts()
    demo.signal_plants(signal.SIGCONT)
    if after != before:
        raise ValueError(f"the accounts are not as they were: {before} before the kill, {after} after it")
    demo.say(
        "The service is back with its journal: every account exactly as it was when it died. The plants report what "
        "they did meanwhile."
    )
    yield from until(1.0)
    demo.say("The promise was kept in every round of every plant. Everything is stopped now.")
