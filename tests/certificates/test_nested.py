"""Boxes around the states in which the prior settles, and what was found in them."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.models.battery import battery
from examples.models.reservoir import reservoir
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from tether.certificates.cells import Boxes
from tether.certificates.compiled_structure import CompiledStructure
from tether.certificates.intervals import Interval, subtract
from tether.certificates.nested import Near, moved_near, narrowed, nested_of
from tether.certificates.precision import Precision
from tether.certificates.survey import Surveyor

MODELS = {"battery": battery, "reservoir": reservoir}


@cache
def structure_of(name: str) -> CompiledStructure:
    return CompiledStructure(MODELS[name], 24, Precision())


def drawn(model: tether.Model, random: np.random.Generator, low, high, count: int):
    """States of a box, contexts and draws, some of them at the ends of their ranges."""
    boxes = ((low, high), model.box("context"), model.box("draws"))
    found = []
    for least, most in boxes:
        share = random.uniform(-0.2, 1.2, (count, len(least))).clip(0.0, 1.0)
        found.append(least + share * (most - least))
    return found


@cache
def both_of(name: str):
    """What is known of a box, and what the prior's round gives in states, contexts and draws."""
    structure = structure_of(name)

    def both(box, x, z, w):
        loop = jax.vmap(lambda *given: jnp.concatenate(structure.flat.closed_loop(0, *given)))
        return structure._nested.around(box), loop(x, z, w), loop(x[::-1], z, w)

    return jax.jit(both)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_what_was_found_for_a_box_holds_for_all_that_lies_in_it(name, dtype, seed):
    model, random = structure_of(name).model, np.random.default_rng(seed)
    ends = np.sort(random.uniform(*(end[0] for end in model.box("state")), 2)).astype(dtype)
    x, z, w = drawn(model, random, ends[:1].astype(float), ends[1:].astype(float), 64)
    with jax.enable_x64(True):
        near, values, others = jax.device_get(both_of(name)(Interval(ends[:1], ends[1:]), x, z, w))
    assert near.inside
    slack = 1e-12 * (1.0 + abs(values))
    assert np.all(values >= near.found.low - slack)
    assert np.all(values <= near.found.high + slack)
    gap = (x - x[::-1])[:, :, None]
    reach = np.sort(np.stack([near.slopes.low * gap, near.slopes.high * gap]), axis=0).sum(axis=2)
    assert np.all(values - others >= reach[0] - slack)
    assert np.all(values - others <= reach[1] + slack)


def test_boxes_lie_in_each_other_and_the_last_is_the_whole_range():
    structure = structure_of("reservoir")
    nested = structure._nested
    assert np.all(np.diff(nested.low, axis=0) <= 0.0)
    assert np.all(np.diff(nested.high, axis=0) >= 0.0)
    assert np.all(nested.low[-1] <= structure.model.box("state")[0])
    assert np.all(nested.high[-1] >= structure.model.box("state")[1])
    # The gate cancels inflows of any size: near 7 the prior keeps the level within the rain.
    assert 6.7 < nested.low[0, 0] < 6.8
    assert 7.2 < nested.high[0, 0] < 7.3


@pytest.mark.parametrize("ends", [(0.5, 7.0), (7.0, 13.0), (np.nan, 7.0), (7.0, np.nan)])
def test_nothing_is_known_of_a_box_that_leaves_the_range(ends):
    nested = structure_of("reservoir")._nested
    with jax.enable_x64(True):
        near = nested.around(Interval(*(jnp.asarray([end]) for end in ends)))
    assert not near.inside


@pytest.mark.parametrize(
    ("inside", "cost", "state"), [(True, (2.0, 3.0), (0.5, 1.0)), (False, (0.0, 3.0), (0.0, 1.0))]
)
def test_values_are_narrowed_only_inside(inside, cost, state):
    near = Near(
        jnp.asarray(inside),
        Interval(jnp.array([2.0, 0.5]), jnp.array([9.0, 2.0])),
        Interval(*[jnp.zeros((1, 2))] * 2),
    )
    values = [Interval(jnp.array([0.0]), jnp.array([3.0])), Interval(jnp.array([0.0]), jnp.array([1.0]))]
    found = narrowed(values, near)
    assert [tuple(float(end[0]) for end in each) for each in found] == [cost, state]
    changes = moved_near(values, near, Interval(jnp.array([-1.0]), jnp.array([1.0])))
    assert [float(each.high[0]) for each in changes] == pytest.approx(
        [0.0, 0.0] if inside else [3.0, 1.0], abs=1e-30
    )


def test_a_prior_that_settles_nowhere_has_no_boxes():
    drift = tether.Model(
        step=lambda x, z, a, w: jnp.clip(x + w + a, 0.0, 1.0),
        cost=lambda x, z, a, w: 1.0 + x,
        prior=lambda x, z: 0.0 * x,
        state=(0.0, 1.0),
        action=(-1.0, 1.0),
        draws=(-0.5, 0.5),
    )
    structure = CompiledStructure(drift, 24, Precision())
    assert structure._nested is None


