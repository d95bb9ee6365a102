"""The authors' networks, played through our guard on the authors' data, give the authors' numbers."""

from __future__ import annotations

import json
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import tether

LAMBDAS = (0, 2, 4, 6, 8, 10)

pytestmark = pytest.mark.needs_data


class AuthorsNetwork(eqx.Module):
    """Two hidden layers of 40; ReLU after every layer, the last one included."""

    weights: list[jax.Array]
    biases: list[jax.Array]

    def __call__(self, observation, key):
        for weight, bias in zip(self.weights, self.biases, strict=True):
            observation = jax.nn.relu(weight @ observation + bias)
        return observation


def network(file: Path, name: str) -> AuthorsNetwork:
    layers = ("input", "hidden", "output")
    with np.load(file) as stored:
        return AuthorsNetwork(
            [stored[f"{name}/{layer}_linear.weight"] for layer in layers],
            [stored[f"{name}/{layer}_linear.bias"] for layer in layers],
        )


@pytest.fixture(scope="module")
def published(shared):
    return json.loads((shared / "paper" / "published.json").read_text())


@pytest.fixture(scope="module")
def episodes(shared):
    return tether.data.load_carbon(shared / "data" / "carbon", split="test")


@pytest.fixture(scope="module")
def env():
    return tether.envs.Carbon()


@pytest.fixture(scope="module")
def prior(env, episodes):
    return tether.rollout(env, env.prior, episodes)


def test_the_prior_costs_what_was_measured(prior):
    assert prior.total_costs.mean() == pytest.approx(27.816, abs=0.001)
    assert prior.total_costs.max() == pytest.approx(34.356, abs=0.001)
    assert prior.returns.mean() == pytest.approx(495.747, abs=0.001)


def test_the_published_rl_network_earns_more_and_breaks_the_promise(shared, env, episodes, prior):
    run = tether.rollout(env, network(shared / "paper" / "networks_b2.npz", "rl"), episodes)
    assert run.returns.mean() == pytest.approx(568.890, abs=0.001)
    assert run.total_costs.mean() == pytest.approx(1468.3, abs=0.1)
    assert run.total_costs.max() == pytest.approx(4502.8, abs=0.1)
    assert tether.audit(run, prior, env.contract(lam=10.0, b=2.0)).violation_rate > 0.5


@pytest.mark.parametrize("method", ["acrl", "rl_acd"])
@pytest.mark.parametrize(("place", "lam"), list(enumerate(LAMBDAS)))
def test_rule_released_gives_the_published_numbers(
    method, place, lam, shared, env, episodes, prior, published
):
    contract = env.contract(lam=float(lam), b=2.0)
    certificate = tether.LipschitzCertificate(contract, env.sensitivity, rule="released")
    name = "rl" if method == "rl_acd" else f"acrl_lambda{lam}_b2"
    run = tether.rollout(env, network(shared / "paper" / "networks_b2.npz", name), episodes, certificate)
    assert run.returns.mean() == pytest.approx(published[f"{method}_mean_reward"][place], abs=0.01)
    assert run.total_costs.mean() == pytest.approx(published[f"{method}_mean_cost"][place], abs=0.01)
    assert run.total_costs.max() == pytest.approx(published[f"{method}_worst_cost"][place], abs=0.01)
    assert tether.audit(run, prior, contract).holds
