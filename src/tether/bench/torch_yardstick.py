"""The yardstick of `tether bench train`: an update of deep ACRL on the carbon system in eager PyTorch.

Written as published research code is: a Python loop over the rounds, tensors batched over the episodes, the guard in
the loop, `loss.backward()`, Adam. Same system, guard, network and inputs as ours, in float64. It leaves out what only
the promise needs (radii rounded inward, breaches), which makes it a little faster. PyTorch's number of threads stays
as it is: whoever measures sets it, with `torch.set_num_threads`.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tether.core import validate
from tether.core.extras import missing
from tether.core.sensitivity import Geometric
from tether.systems.carbon import Carbon
from tether.systems.carbon import system as system

BATCH, WIDTH, LEARNING_RATE = 50, 40, 1e-3
"""Episodes of an update, neurons of a hidden layer, and Adam's step: the paper's."""


def torch_updates(
    demand: Any,
    renewables: Any,
    efficiency_noise: Any,
    drop_rate: Any,
    *,
    lam: float,
    b: float,
    rule: str,
    updates: int,
    seed: int,
) -> tuple[float, list[float]]:
    """Train a fresh policy for so many updates, each on 50 episodes (all of them, if there are fewer).

    The arrays, [N, H], are the series of `tether.envs.Carbon`; lam and b are the contract's; the rule is `"released"`
    or `"tight"`; the seed is of the weights and of the batches.

    Returns:
        The seconds that the updates took, setting up excluded, and the mean episode reward of each batch.
    """
    torch = _torch()
    series = torch.tensor(np.stack([demand, renewables, efficiency_noise, drop_rate]), dtype=torch.float64)
    policy, parameters = fresh_policy(series[0], series[1], seed)
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    batches = _batches(series.shape[1], seed)
    losses = []
    start = time.perf_counter()
    for _ in range(updates):
        _, rewards, _ = guarded_rollout(policy, series[:, next(batches)], lam, b, rule)
        reward = rewards.sum(dim=1).mean()
        optimizer.zero_grad()
        (-reward).backward()
        optimizer.step()
        losses.append(reward.item())
    return time.perf_counter() - start, losses


def guarded_rollout(
    policy: Callable[[Any], Any], series: Any, lam: float, b: float, rule: str
) -> tuple[Any, Any, Any]:
    """Play the episodes `series`, a tensor [4, N, H], through the guard; `policy` maps [N, 7] to [N].

    Its inputs are the observation (demand, renewables, last action, backlog) and the guard's features (allowance,
    margin, carried deviation). Returns actions, rewards and costs, [N, H] each.
    """
    torch = _torch()
    validate.choice("rule", rule, ("released", "tight"))
    env = Carbon()
    immediate, carried, p = env.sensitivity.immediate, env.sensitivity.carried, env.sensitivity.perturbation
    assert isinstance(p, Geometric)
    horizon, earned = series.shape[2], lam * env.cost_floor + b
    k = torch.arange(horizon + 1, dtype=series.dtype)
    reach = (1.0 - p.rho**k) / (1.0 - p.rho)  # [H + 1] p(0) + ... + p(k-1)

    backlog = last_action = surplus = memory = torch.zeros_like(series[0, :, 0])
    allowance = backlog + earned
    rounds = []
    for h, left in enumerate(range(horizon, 0, -1)):
        mu, renewables, noise, dropped = series[:, :, h]
        total = immediate + carried * reach[left - 1]
        if rule == "tight":
            slack = (surplus + h * b)[:, None] + earned * k[1 : left + 1]
            slack = slack - carried * memory[:, None] * reach[1 : left + 1]  # [N, left]
            radius = (slack / (immediate + carried * reach[:left])).min(dim=1).values.clamp(min=0.0)
        else:
            radius = (allowance / total).clamp(min=0.0)
        margin = surplus + earned + h * b - carried * memory
        seen = (mu, renewables, last_action, backlog, radius * total, margin, memory)
        proposal = policy(torch.stack(seen, dim=1))
        prior = (backlog + mu) / env.efficiency
        action = torch.clamp(proposal, (prior - radius).clamp(min=0.0), prior + radius)

        work = (env.efficiency + noise) * action
        backlog = ((1.0 - dropped) * backlog + mu - work).clamp(0.0, env.backlog_max)
        cost = backlog**2 + backlog + 1.0
        reward = env.revenue_weight * torch.sqrt(work) - (action - renewables).clamp(min=0.0) ** 2
        if h > 0:
            reward = reward - env.switching_weight * (action - last_action) ** 2

        deviation = (action - prior).abs()
        floor = (cost - carried * memory - immediate * deviation).clamp(min=env.cost_floor)
        surplus = surplus + (1.0 + lam) * floor - cost
        memory = p.rho * memory + deviation
        if rule == "released":
            regained = surplus - carried * memory * reach[left - 1] + (h + 1) * b
            allowance = earned + torch.maximum(allowance - total * deviation, regained)
        last_action = action
        rounds.append((action, reward, cost))
    actions, rewards, costs = (torch.stack(each, dim=1) for each in zip(*rounds, strict=True))
    return actions, rewards, costs


def fresh_policy(demand: Any, renewables: Any, seed: int) -> tuple[Callable[[Any], Any], list[Any]]:
    """An untrained network 7 - 40 - 40 - 1 whose actions are near the prior's mean one, and its parameters."""
    torch = _torch()
    nn, prior = torch.nn, demand / Carbon().efficiency
    mean = torch.stack([demand.mean(), renewables.mean(), prior.mean(), torch.zeros_like(prior[0, 0])])
    scale = torch.stack([demand.std(), renewables.std(), prior.std(), torch.ones_like(prior[0, 0])])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        first, second, last = (nn.Linear(*size).double() for size in ((7, WIDTH), (WIDTH, WIDTH), (WIDTH, 1)))
    nn.init.constant_(last.bias, math.log(math.expm1(prior.mean().item())))
    network = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last, nn.Softplus())

    def policy(seen: Any) -> Any:
        features = torch.log1p(seen[:, 4:].clamp(min=0.0)) - 1.0
        return network(torch.cat([(seen[:, :4] - mean) / scale, features], dim=1)).squeeze(1)

    return policy, list(network.parameters())


def _batches(count: int, seed: int) -> Iterator[Any]:
    """Indices of batch after batch: the episodes in random order, then in another one, and so on."""
    rng, size = np.random.default_rng(seed), min(BATCH, count)
    while True:
        yield from rng.permutation(count)[: count - count % size].reshape(-1, size)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise missing("the yardstick in PyTorch", error) from None
