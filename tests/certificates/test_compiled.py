"""Certificates compiled from a model keep the promise."""

from __future__ import annotations

import numpy as np
import pytest

import tether
from structures import hostile_draws
from tether.assure.attack import Hostile, plants
from tether.certificates import Structured, compiled
from tether.certificates.model import Model
from tether.systems import registry


@pytest.mark.slow
def test_from_its_model_alone_carbon_keeps_the_promise_nearly_as_freely_as_by_its_proof():
    env = plants(registry.find("carbon"))["standard"]
    episodes = hostile_draws(env, 400, np.random.default_rng(0))
    contract = env.contract(2.0, 2.0)
    certificate = compiled.compile(Model.from_env(tether.envs.Carbon()), contract)
    prior = tether.rollout(env, env.prior, episodes, record="outcomes")
    free = tether.rollout(env, Hostile(env), episodes, record="outcomes")
    assert tether.audit(free, prior, contract).violation_rate > 0.2
    run = tether.rollout(env, Hostile(env), episodes, certificate)
    assert tether.audit(run, prior, contract).holds
    assert not np.any(run.breached)
    by_hand = tether.rollout(env, Hostile(env), episodes, Structured(contract, env.structure))
    # Far proposals above the prior's action are safe for both; they would hide everything else.
    used, known = (np.minimum(each.deviations, 10.0).mean() for each in (run, by_hand))
    assert used > 0.9 * known


def test_ranges_that_are_none_are_refused_and_named():
    functions = {"step": lambda x, z, a, w: x, "cost": lambda x, z, a, w: x, "prior": lambda x, z: x}
    with pytest.raises(ValueError, match="state must be a finite range"):
        Model(**functions, state=(1.0, 0.0), action=(0.0, 1.0))
    with pytest.raises(ValueError, match="draws must be a finite range"):
        Model(**functions, state=(0.0, 1.0), action=(0.0, 1.0), draws=(0.0, np.inf))
