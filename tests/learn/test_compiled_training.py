"""A learner that trains through a compiled certificate follows the edge of its safe set."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tether
from tether.simulate.rollout import play
from tether.systems import from_model
from tether.systems.certified import certificate_of

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def level(x, z, a, w):
    return jnp.clip(0.5 * x + z - a + w, 0.0, 10.0)


TANK = tether.Model(
    step=level,
    cost=lambda x, z, a, w: 1.0 + abs(level(x, z, a, w) - 5.0),
    prior=lambda x, z: jnp.clip(0.5 * x + z - 5.0, 0.0, 4.0),
    reward=lambda x, z, a, w: a + 0.0 * w,
    state=(0.0, 10.0),
    action=(0.0, 4.0),
    context=(3.0, 5.0),
    draws=(-0.1, 0.1),
    initial=5.0,
)


@pytest.mark.slow
def test_what_is_spent_now_is_missed_later_and_the_gradient_says_how_much():
    system = from_model("small_tank", "Tank", TANK, horizon=3, cost_floor=1.0)
    env = system.env()
    certificate = certificate_of("compiled", env, env.contract(0.5, 1.0, 3))
    episodes = system.draw(0, 4)
    with jax.enable_x64(True):
        drawn = {name: jnp.asarray(np.swapaxes(episodes[name], 0, 1)) for name in env.drawn_names}

        def earned(spent):
            def policy(seen, key):
                # At the start a little more than the prior, as is safe; from then on all that is allowed.
                return jnp.where(abs(seen[0] - 5.0) < 1e-9, env.prior(seen) + spent, 4.0)

            played = play(env, policy, drawn, certificate, jnp.uint32(0), "outcomes")
            return jnp.mean(jnp.sum(played["rewards"], axis=0))

        value = jax.jit(earned)
        slope = float(jax.jit(jax.grad(earned))(0.4))
        # Were later rounds not counted it would be 1; a search of few turns makes differences of short steps noisy.
        assert slope == pytest.approx((float(value(0.5)) - float(value(0.3))) / 0.2, abs=0.1)
        assert slope < -0.3
