"""What the paper's inference experiment leaves open, searched for values under which all that it reports holds at once.

The paper names the weights of the reward but not C_d, C_i, the prior's slack Q_c, the battery's capacity and first
charge, nor the scale of demand and renewables. Random values are screened with two policies that need no training,
Carbon-B and one that maximises the reward of each hour; what passes is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tether.data.episodes import Episodes
from tether.learn.plant import Plant, load_plant
from tether.learn.train import Score, Training, evaluate, train
from tether.learn.trial import recipe_of
from tether.paper.studies.findings import SMALL
from tether.simulate.rollout import rollout
from tether.systems.certified import Kind, certificate_of
from tether.systems.inference import Inference, system

PRINTED_REGRET = 51.417
"""Carbon-B's regret in the paper; it is what C_d and C_i of `Inference` were calibrated to."""
TOLERANCE = 0.1
"""Relative distance from it that passes."""
LAMS, B = (5.0, 7.0), 6.0
"""The paper's settings of this system."""
ACTIONS = 121
"""Actions that the greedy policy of the screening chooses from."""


@dataclass(frozen=True)
class PriorForm:
    """Carbon-B in one form, on test episodes."""

    form: str
    differs: float
    """Share of the actions that the Lipschitz form, in the same state, would not take (by more than 1e-9)."""
    reward: float
    """Mean episode reward."""
    cost: float
    """Mean episode cost."""
    worst_cost: float


def draw_plant(episodes: int, seed: int) -> Plant:
    """The inference system on synthetic episodes, so many of them to train on."""
    return load_plant(system, None, episodes, seed)


def prior_forms(env: Any, episodes: Episodes) -> list[PriorForm]:
    """The form whose certificate is proved beside the printed one, with two estimates of v_a."""
    mean = 0.5 * (1.0 + env.discharge_rate_min)
    forms: dict[str, Callable[..., Any]] = {
        "Lipschitz (ours)": env.prior,
        "printed, v_a estimated as 1": env.printed_prior,
        f"printed, v_a estimated as {mean:g} (its mean)": partial(env.printed_prior, discharge_rate=mean),
    }
    rows = []
    for name, policy in forms.items():
        run = rollout(env, policy, episodes)
        assert run.actions is not None
        assert run.prior_actions is not None
        apart = np.abs(run.actions - run.prior_actions) > 1e-9
        costs = run.total_costs
        rows.append(
            PriorForm(
                name, float(apart.mean()), float(run.returns.mean()), float(costs.mean()), float(costs.max())
            )
        )
    return rows


@dataclass(frozen=True)
class Setting:
    """Values of the open parameters."""

    carbon_slack: float
    """Q_c, cost units."""
    demand_weight: float
    """C_d."""
    performance_scale: float
    """C_i, per unit of energy."""
    capacity: float
    """Of the battery, energy units."""
    charged: float
    """What it holds before the first round, as a share of the capacity."""
    demand: float
    """Mean of the demand, energy units an hour."""
    renewables: float
    """Factor on the renewables."""

    @property
    def env(self) -> Inference:
        """The system with these parameters."""
        return Inference(
            carbon_slack=self.carbon_slack,
            demand_weight=self.demand_weight,
            performance_scale=self.performance_scale,
            capacity=self.capacity,
            initial_charge=self.charged * self.capacity,
        )

    def episodes(self, drawn: Episodes) -> Episodes:
        """Episodes of `tether.envs.Inference` at this setting's scale."""
        demand = drawn["demand"] * (self.demand / drawn["demand"].mean())
        series = {name: drawn[name] for name in drawn.names}
        series |= {
            "demand": np.minimum(demand, self.env.demand_max),
            "renewables": self.renewables * drawn["renewables"],
        }
        return Episodes(series, drawn.start_hours)


