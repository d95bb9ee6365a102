"""The gaps that structures know without a cost hold for any draw, action and gap."""

from __future__ import annotations

import numpy as np
import pytest

import tether
from tether.certificates.structure import Round
from tether.core.ops import NUMPY


def case(env, rng, count):
    """One round of the own plant and of the prior's, with draws at their ends or between."""
    series = {}
    for name, (low, high) in {**env.limits(), **env.search_ranges()}.items():
        if name in env.series:
            low, high = (float(end) if np.isfinite(end) else 10.0 for end in (low, high))
            pick = rng.integers(3, size=count)
            series[name] = np.where(pick == 0, low, np.where(pick == 1, high, rng.uniform(low, high, count)))
    low, high = (float(end) for end in env.action_range())
    return series, rng.uniform(low, high, count)


@pytest.mark.parametrize("name", ["Carbon", "Inference"])
def test_a_gap_after_a_round_without_a_cost_is_no_larger_than_the_structure_says(name):
    env, rng, count = getattr(tether.envs, name)(), np.random.default_rng(0), 800
    structure = env.structure
    series, action = case(env, rng, count)
    most = structure.backlog_max if name == "Carbon" else structure.capacity
    entry = env.initial()._fields[0]
    own, prior = rng.uniform(0.0, most, (2, count)) * rng.choice([0.0, 0.1, 1.0], (2, count))
    largest, tight = -np.inf, 0.0
    for i in range(count):
        drawn = {key: values[i] for key, values in series.items()}
        states = [env.initial()._replace(**{entry: np.asarray(each[i])}) for each in (own, prior)]
        seen, other = (structure.read(env.observation(each, drawn)) for each in states)
        gaps = structure.gaps_between(seen, other, NUMPY)
        wish = env.prior(env.observation(states[0], drawn))
        played = action[i] if i % 2 else wish
        now = Round(gaps, seen, wish, 1.0, env.cost_floor, 0.0, np.inf)
        bounds = structure.bounds(now, played, 1, NUMPY)
        claimed = structure.unseen(bounds.step, NUMPY)
        after = [
            env.step(states[0], drawn, played).state,
            env.step(states[1], drawn, env.prior(env.observation(states[1], drawn))).state,
        ]
        above = float(getattr(after[0], entry) - getattr(after[1], entry))
        signed = (above, -above) if name == "Carbon" else (-above,)
        largest = max(largest, *(gap - float(most) for gap, most in zip(signed, claimed, strict=True)))
        tight = max(tight, signed[0] / max(float(claimed[0]), 1e-9))
    assert largest <= 1e-9
    assert tight > 0.95  # and not much larger than it has to be
