"""Certificates compiled from models that nobody derived anything for: their bounds are true, and sharp."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import tether
from tether.assure.inclusions import Inclusion, hostile_inclusions
from tether.certificates.compiled_structure import Precision
from tether.certificates.structure import Round
from tether.core.ops import jax_ops
from tether.systems import registry

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["ev_station", "two_tanks"]
"""A band and a vector state; the others take too long to compile here: `tether verify --certificate compiled`."""
HORIZON = 5


@pytest.fixture(params=NAMES)
def plant(request, monkeypatch):
    """(system, its compiled certificate)."""
    monkeypatch.syspath_prepend(str(ROOT))
    system = registry.find(f"examples.models.{request.param}:system")
    env = system.env()
    return system, tether.compile(env.model(), env.contract(1.0, 0.5, HORIZON), Precision(cells=8, rounds=3))


@pytest.mark.slow
def test_every_compiled_bound_is_true_and_would_be_refuted_if_it_were_drawn_in(plant):
    found = hostile_inclusions(*plant, episodes=300)
    single = {"now (prior)", "round (prior)", "after (prior)", "floor", "ceiling"}
    assert set(found) == {*single, "later (prior)", "box", "possible"}
    for each in found.values():
        assert each.compared > 0
        assert each.broken == 0, each
    for name in single | {"later (prior)"}:
        assert found[name].sharp, found[name]


def test_a_plant_whose_slopes_exceed_one_is_bounded_by_where_it_can_be(monkeypatch):
    """A battery 7 kWh below the prior's that sells 4 more: the prior brings it back within a few rounds.

    Slopes alone say that the gap may grow by 9 % in each of the 23 rounds that are left.
    """
    monkeypatch.syspath_prepend(str(ROOT))
    env = registry.find("examples.models.battery:system").env()
    structure = tether.compile(env.model(), env.contract(1.0, 0.2, 24)).system
    with jax.enable_x64(True):
        own, prior = (structure.read(jnp.array([x, 0.5])) for x in (8.0, 15.0))
        low, high = jnp.array(-4.0), jnp.array(4.0)

        @jax.jit
        def totals_of(own, prior):
            told = structure.gaps_between(prior, prior, jax_ops())
            now = Round(told, own, high, 1.0, 1.0, low, high)
            return structure.bounds(now, low, 0, jax_ops()).totals

        totals = [float(each) for each in totals_of(own, prior)]
    assert 4.5 < totals[0] < 4.6
    assert max(totals) < 2.0 * totals[0]


def test_a_bound_that_is_exceeded_or_out_of_reach_is_told_from_one_that_is_sharp():
    true = Inclusion("now", 10, 0, 0.01)
    assert true.sharp
    assert not Inclusion("now", 10, 0, 0.06).sharp
    assert true.together(None) == true
    assert true.together(Inclusion("now", 5, 2, 0.3)) == Inclusion("now", 15, 2, 0.01)
