"""What the authors' code chose and the paper does not print, or prints otherwise, and what each choice does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.certificates import LipschitzCertificate, Rule
from tether.core.sensitivity import Sensitivity
from tether.paper.studies.networks import load_authors_network
from tether.simulate.rollout import rollout
from tether.systems.carbon.env import Carbon
from tether.systems.carbon.reader import load_carbon


@dataclass(frozen=True)
class Choice:
    """A number that the paper does not print, or prints otherwise, and what it does to the authors' networks."""

    choice: str
    value: str
    """`used`: in the authors' code and in every published number; or what it is compared with."""
    policy: str
    """`rl`, unguarded; `rl_acd` and `acrl` (trained for lam = 2), behind the guard; `prior`."""
    mean_reward: float
    mean_cost: float
    worst_cost: float


def play_choices(paper: Path, data: Path) -> list[Choice]:
    """What the authors' code chose and the paper does not say, on their test windows, at lam = 2 and b = 2.

    - `carried`: the paper's formula is L_c (1 + L_pi) L_f, and with L_c = 31, L_pi = 1 / 0.8 and L_f = 1 it is 69.75.
      The code has 2.875, which is proved in another way (`tether.envs.Carbon`). With rule `paper`.
    - The backlog is cut off at 15; the paper has no limit, and without one there is no L_c. Played unguarded, and with
      rule `released` and the constants of the code.
    - The weight of the revenue is 16, gamma_1 C_r; the paper prints gamma_1 = 4, and no C_r. 4 is C_r = 1.
    - The weight of switching is 0.1; the paper prints gamma_2 = 1.
    """
    env, episodes = Carbon(), load_carbon(data, "test")
    contract = env.contract(2.0, 2.0)
    network = {
        policy: load_authors_network(paper / "networks_b2.npz", name)
        for policy, name in (("rl", "rl"), ("rl_acd", "rl"), ("acrl", "acrl_lambda2_b2"))
    }
    cost_slope, reaction = 2.0 * env.backlog_max + 1.0, 1.0 / env.efficiency
    formula = cost_slope * (1.0 + reaction) * (env.efficiency + env.efficiency_noise_max)
    choices: list[Choice] = []

    def add(choice: str, value: str, policy: str, system: Carbon, rule: Rule, bounds: Sensitivity) -> None:
        guard = LipschitzCertificate(contract, bounds, rule) if policy in ("rl_acd", "acrl") else None
        player = system.prior if policy == "prior" else network[policy]
        run = rollout(system, player, episodes, guard, record="outcomes")
        numbers = (run.returns.mean(), run.total_costs.mean(), run.total_costs.max())
        choices.append(Choice(choice, value, policy, *map(float, numbers)))

    bounds = env.sensitivity
    for value, carried in (("2.875, used", bounds.carried), (f"{formula:g}, formula", formula)):
        for policy in ("rl_acd", "acrl"):
            add("carried", value, policy, env, "paper", replace(bounds, carried=carried))
    for value, limit in (("15, used", env.backlog_max), ("none", 1e6)):
        for policy in ("rl", "acrl"):
            add("largest backlog", value, policy, replace(env, backlog_max=limit), "released", bounds)
    weights = (
        ("revenue weight", "16, used", env),
        ("revenue weight", "4, printed", replace(env, revenue_weight=4.0)),
        ("switching weight", "0.1, used", env),
        ("switching weight", "1, printed", replace(env, switching_weight=1.0)),
    )
    for choice, value, system in weights:
        for policy in ("prior", "rl", "acrl"):
            add(choice, value, policy, system, "released", bounds)
    return choices


def choices_table(choices: list[Choice]) -> Table:
    """What the authors' code chose, for people."""
    table = Table(
        title="What the paper does not print, and what it does: lam = 2, b = 2",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.caption = "formula: L_c (1 + L_pi) L_f. The authors' networks, their test windows; rl is unguarded."
    for name in ("choice", "value", "policy"):
        table.add_column(name, no_wrap=True)
    for name in ("mean reward", "mean cost", "worst cost"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in choices:
        numbers = (f"{number:.1f}" for number in (row.mean_reward, row.mean_cost, row.worst_cost))
        table.add_row(row.choice, row.value, row.policy, *numbers)
    return table