def draw_setting(rng: np.random.Generator) -> Setting:
    """One setting at random, logarithmic in Q_c, C_d and C_i."""

    def spread(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    return Setting(
        carbon_slack=spread(0.05, 9.0),
        demand_weight=spread(0.1, 5.0),
        performance_scale=spread(0.1, 10.0),
        capacity=float(rng.uniform(1.0, 12.0)),
        charged=float(rng.uniform(0.0, 1.0)),
        demand=float(rng.uniform(2.5, 5.0)),
        renewables=float(rng.uniform(0.3, 1.2)),
    )


@dataclass(frozen=True)
class Screened:
    """What a setting promises before anything is trained."""

    setting: Setting
    prior_regret: float
    """Mean reward of the greedy policy minus that of Carbon-B."""
    prior_cost: float
    """Mean episode cost of Carbon-B: what lam multiplies."""
    greedy_cost: float
    bound: float
    """On the average cost, at the smaller lam."""

    @property
    def passes(self) -> bool:
        """Whether Carbon-B's regret is about the printed one, and CRL would have something to give up."""
        near = abs(self.prior_regret / PRINTED_REGRET - 1.0) <= TOLERANCE
        return near and self.greedy_cost > 1.1 * self.bound


def screen(setting: Setting, drawn: Episodes) -> Screened:
    """Play Carbon-B and the greedy policy."""
    env, episodes = setting.env, setting.episodes(drawn)
    prior_reward, prior_cost = _played(env, episodes, lambda _state, _now, seen: env.prior(seen))
    greedy_reward, greedy_cost = _played(env, episodes, lambda state, now, _seen: _greedy(env, state, now))
    bound = (1.0 + LAMS[0]) * prior_cost + episodes.horizon * B
    return Screened(setting, greedy_reward - prior_reward, prior_cost, greedy_cost, bound)


def _played(env: Inference, episodes: Episodes, policy: Callable[..., Any]) -> tuple[float, float]:
    """Mean reward and mean cost of an episode, all episodes side by side in NumPy."""
    count = len(episodes)
    state: Any = env.initial()
    state = type(state)(*(np.full(count, float(entry)) for entry in state))
    reward, cost = np.zeros(count), np.zeros(count)
    for h in range(episodes.horizon):
        now = {name: episodes[name][:, h] for name in env.series}
        seen = np.moveaxis(env.observe(state, now), 0, -1)
        step = env.step(state, now, np.clip(policy(state, now, seen), env.low, env.high))
        state, reward, cost = step.state, reward + step.reward, cost + step.cost
    return float(reward.mean()), float(cost.mean())


def _greedy(env: Inference, state: Any, now: dict[str, Any]) -> Any:
    """The best of many actions for the hour at hand, with the rates at their means."""
    means = {
        "discharge_rate": 0.5 * (1.0 + env.discharge_rate_min),
        "charge_rate": 0.5 * (1.0 + env.charge_rate_min),
    }
    actions = np.linspace(env.low, env.high, ACTIONS)[:, None]
    rewards = env.step(state, now | means, actions).reward
    return actions[np.argmax(rewards, axis=0), 0]


@dataclass(frozen=True)
class Trained:
    """What the learners of a setting do; regrets are against RL of the same seed, a number for each seed."""

    setting: Setting
    certificate: Kind
    """What ACRL's guard knows."""
    prior: list[float]
    """Carbon-B's regret."""
    crl: list[float]
    """CRL's at lam = 5."""
    acrl: list[float]
    """ACRL's at lam = 5 ..."""
    acrl_freer: list[float]
    """... and at lam = 7."""
    learned: list[float]
    """Reward that ACRL at lam = 5 gained from its first to its last pass."""
    violation_rate: float
    """Largest of ACRL's."""

    def claims(self, share: float = SMALL) -> dict[str, bool]:
        """What the paper reports of this system, and whether it holds for the mean over the seeds.

        Args:
            share: Differences of regret count from this share of Carbon-B's regret on, as in the table of claims; 0 to
                go by the sign alone.
        """
        prior, crl, acrl, freer = (
            float(np.mean(each)) for each in (self.prior, self.crl, self.acrl, self.acrl_freer)
        )
        least = share * prior
        return {
            "Carbon-B about 51.4": abs(prior / PRINTED_REGRET - 1.0) <= TOLERANCE,
            "CRL above RL": crl > least,
            "CRL below ACRL": acrl - crl > least,
            "lam 7 below 5": acrl - freer > least,
            "ACRL below Carbon-B": prior - acrl > least,
            "regret falls": min(self.learned) > 0.0,
            "no violation": self.violation_rate == 0.0,
        }


def train_setting(
    setting: Setting, drawn: Plant, seeds: Sequence[int], passes: int, kinds: Sequence[Kind]
) -> list[Trained]:
    """Train RL, CRL and ACRL offline, ACRL with each kind of certificate; regrets are of the training episodes.

    So are those of the paper's figure, which shows the first 500 episodes of learning.

    Args:
        setting: The open parameters.
        drawn: Episodes of `tether.envs.Inference` at its own scale.
        seeds: Of the learners.
        passes: Over the training episodes.
        kinds: What ACRL's guard knows: `lipschitz` (rule `tight`) or `structured`.
    """
    env = setting.env
    learn = setting.episodes(drawn.train)
    validation = None if drawn.validation is None else setting.episodes(drawn.validation)
    recipe = recipe_of("tether", drawn.system.defaults, passes=passes)

    def scored(method: str, kind: Kind, lams: Sequence[float]) -> tuple[Training, list[Score]]:
        certificate = certificate_of(kind, env, env.contract(LAMS[0], B, learn.horizon))
        training = train(
            method,
            env,
            learn,
            certificate,
            lams=lams,
            bs=[B],
            seeds=seeds,
            validation=validation,
            recipe=recipe,
        )
        return training, evaluate(training, env, learn, certificate)

    best = [score.reward for score in scored("rl", "lipschitz", LAMS[:1])[1]]

    def regrets(scores: Sequence[Score], lam: float) -> list[float]:
        mine = [score.reward for score in scores if score.lam == lam]
        return [its - own for its, own in zip(best, mine, strict=True)]

    prior, crl = (regrets(scored(method, "lipschitz", LAMS[:1])[1], LAMS[0]) for method in ("prior", "crl"))
    found = []
    for kind in kinds:
        training, scores = scored("acrl", kind, LAMS)
        history = training.history.rewards[:, 0]
        found.append(
            Trained(
                setting,
                kind,
                prior=prior,
                crl=crl,
                acrl=regrets(scores, LAMS[0]),
                acrl_freer=regrets(scores, LAMS[1]),
                learned=(history[-1] - history[0]).tolist(),
                violation_rate=max(score.violation_rate for score in scores),
            )
        )
    return found


def search(
    drawn: Plant,
    settings: int,
    trained: int,
    seeds: Sequence[int],
    passes: int,
    report: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
) -> tuple[list[Screened], list[Trained]]:
    """Screen random settings and train the most promising: those whose prior pays most, as lam multiplies that.

    Args:
        drawn: Episodes of `tether.envs.Inference`.
        settings: How many to draw, from the first of the seeds.
        trained: How many to train at most.
        seeds: Of the learners.
        passes: Over the training episodes.
        report: Called with what is done, how many of it and how many in all.

    Returns:
        The settings that passed the screening, best first, and what was trained.
    """
    rng = np.random.default_rng(seeds[0])
    passed = []
    for done in range(settings):
        screened = screen(draw_setting(rng), drawn.train)
        if screened.passes:
            passed.append(screened)
        report("screening", done + 1, settings)
    passed.sort(key=lambda each: -each.prior_cost)
    found: list[Trained] = []
    for done, each in enumerate(passed[:trained]):
        found += train_setting(each.setting, drawn, seeds, passes, ("lipschitz", "structured"))
        report("training", done + 1, min(trained, len(passed)))
    return passed, found


def evidence(settings: int, passed: Sequence[Screened], found: Sequence[Trained]) -> list[dict[str, Any]]:
    """What the search says about claims that do not hold at our setting (see `find_results`).

    Args:
        settings: How many were drawn.
        passed: Those that passed the screening.
        found: What was trained.
    """
    if not found:
        return []
    whole = [each for each in found if all(each.claims().values())]
    signs = sum(all(each.claims(0.0).values()) for each in found)
    searched = (
        f"Of {settings} random values of the open parameters {len(passed)} pass a screening; of {len(found)} trainings "
        f"at {len({each.setting for each in found})} of them, with Lipschitz rule or structured certificate, all "
        f"of the paper's claims hold in {len(whole)} by more than {SMALL:.1%} of Carbon-B's regret, in {signs} by the "
        "sign alone"
    )

    def held(claim: str) -> str:
        counts = []
        for kind in dict.fromkeys(each.certificate for each in found):
            mine = [each.claims()[claim] for each in found if each.certificate == kind]
            counts.append(f"{sum(mine)} of {len(mine)} with the {kind} certificate")
        return ", ".join(counts)

    texts = {
        "inference": searched,
        "inference crl": f"{searched}, this one in {held('CRL above RL')}",
        "inference lam": f"{searched}, this one in {held('lam 7 below 5')}",
        "inference order": f"{searched}, this one in {held('CRL below ACRL')}",
    }
    return [
        {"on": on, "text": f"{text} (`tether reproduce open`).", "holds": None} for on, text in texts.items()
    ]
