"""What a structure is by default: bounds everywhere, backed by the prior only, and nothing known beside."""

from __future__ import annotations

import math

import pytest

from tether.certificates import Bounds, Structure
from tether.certificates.structure import Round
from tether.core.ops import FLOATS


class Bare(Structure):
    """Says only what must be said."""

    def start(self, zero):
        return (zero,)

    def read(self, observation):
        return tuple(observation)

    def gaps_between(self, seen, prior_seen, ops):
        return (seen[0] - prior_seen[0],)

    def bounds(self, now, action, plan, ops):
        return Bounds((abs(action - now.prior),), 1.0, ())

    def close(self, step, cost, epsilon, ops):
        return 0.0, (0.0,)


class Backed(Bare):
    backups = ("rest", "run")


def test_by_default_there_are_single_numbers_no_limits_and_the_prior():
    bare = Bare()
    assert (bare.low, bare.high, bare.scale) == (-math.inf, math.inf, 1.0)
    assert (bare.entries, bare.scalar) == (0, True)
    assert bare.plans(-1.0, 1.0) == (0,)
    assert Backed().plans(-1.0, 1.0) == (0, 1, 2)
    assert bare.agrees((1.0,), 7.0, 0.0, FLOATS) is True
    assert bare.refine((1.0, 2.0), (3.0,), 0.0, FLOATS) == (1.0, 2.0)
    now = Round((), (), 0.0, 1.0, 1.0, 0.0, 1.0)
    with pytest.raises(NotImplementedError, match="Bare has no backup number 1"):
        bare.backup(1, now, FLOATS)
    with pytest.raises(NotImplementedError, match=r"the gaps of Bare cannot be told from 1.0, 2.0"):
        bare.gaps_from_features(1.0, 2.0)


def test_by_default_what_is_read_must_be_finite_in_every_entry():
    for seen, possible in (
        ((1.0,), True),
        ((math.nan,), False),
        ((1.0, 2.0, 3.0), True),
        ((math.inf, 2.0, 3.0), False),
        ((1.0, -math.inf, 3.0), False),
        ((1.0, 2.0, math.nan), False),
    ):
        assert Bare().admits(seen, FLOATS) is possible


def test_the_first_and_the_last_gap_are_what_a_learner_sees():
    for gaps, features in (((1.0,), (1.0, 1.0)), ((1.0, 2.0), (1.0, 2.0)), ((1.0, 2.0, 3.0), (1.0, 3.0))):
        assert Bare().gap_features(gaps, FLOATS) == features


def test_differences_from_the_prior_add_up_less_what_lam_credits_each_round():
    now = Round((), (), 0.0, lam=2.0, cost_floor=1.5, low=0.0, high=1.0)
    bounds = Bounds.from_differences([4.0, 1.0, 0.5], 0.25, now, ceiling=9.0, step=(7.0,))
    assert bounds == Bounds((1.0, -1.0, -3.5, -6.25), 9.0, (7.0,))
    assert Bounds.from_differences([4.0], 0.25, now, 9.0, ()).totals == (1.0, -1.75)
