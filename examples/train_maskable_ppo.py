"""MaskablePPO and DQN learn to run staged chillers, and no episode of their training breaks the promise.

A plant room has chillers that are on or off. The trusted rule is a staging table: as many stages as the heat that comes
in needs, read off a meter, whatever the temperature is. Switching stages off saves electricity and lets the room drift;
the promise is that the discomfort of every hour of every day stays within reach of the table's:

    cost so far <= (1 + lam) * what the table would have cost so far + b * hours

MaskablePPO (sb3-contrib) is shown which stages are safe (`action_masks`) and draws among these only. DQN
(stable-baselines3) knows nothing of masks; what it proposes is replaced by the nearest safe stage. Both explore, both
are audited from the first hour on against the table replayed on the same days, and so is PPO without a guard.

    pip install 'tether-rl[sb3]'
    python examples/train_maskable_ppo.py
    python examples/train_maskable_ppo.py --pair     # two chillers, three stages each: a MultiDiscrete space
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, PPO

import tether
from tether.gym import Guarded

HOURS = 24
KEEP = 0.8
"""Share of a temperature above or below the setpoint that is left after an hour: the walls do the rest."""
STAGES = {False: [0.0, 1.0, 2.0, 3.0, 4.0], True: [0.0, 1.0, 2.0]}
"""Heat that a stage takes out in an hour, in degrees of the room: of one chiller with four stages, or each of two."""


class PlantRoom(gymnasium.Env):
    """x' = 0.8 x + heat - v * stages, degrees above the setpoint; a share v of 0.8 to 1 of the cold arrives.

    It is seen how much heat comes in this hour, how warm it is, what electricity costs, and how late it is. The cost is
    1 + |x'|, the reward minus the price of what is switched on.
    """

    def __init__(self, pair: bool = False) -> None:
        self.pair, self.levels = pair, np.array(STAGES[pair])
        count = len(self.levels)
        self.action_space = (
            gymnasium.spaces.MultiDiscrete([count, count]) if pair else gymnasium.spaces.Discrete(count)
        )
        self.observation_space = gymnasium.spaces.Box(-100.0, 100.0, (4,), np.float64)
        self.days: list[dict[str, Any]] = []

    def observe(self) -> Any:
        """What is seen before an hour; after the last one, that of the last again."""
        hour = min(self.hour, HOURS - 1)
        return np.array([self.heat[hour], self.temperature, self.price[hour], hour / HOURS])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # noqa: ARG002
        """Begin another day."""
        super().reset(seed=seed)
        clock = np.arange(HOURS)
        self.heat = np.clip(
            2.0 + np.sin(clock / 24 * 2 * np.pi) + self.np_random.normal(0, 0.4, HOURS), 0.0, 4.0
        )
        self.price = np.where((clock >= 10) & (clock < 16), 2.0, 1.0)
        self.arrives = self.np_random.uniform(0.8, 1.0, HOURS)
        self.hour, self.temperature = 0, 0.0
        self.days.append({"costs": [], "heat": self.heat, "arrives": self.arrives, "reward": 0.0})
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        """Play an hour and note what it cost."""
        cold = float(np.sum(self.levels[action]))
        self.temperature = KEEP * self.temperature + self.heat[self.hour] - self.arrives[self.hour] * cold
        reward = -self.price[self.hour] * cold
        cost = 1.0 + abs(self.temperature)
        self.days[-1]["costs"].append(cost)
        self.days[-1]["reward"] += reward
        self.hour += 1
        return self.observe(), reward, False, self.hour == HOURS, {"cost": cost}

    def table(self, observation: Any) -> Any:
        """The staging table: the least stage of at least the heat that comes in; of two chillers half of it each."""
        wanted = observation[0] / (2.0 if self.pair else 1.0)
        stage = int(np.searchsorted(self.levels, wanted))
        stage = min(stage, len(self.levels) - 1)
        return np.array([stage, stage]) if self.pair else stage

    def trusted_costs(self, day: dict[str, Any]) -> list[float]:
        """What the table costs on the same day."""
        temperature, costs = 0.0, []
        for heat, arrives in zip(day["heat"], day["arrives"], strict=True):
            cold = float(np.sum(self.levels[self.table([heat])]))
            temperature = KEEP * temperature + heat - arrives * cold
            costs.append(1.0 + abs(temperature))
        return costs


def certificate(contract: tether.Contract, pair: bool) -> tether.Switches:
    """What a stage more or less can do: a degree now, of which 0.8 is left an hour later, as long as it lasts.

    The table looks at the heat only, which is the same whoever plays: a temperature that is off by e is off by 0.8 e an
    hour later. In the distance between actions the stages of two chillers add up ("l1").
    """
    bounds = tether.Sensitivity(immediate=1.0, carried=KEEP, perturbation=tether.geometric(KEEP))
    levels = STAGES[pair]
    actions = tether.FiniteActions.grid(levels, levels, norm="l1") if pair else tether.FiniteActions(levels)
    return tether.Switches(tether.LipschitzCertificate(contract, bounds), actions)


def audit(plant: PlantRoom, contract: tether.Contract) -> tether.Audit:
    """Every whole day of the training, against the table on the same day."""
    days = [day for day in plant.days if len(day["costs"]) == HOURS]
    return tether.audit([day["costs"] for day in days], [plant.trusted_costs(day) for day in days], contract)


def main(arguments: Sequence[str] | None = None) -> dict[str, tether.Audit]:
    """Train; returns the audits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=30_000, help="of each training (default: %(default)s)")
    parser.add_argument("--lam", type=float, default=0.5, help="relative slack (default: %(default)s)")
    parser.add_argument("--b", type=float, default=0.5, help="slack of an hour (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--pair", action="store_true", help="two chillers; DQN has no such actions and is left out"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)

    contract = tether.Contract(options.lam, options.b, HOURS, cost_floor=1.0)
    short = {"n_steps": 10 * HOURS, "batch_size": 60, "gamma": 1.0}
    learners: dict[str, tuple[Any, dict[str, Any], bool]] = {
        "MaskablePPO inside the guard": (MaskablePPO, short, True),
        "DQN inside the guard": (DQN, {"learning_starts": 100, "exploration_fraction": 0.5}, True),
        "PPO without the guard": (PPO, short, False),
    }
    audits = {}
    for name, (learner, settings, guarded) in learners.items():
        if options.pair and learner is DQN:
            continue
        plant = PlantRoom(options.pair)
        env = Guarded(plant, certificate(contract, options.pair), plant.table) if guarded else plant
        model = learner("MlpPolicy", env, seed=options.seed, verbose=0, **settings)
        model.learn(options.steps)
        audits[name] = audit(plant, contract)
        late = [day["reward"] for day in plant.days if len(day["costs"]) == HOURS]
        late = late[-max(1, len(late) // 10) :]
        print(f"\n{name}: {options.steps} training steps\n{audits[name]}")
        print(f"  mean reward             {np.mean(late):.5g} a day in the last tenth")
        if guarded:
            counts = {str(reason): count for reason, count in env.guard.counts.items()}
            print(f"  decisions               {counts}")
    return audits


if __name__ == "__main__":
    main()
