"""What no policy can earn that does not foresee, on inference and cooling: by enumeration, and beside the guard."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tether
from tether.assure.limit import hindsight_limit
from tether.data.episodes import Episodes
from tether.systems import cooling, inference

INFERENCE = tether.envs.Inference(charge_rate_min=1.0)
COOLING = tether.envs.Cooling()
SHOWN = {
    "inference": {"demand": np.array([4.0, 5.0]), "renewables": np.array([2.0, 1.0])},
    "cooling": {
        "heat_load": np.array([[3.0, 2.0], [4.0, 3.0]]),
        "outside": np.array([30.0, 32.0]),
        "price": np.array([0.1, 0.3]),
    },
}
"""The visible series of two rounds."""
RATES = {"inference": (0.7, 0.85, 1.0), "cooling": tuple(itertools.product((0.8, 0.9, 1.0), repeat=2))}
"""What the hidden rates of a round may be: the promise is asked for each ..."""
DRAWN = {"inference": (0.7, 1.0), "cooling": tuple(itertools.product((0.8, 1.0), repeat=2))}
"""... and these are drawn, equally likely; their mean is that of the range."""
ACTIONS = {
    "inference": np.linspace(0.0, 6.0, 601),
    "cooling": np.stack(np.meshgrid(*[np.linspace(0.0, 8.0, 25)] * 2), axis=-1).reshape(-1, 2),
}
SYSTEMS = {"inference": (INFERENCE, inference.system), "cooling": (COOLING, cooling.system)}
CONTRACTS = {"inference": [(0.0, 1.0), (1.0, 0.3)], "cooling": [(0.0, 0.3), (0.5, 0.5)]}


def round_of(name, h, rate):
    """The series of round h (0 or 1) if this is its hidden rate."""
    hidden = (
        {"effectiveness": np.asarray(rate)}
        if name == "cooling"
        else {"discharge_rate": np.asarray(rate), "charge_rate": np.asarray(1.0)}
    )
    return {**{series: np.asarray(values[h]) for series, values in SHOWN[name].items()}, **hidden}


def every_draw(name):
    """Each draw of two rounds, all equally likely."""
    paths = list(itertools.product(DRAWN[name], repeat=2))
    rounds = [[round_of(name, h, rate) for h, rate in enumerate(path)] for path in paths]
    return Episodes({series: [[each[series] for each in path] for path in rounds] for series in rounds[0][0]})


def best_policy(name, contract):
    """What the best policy earns that knows the rates of a round afterwards: by enumeration of its actions."""
    env, actions = SYSTEMS[name][0], ACTIONS[name]

    def trusted(state, now):
        return env.step(state, now, env.prior(env.observe(state, now)))

    first = [round_of(name, 0, rate) for rate in RATES[name]]
    kept = np.all(
        [
            [env.step(env.initial(), now, each).cost for each in actions]
            <= contract.bound(trusted(env.initial(), now).cost, 1) + 1e-12
            for now in first
        ],
        axis=0,
    )
    values = []
    for action in actions[kept]:
        value = 0.0
        for rate in DRAWN[name]:
            now = round_of(name, 0, rate)
            state, earned, spent = env.step(env.initial(), now, action)
            safe_state, _, paid = trusted(env.initial(), now)
            possible, rewards = np.ones(len(actions), bool), np.zeros(len(actions))
            for other in RATES[name]:
                then = round_of(name, 1, other)
                batch = type(state)(*(np.asarray(part)[None] for part in state))
                many = {series: values[None] for series, values in then.items()}
                _, reward, cost = env.step(batch, many, actions)
                bound = contract.bound(paid + trusted(safe_state, then).cost, 2)
                possible &= spent + cost <= bound + 1e-12
                rewards += reward * (other in DRAWN[name]) / len(DRAWN[name])
            value += (earned + np.max(np.where(possible, rewards, -np.inf))) / len(DRAWN[name])
        values.append(value)
    return max(values)


@pytest.mark.parametrize(
    ("name", "lam", "b"), [(name, *each) for name in SYSTEMS for each in CONTRACTS[name]]
)
@pytest.mark.parametrize("priced", [False, True])
def test_the_bound_is_above_the_best_policy_and_below_hindsight(name, lam, b, priced):
    env, system = SYSTEMS[name]
    contract, episodes = env.contract(lam, b, horizon=2), every_draw(name)
    prior = tether.rollout(env, env.prior, episodes)
    bound, limit = (
        hindsight_limit(env, episodes, contract, prior.costs, processes=1, program=program).upper.mean()
        for program in (system.unforeseen(lam, b, priced=priced), system.program)
    )
    best = best_policy(name, contract)
    assert best > prior.returns.mean()
    assert best <= bound + 1e-4  # the mean over all draws is the expectation
    assert bound <= limit - 0.002 * (limit - prior.returns.mean())


@pytest.mark.parametrize("name", SYSTEMS)
def test_in_each_episode_nobody_who_is_guarded_earns_more_than_the_bound(name):
    system = SYSTEMS[name][1]
    env, (lam, b) = system.env(), (1.0, 0.5)
    contract, episodes = env.contract(lam, b), system.draw(0, 8)
    prior = tether.rollout(env, env.prior, episodes)
    bound, limit = (
        hindsight_limit(env, episodes, contract, prior.costs, processes=1, program=program)
        for program in (system.unforeseen(lam, b, priced=False), system.program)
    )
    guard = tether.Structured(contract, env.structure)
    greedy = tether.rollout(env, lambda seen, _key: 0.9 * seen[: len(env.action_shape) + 1], episodes, guard)
    assert np.all(greedy.returns <= bound.upper + 1e-3)
    assert np.all(bound.upper <= limit.upper + 1e-3)
    assert np.any(bound.upper < limit.upper - 1e-3)
    assert np.all(np.isnan(bound.attained))
