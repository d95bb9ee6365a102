"""Vessim runs a day by itself, and asks the guard, a service of its own, what to do with the battery every hour.

`python -m tether_plants.microgrid.live` starts `tether serve`, lets a seller dispatch through `tether.Client`, and
compares with a day under Vessim's DefaultDispatchPolicy. `--kill 12` kills the service at noon: from then on the client
plays the prior, and the promise is kept.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import vessim

import tether
from tether.core.ops import NUMPY
from tether_plants.microgrid import PLANT
from tether_plants.microgrid.adapter import Dispatch, parts
from tether_plants.microgrid.learner import stored
from tether_plants.microgrid.model import day
from tether_plants.microgrid.structure import HOURS, POWER, risk

CONFIG = """[journal]
path = "journal"

[access]
open = true

[plants.microgrid]
system = "tether_plants.microgrid:system"
lam = {lam}
b = {b}
"""


def seller(observation: Any) -> float:
    """Sells all that it has while power is dear, and buys at night; it knows no reserve."""
    _, _, price, time = observation
    return -POWER if price > 30.0 else POWER if time < 0.2 else float(stored(np.asarray(observation)))


class Tethered(Dispatch):
    """A dispatch policy of Vessim's that asks a guard, and reports to it what each hour cost."""

    def __init__(self, client: tether.Client, at: Callable[[int], None]) -> None:
        self.client, self.at, self.hour = client, at, 0
        self.costs: list[float] = []
        self.reasons: list[str] = []

    def apply(self, p_delta: Any, duration: Any, dispatchables: Any, grid_signals: Any = None) -> None:
        """Close the last hour, and decide on the next."""
        charge = dispatchables[0].charge_level / 1e3
        self.close(charge)
        self.at(self.hour)
        seen = [charge, p_delta / 1e3, grid_signals["price"], self.hour / HOURS]
        played = self.client.act(seen, seller(seen))
        self.reasons.append(played.reason)
        self.power, self.hour = 1e3 * float(played.action), self.hour + 1
        super().apply(p_delta, duration, dispatchables, grid_signals)

    def close(self, charge: float) -> None:
        """Say what the last hour cost, if there was one."""
        if self.hour > 0:
            self.costs.append(float(risk(charge, NUMPY)))
            self.client.observe(self.costs[-1])


class Noted(vessim.DefaultDispatchPolicy):
    """The prior, with a note of what each hour cost."""

    def __init__(self) -> None:
        super().__init__()
        self.costs: list[float] = []

    def apply(self, p_delta: Any, duration: Any, dispatchables: Any, grid_signals: Any = None) -> None:
        """Store what is left over."""
        self.costs.append(float(risk(dispatchables[0].charge_level / 1e3, NUMPY)))
        super().apply(p_delta, duration, dispatchables, grid_signals)


def simulate(policy: Any, number: int) -> float:
    """Let Vessim run the day with this policy; kWh at its end."""
    actors, dispatchables, signals = parts(day(number))
    environment = vessim.Environment("2026-06-01", step_size=3600)
    environment.add_microgrid(actors, dispatchables, policy, signals)
    environment.run(until=3600 * HOURS)
    return float(dispatchables[0].charge_level / 1e3)


def start(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """The service as a process, and its address."""
    text = CONFIG.format(lam=PLANT.contract.lam, b=PLANT.contract.b)
    (folder / "guard.toml").write_text(text, encoding="utf-8")
    command = [sys.executable, "-u", "-c", "from tether.cli.main import main; main()", "serve", "guard.toml"]
    service = subprocess.Popen(
        [*command, "--port", "0"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    said = []
    for line in service.stdout or ():
        said.append(line)
        if found := re.search(r"http://[\d.]+:\d+", line):
            return service, found[0]
    raise OSError(f"the service did not start: {' '.join(said)}")


def live(number: int, kill: int | None = None) -> tuple[Any, list[str]]:
    """(audit of the day, the guard's reasons by hour); the service is killed at the hour `kill`, if any."""
    prior = Noted()
    last = simulate(prior, number)
    prior_costs = [*prior.costs[1:], float(risk(last, NUMPY))]
    with tempfile.TemporaryDirectory() as folder:
        service, url = start(Path(folder))
        try:
            prior_action = lambda seen: float(stored(np.asarray(seen)))  # noqa: E731
            client = tether.Client(url, "microgrid", prior=prior_action, deadline=5.0)
            client.reset(f"day-{number}")
            policy = Tethered(client, lambda hour: service.kill() if hour == kill else None)
            policy.close(simulate(policy, number))
            client.close()
        finally:
            service.kill()
            service.communicate()  # waits, and closes its output
    return tether.audit([policy.costs], [prior_costs], PLANT.contract), policy.reasons


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--day", type=int, default=0, help="number of the day (0)")
    parser.add_argument("--kill", type=int, help="hour in which the service is killed")
    given = parser.parse_args()
    verdict, reasons = live(given.day, given.kill)
    for hour, reason in enumerate(reasons):
        print(f"{hour:2d}:00  {reason}")
    print(verdict)
