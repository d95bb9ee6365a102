"""Certificates compiled from models that nobody derived anything for: true bounds, and a promise that is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tether
from tether.assure.attack import Hostile, hostile_episodes, plants
from tether.assure.inclusions import Inclusion, hostile_inclusions
from tether.systems import registry
from tether.systems.certified import certificate_of

ROOT = Path(__file__).resolve().parents[2]
NAMES = [file.stem for file in sorted((ROOT / "examples" / "models").glob("*.py"))]
HORIZON = 5


@pytest.fixture(params=NAMES)
def plant(request, monkeypatch):
    """(system, its compiled certificate)."""
    monkeypatch.syspath_prepend(str(ROOT))
    system = registry.find(f"examples.models.{request.param}:system")
    env = system.env()
    return system, certificate_of("compiled", env, env.contract(0.2, 0.05, HORIZON))


@pytest.mark.slow
def test_every_compiled_bound_is_true_and_would_be_refuted_if_it_were_drawn_in(plant):
    found = hostile_inclusions(*plant, episodes=400)
    assert set(found) == {"now (prior)", "later (prior)", "floor", "ceiling", "box", "possible"}
    for each in found.values():
        assert each.compared > 0
        assert each.broken == 0, each
    for name in ("now (prior)", "floor", "ceiling"):
        assert found[name].sharp, found[name]


@pytest.mark.slow
def test_hostile_policies_keep_the_promise_through_what_was_compiled_and_only_then(plant):
    system, certificate = plant
    env = plants(system)["standard"]
    contract = certificate.contract
    episodes = hostile_episodes(system, env, 200, np.random.default_rng(0), HORIZON)
    prior = tether.rollout(env, env.prior, episodes, record="outcomes")
    free = tether.rollout(env, Hostile(env), episodes, record="outcomes")
    assert tether.audit(free, prior, contract).violation_rate > 0.05
    run = tether.rollout(env, Hostile(env), episodes, certificate)
    assert tether.audit(run, prior, contract).holds
    assert not np.any(run.breached)


def test_a_bound_that_is_exceeded_or_out_of_reach_is_told_from_one_that_is_sharp():
    true = Inclusion("now", 10, 0, 0.01)
    assert true.sharp
    assert not Inclusion("now", 10, 0, 0.06).sharp
    assert true.together(None) == true
    assert true.together(Inclusion("now", 5, 2, 0.3)) == Inclusion("now", 15, 2, 0.01)
