"""The attack: hostile draws and scripts of any system, and structures that claim too much."""

from __future__ import annotations

import numpy as np
import pytest

from structures import hostile_draws
from tank import TankStructure
from tether.assure.attack import (
    INFINITE,
    NO_NUMBER,
    TINY,
    WAVE,
    Finding,
    Hostile,
    joined,
    loosened,
    plants,
    scripts,
    waves,
)
from tether.systems import registry


@pytest.mark.parametrize("name", registry.names())
def test_hostile_draws_are_within_the_limits_and_at_their_ends(name):
    for env in plants(registry.find(name)).values():
        episodes = hostile_draws(env, 300, np.random.default_rng(0), horizon=8)
        env.check(episodes)
        for series in env.hidden:
            low, high = env.limits()[series]
            assert episodes[series].min() == low
            assert episodes[series].max() == high
        assert episodes["script"].shape == (300, 8, *env.action_shape)


def test_the_entries_of_a_vector_go_the_same_way_contrary_ways_or_each_its_own():
    made = scripts((2,), (3_000, 6), np.random.default_rng(0))
    one, two = made[..., 0], made[..., 1]
    same, contrary = np.all(one == two, axis=1), np.all(one == -two, axis=1) & np.any(one != 0.0, axis=1)
    assert 0.3 < np.mean(same) < 0.7
    assert 0.1 < np.mean(contrary) < 0.4
    assert np.mean(~same & ~contrary) > 0.2
    assert made.max() == NO_NUMBER


@pytest.mark.parametrize(
    ("script", "proposed"),
    [
        (0.0, 5.0),  # the prior's action: (3.5 + 0.5) / 0.8
        (-1.0, 0.0),
        (-0.5, 2.5),
        (1.0, 26.25),
        (TINY, 5e-324),
        (-TINY, -5e-324),
        (INFINITE, np.inf),
        (-INFINITE, -np.inf),
        (NO_NUMBER, np.nan),
    ],
)
def test_a_script_is_relative_to_the_action_of_the_prior(script, proposed):
    env = plants(registry.find("carbon"))["standard"]
    found = Hostile(env)(np.array([3.5, 0.0, 0.0, 0.5, script]))
    assert float(found) == pytest.approx(proposed, nan_ok=True)


def test_only_what_a_structure_has_can_be_loosened():
    assert TankStructure().loosenable == ("now", "later", "floor", "apart")
    with pytest.raises(
        ValueError, match="bound must be one of 'now', 'later', 'floor', 'apart', got 'above'"
    ):
        loosened(TankStructure(), "above")


def test_waves_are_whole_batches_of_at_most_a_million_episodes():
    assert waves(1, 10_000) == [10_000]
    assert waves(2 * WAVE + 1, 10_000) == [WAVE, WAVE, 10_000]
    assert waves(3, 2 * WAVE) == [2 * WAVE]
    assert sum(waves(50_000_000 // 28, 10_000)) == 1_790_000


def test_the_waves_of_an_attack_are_joined_by_their_worst():
    first = Finding(
        "standard", 0.0, 2.0, 30, 0, worst_margin=0.5, nearest=0.2, unguarded=1.0 / 3.0, breaches=0
    )
    second = Finding("standard", 0.0, 2.0, 10, 2, worst_margin=-0.1, nearest=0.3, unguarded=1.0, breaches=1)
    both = joined([first, second])
    assert both == Finding("standard", 0.0, 2.0, 40, 2, -0.1, 0.2, 0.5, 1)
    assert joined([first]) == first
