"""A model that cannot be is refused, with what is wrong and the line of the user's function."""

from __future__ import annotations

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tether
from tether.certificates.checked import check
from tether.certificates.found import least_cost

TANK = tether.Model(
    step=lambda x, z, a, w: jnp.clip(0.9 * x + z - a + w, 0.0, 10.0),
    cost=lambda x, z, a, w: 1.0 + abs(0.9 * x + z - a + w - 5.0),
    prior=lambda x, z: jnp.clip(0.9 * x + z - 5.0, 0.0, 4.0),
    state=(0.0, 10.0),
    action=(0.0, 4.0),
    context=(0.0, 2.0),
    draws=(-0.2, 0.0),
)
CONTRACT = tether.Contract(lam=0.5, b=0.5, horizon=4, cost_floor=1.0)


def unbounded(x, z, a, w):
    y = 2.0 * x
    return 1.0 + jax.scipy.special.digamma(y + 1.0) ** 2


def branching(x, z, a, w):
    return x if x > a else a


def failing(x, z, a, w):
    return x @ np.zeros((3, 3))


def line_of(function, offset):
    """The line of a function's file, as an error names it."""
    return f"{inspect.getsourcefile(function)}, line {inspect.getsourcelines(function)[1] + offset}"


def test_an_operation_that_cannot_be_bounded_is_named_with_its_line():
    with pytest.raises(ValueError, match="'digamma' cannot be bounded") as caught:
        tether.compile(dataclasses.replace(TANK, cost=unbounded), CONTRACT)
    assert line_of(unbounded, 2) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "kind", "said", "where"),
    [
        ({"step": branching}, TypeError, "step asks for the value of a number", line_of(branching, 1)),
        ({"step": failing}, ValueError, "step raised", line_of(failing, 1)),
        (
            {"step": lambda x, z, a, w: jnp.stack([x, x])},
            ValueError,
            r"state of shape \(\).*got shape \(2,\)",
            "",
        ),
        ({"cost": lambda x, z, a, w: w * jnp.ones(2)}, ValueError, "cost must give a number", ""),
        ({"prior": lambda x, z: x}, ValueError, "prior must play actions in the range 0 to 4, got 10", ""),
        ({"backups": {"shut": lambda x, z: -1.0}}, ValueError, "shut must play actions in the range", ""),
    ],
)
def test_functions_that_do_not_fit_are_refused(changes, kind, said, where):
    with pytest.raises(kind, match=said) as caught:
        check(dataclasses.replace(TANK, **changes))
    assert where in str(caught.value)


def test_a_model_that_is_one_passes_and_without_a_range_of_actions_no_cost_is_certain():
    check(TANK)
    assert least_cost(dataclasses.replace(TANK, action=(0.0, np.inf))) == 0.0


def test_the_prior_of_a_model_is_computed_in_float64_from_an_observation():
    assert TANK.policy([7.0, 1.1]) == 0.9 * 7.0 + 1.1 - 5.0
    read = dataclasses.replace(TANK, read=lambda seen: (seen["level"], seen["inflow"]))
    assert read.policy({"level": 7.0, "inflow": 1.1}) == TANK.policy([7.0, 1.1])
    several = dataclasses.replace(
        TANK, prior=lambda x, z: jnp.stack([x, z]), action=(np.zeros(2), np.full(2, 9.0))
    )
    assert several.policy([7.0, 1.1]).tolist() == [7.0, 1.1]
