"""Certificates compiled from models that nobody derived anything for: their bounds are true, and sharp."""

from __future__ import annotations

from pathlib import Path

import pytest

import tether
from tether.assure.inclusions import Inclusion, hostile_inclusions
from tether.certificates.compiled_structure import Precision
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
    assert set(found) == {"now (prior)", "later (prior)", "floor", "ceiling", "box", "possible"}
    for each in found.values():
        assert each.compared > 0
        assert each.broken == 0, each
    for name in ("now (prior)", "later (prior)", "floor", "ceiling"):
        assert found[name].sharp, found[name]


def test_a_bound_that_is_exceeded_or_out_of_reach_is_told_from_one_that_is_sharp():
    true = Inclusion("now", 10, 0, 0.01)
    assert true.sharp
    assert not Inclusion("now", 10, 0, 0.06).sharp
    assert true.together(None) == true
    assert true.together(Inclusion("now", 5, 2, 0.3)) == Inclusion("now", 15, 2, 0.01)
