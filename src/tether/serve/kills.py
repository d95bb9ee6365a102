"""A real process with a real journal, killed without warning: the same plant and checks as in `faults.py`.

The process reads requests as lines of text and writes replies; it is killed (SIGKILL) in the middle of what it does.
When exactly is not in our hands, so that this part cannot be repeated move by move as the simulated worlds can.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

from tether.core.journal import text
from tether.core.journal.journal import Durability, Journal
from tether.serve.faults import ROUNDS, Entry, Finding, Played, after, cost_of, make_plant, prior, replayed
from tether.serve.replies import ServiceError
from tether.serve.service import Service

PLANT = "north"
LEAP = 5.0
"""How far from the prior the learner wants to be."""


def serve(path: str, durability: str) -> None:
    """What the process does: a request a line, a reply a line."""
    journal = Journal(path, cast(Durability, durability), segment_bytes=20_000, keep=3)
    service = Service({PLANT: make_plant(PLANT)}, journal)
    for line in sys.stdin:
        kind, arguments = text.loads(line)
        try:
            came = getattr(service, kind)(plant=PLANT, **arguments)
            reply = ["done", came if isinstance(came, dict) else list(came)]
        except ServiceError as error:
            reply = [type(error).__name__, str(error)]
        sys.stdout.write(text.dumps(reply) + "\n")
        sys.stdout.flush()


class Victim:
    """The process, started again whenever it is dead.

    Args:
        path: The folder of the journal.
        durability: Of the journal.
        dice: When it is killed.
        share: Of the requests, during which it is killed.
    """

    def __init__(self, path: Path, durability: Durability, dice: random.Random, share: float) -> None:
        self._command = [sys.executable, "-m", "tether.serve.kills", str(path), durability]
        self._longest = 3e-4 if durability == "process" else 1.5e-2  # seconds; what a request takes, and more
        self._dice, self._share = dice, share
        self._process: subprocess.Popen[str] | None = None
        self.kills = 0

    def ask(self, kind: str, **arguments: Any) -> Any:
        """The reply; None if the process was killed before it came."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        killed = self._dice.random() < self._share
        if killed:
            self.kills += 1
            threading.Timer(self._dice.uniform(0.0, self._longest), process.kill).start()
        with contextlib.suppress(BrokenPipeError):  # it is dead already
            process.stdin.write(text.dumps([kind, arguments]) + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if killed:
            process.wait()
            self.close()
        elif not line.endswith("\n"):
            raise RuntimeError(f"the process ended by itself, with exit code {process.wait()}")
        return text.loads(line) if line.endswith("\n") else None

    def insist(self, kind: str, **arguments: Any) -> Any:
        """The reply, however often it takes."""
        reply = None
        while reply is None:
            reply = self.ask(kind, **arguments)
        return reply

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


def killed(folder: Path, kills: int, seed: int, durability: Durability) -> Finding:
    """Play episodes until the process was killed so often."""
    finding, dice = Finding(seed), random.Random(seed)
    victim = Victim(folder, durability, dice, 0.1)
    try:
        number = 0
        while victim.kills < kills:
            number += 1
            _episode(f"episode {number}", victim, dice, finding)
    finally:
        victim.close()
    finding.crashes = victim.kills
    return finding


def _episode(name: str, victim: Victim, dice: random.Random, finding: Finding) -> None:
    """One episode, and what is wrong with it."""
    draws = [dice.uniform(0.5, 1.5) for _ in range(ROUNDS)]
    undisturbed = Service({PLANT: make_plant(PLANT)})
    undisturbed.reset(PLANT, name)
    victim.insist("reset", episode=name)
    x, costs, answered = 1.0, [], []
    for h in range(1, ROUNDS + 1):
        entry = Entry([x], prior([x]) + LEAP, prior([x]))
        request = {"episode": name, "round": h, **entry.act(sends_prior=False)}
        answer = victim.ask("act", **request)
        if answer is None and dice.random() < 0.5:
            answer = victim.ask("act", **request)
        finding.alone += answer is None
        entry.played = entry.prior if answer is None else float(answer[1][3])
        entry.cost = cost_of(x, entry.played)
        answered.append((request, victim.insist("act", **request) if answer is None else answer))
        victim.insist("observe", episode=name, round=h, **entry.observe())
        undisturbed.act(PLANT, name, h, **entry.act(sends_prior=False))
        undisturbed.observe(PLANT, name, h, **entry.observe())
        costs.append(entry.cost)
        x = after(x, entry.played, draws[h - 1])
    finding.rounds += ROUNDS
    for request, before in answered:
        again = victim.insist("act", **request)
        if text.dumps(again) != text.dumps(before):
            finding.wrong.append(f"{request} was answered {before}, and when it was repeated {again}")
    account = victim.insist("account", episode=name)[1]
    expected = undisturbed.account(PLANT, name)
    if text.dumps(account) != text.dumps(expected):
        finding.wrong.append(f"the account is {account}, undisturbed it is {expected}")
    victim.insist("end", episode=name, who="kills", why="the last round is over")
    of_prior = replayed(draws, lambda _, state: prior([state]))
    alone = replayed(draws, lambda _, state: prior([state]) + LEAP)
    finding.episodes.append(Played(PLANT, costs, of_prior, alone))


if __name__ == "__main__":
    serve(*sys.argv[1:])