def test_an_entry_of_the_state_that_never_changes_is_no_obstacle():
    still = tether.Model(
        step=lambda x, z, a, w: jnp.stack([jnp.clip(1.02 * x[0] - a + w, 0.0, 10.0), x[1]]),
        cost=lambda x, z, a, w: 1.0 + x[0],
        prior=lambda x, z: jnp.clip(0.9 * x[0] - 4.0, 0.0, 4.0),
        state=([0.0, 2.0], [10.0, 2.0]),
        action=(0.0, 4.0),
        draws=(0.0, 0.5),
    )
    nested = CompiledStructure(still, 24, Precision())._nested  # 0 / 0 is a warning, which is an error here
    assert nested is not None
    assert nested.high[0, 0] < 6.0


def test_slopes_that_may_jump_are_left_out():
    jump = tether.Model(
        step=lambda x, z, a, w: jnp.clip(0.5 * x + w + a, 0.0, 1.0),
        cost=lambda x, z, a, w: 1.0 + jnp.where(x > 0.3, 1.0, 0.0),
        prior=lambda x, z: 0.0 * x,
        state=(0.0, 1.0),
        action=(-1.0, 1.0),
        draws=(-0.1, 0.1),
    )
    structure = CompiledStructure(jump, 24, Precision())
    nested = nested_of(Surveyor(jump, lambda x, z, w: structure.flat.closed_loop(0, x, z, w)))
    assert nested is not None
    assert np.all(np.isfinite(nested.slopes.high))
    assert np.max(nested.high) <= 0.31


def test_a_valve_that_is_nearly_shut_does_not_make_the_rest_of_the_day_unknown():
    """A reservoir whose level is 1.4 below the prior's: without the boxes nothing was known of it after six rounds."""
    structure = structure_of("reservoir")
    with jax.enable_x64(True):
        turn = jax.jit(
            lambda boxes: structure._prior_round(boxes, structure.flat.box("context", jnp.float64), 0.5, 1.0)
        )
        own, prior = (Interval(jnp.array([low]), jnp.array([low + 0.2])) for low in (5.58, 6.9))
        boxes, excesses = Boxes(own, Interval(*[own.low - prior.low] * 2), prior), []
        for _ in range(23):
            boxes, excess = turn(boxes)
            excesses.append(float(excess))
    assert max(excesses) < 0.0
    assert 5.5 < boxes.own.low.item() < boxes.own.high.item() < 8.0


@pytest.mark.parametrize("search", [False, True])
def test_a_backup_that_keeps_the_range_of_states_has_bounds_for_ever_in_a_search_too(search):
    """A search takes what is nearly the same for the same: the whole range must not count as outside of itself."""
    structure = CompiledStructure(tether.envs.Inference().model(), 24, Precision())
    with jax.enable_x64(True), structure.searching() if search else nullcontext():
        everything = structure.flat.box("state", jnp.float64)
        boxes = Boxes(everything, subtract(everything, everything), everything)
        found = jax.jit(lambda boxes: structure._steady(structure._turn(1), boxes, 1.0, 0.0))(boxes)
    assert found.item() == pytest.approx(0.0, abs=1e-9)  # who runs nothing never has to buy


def test_a_range_that_the_prior_leaves_by_a_hair_is_not_kept():
    """The prior settles at 1 + 0.9e-6: what it pays there is less than anywhere in the range that was looked at."""
    creeping = tether.Model(
        step=lambda x, z, a, w: 0.5 * x + a,
        cost=lambda x, z, a, w: 1e6 * (2.0 - x),
        prior=lambda x, z: 0.0 * x + 0.5 * (1.0 + 0.9e-6),
        state=(0.0, 1.0),
        action=(0.0, 1.0),
        backups={"rest": lambda x, z: 0.0 * x},
    )
    structure = CompiledStructure(creeping, 24, Precision())
    rest = 1.0 + 0.9e-6
    with jax.enable_x64(True):
        own, prior = (Interval(jnp.asarray([at]), jnp.asarray([at])) for at in (0.5, rest))
        boxes = Boxes(own, subtract(own, prior), prior)
        found = structure._steady(structure._turn(1), boxes, 0.0, 0.0)
    truth = 1e6 * (2.0 - 0.0) - 1e6 * (2.0 - rest)  # once the own state has come to rest at 0
    assert not structure._survey.held or found >= truth


def test_an_entry_that_stays_what_it_is_keeps_its_range():
    still = tether.Model(
        step=lambda x, z, a, w: jnp.stack([jnp.clip(x[0] - a + w, 0.0, 1.0), x[1]]),
        cost=lambda x, z, a, w: 1.0 + x[0] * x[1],
        prior=lambda x, z: 0.5 * x[0],
        state=([0.0, 1.0], [1.0, 2.0]),
        action=(0.0, 1.0),
        draws=(0.0, 0.1),
    )
    survey = CompiledStructure(still, 24, Precision())._survey
    assert survey.invariant
    assert survey.held
