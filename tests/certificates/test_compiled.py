"""Certificates compiled from a model keep the promise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tether
from structures import hostile_draws
from tether.assure.attack import Hostile, plants
from tether.certificates import Structured, compiled
from tether.certificates.compiled_structure import CompiledStructure, Precision
from tether.certificates.model import Model
from tether.systems import registry

pytestmark = pytest.mark.usefixtures("compiled_quickly")


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


@pytest.mark.slow
def test_an_action_of_one_entry_is_decided_as_a_number_is_and_a_model_needs_no_draws():
    def model(entry, as_action, ends):
        def after(x, z, a):
            return 0.9 * x + z - entry(a)

        return tether.Model(
            step=lambda x, z, a, w: jnp.clip(after(x, z, a), 0.0, 10.0),
            cost=lambda x, z, a, w: 1.0 + abs(after(x, z, a) - 5.0),
            prior=lambda x, z: as_action(jnp.clip(0.9 * x + z - 5.0, 0.0, 4.0)),
            state=(0.0, 10.0),
            action=ends,
            context=(0.0, 2.0),
        )

    number = model(lambda a: a, lambda a: a, (0.0, 4.0))
    entry = model(lambda a: a[0], lambda a: a[None], ([0.0], [4.0]))
    contract = tether.Contract(lam=0.5, b=0.5, horizon=3, cost_floor=1.0)
    guards = [
        tether.Guard(tether.compile(each, contract), each.policy, *each.action) for each in (number, entry)
    ]
    level = 5.0
    for _ in range(3):
        one, other = (guard.act([level, 1.5], wish) for guard, wish in zip(guards, (0.0, [0.0]), strict=True))
        assert np.shape(one.action) == ()
        assert np.shape(other.action) == (1,)
        assert other.action[0] == pytest.approx(one.action, rel=1e-9)
        assert 0.0 < one.action < one.prior_action
        level = 0.9 * level + 1.5 - one.action
        for guard in guards:
            guard.observe(1.0 + abs(level - 5.0))
    assert [guard.breach for guard in guards] == [None, None]


@pytest.mark.slow
def test_a_cost_that_the_state_has_no_part_in_is_bounded_by_the_action():
    meter = Model(
        step=lambda x, z, a, w: 0.5 * x + a + w,
        cost=lambda x, z, a, w: 1.0 + abs(a) + w,
        prior=lambda x, z: jnp.zeros(()),
        state=(-10.0, 10.0),
        action=(-4.0, 4.0),
        draws=(0.0, 0.1),
    )
    certificate = compiled.compile(meter, tether.Contract(lam=0.5, b=0.5, horizon=3, cost_floor=1.0))
    guard = tether.Guard(certificate, prior=meter.policy, low=-4.0, high=4.0)
    # 1 + a + w is at most 1.5 (1 + w) + 0.5, whatever w is: a is at most 1.
    assert guard.act([0.0], 4.0).action == pytest.approx(1.0, abs=0.02)


def test_the_model_of_a_system_is_traced_in_both_precisions():
    model = tether.Model.from_env(tether.envs.Carbon())
    n, nz, _, _ = model.sizes
    with jax.enable_x64(True):
        wide = jax.jit(model.prior)(np.ones(n), np.ones(nz))
    narrow = jax.jit(model.prior)(np.ones(n, np.float32), np.ones(nz, np.float32))  # and no warning
    assert (wide.dtype, narrow.dtype) == (np.float64, np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_forecast_beyond_the_range_of_the_context_says_nothing_beyond_it(dtype):
    """What the prior does was looked at where the context is in its range, and nowhere else."""
    given = {
        "step": lambda x, z, a, w: jnp.clip(0.9 * x + z - a, 0.0, 10.0),
        "cost": lambda x, z, a, w: 1.0 + abs(x - 5.0),
        "prior": lambda x, z: jnp.clip(0.9 * x + z - 5.0, 0.0, 4.0),
        "state": (0.0, 10.0),
        "action": (0.0, 4.0),
        "context": (0.0, 2.0),
    }
    structure = CompiledStructure(
        Model(**given, band=(np.array([-1.0, 0.5, 1.0]), np.array([1.0, 1.5, 9.0]))), 3, Precision()
    )
    with jax.enable_x64(dtype == np.float64):
        found = [structure.flat.contexts(jnp.asarray(place), dtype) for place in range(3)]
    assert [(each.low.item(), each.high.item()) for each in found] == [(0.0, 1.0), (0.5, 1.5), (1.0, 2.0)]
    with pytest.raises(ValueError, match="nothing of band is in the range of the context"):
        Model(**given, band=(np.array([0.0, 3.0]), np.array([1.0, 4.0])))
