"""The prior replayed on a tank so plain that everything can be worked out by hand."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import ClassVar, NamedTuple

import numpy as np
import pytest

from tether import Contract
from tether.certificates import Bounds, Box, Outcome, Shadowing, Structure
from tether.certificates.shadowing import Shadow, ShadowingState, Watched
from tether.certificates.structured import Taken
from tether.core.ops import FLOATS, NUMPY

CONTRACT = Contract(lam=2.0, b=3.0, horizon=5, cost_floor=0.5)
BOX = Box(-20.0, 20.0, "l2")
EPSILON = 2.0**-20
"""Round-off of what the tank says: its square root is 2^-10, exactly."""


class Level(NamedTuple):
    level: float
    cells: object


class Step(NamedTuple):
    state: Level
    reward: float
    cost: float


@dataclasses.dataclass(frozen=True)
class Tank:
    """Shows (demand, level, two cells); the prior pours the demand; a leak and heat are hidden."""

    size: float = 9.0

    series: ClassVar = ("demand", "leak", "heat")
    observation_names: ClassVar = ("demand", "level", "cells_1", "cells_2")
    hidden: ClassVar = {"leak": "uniform", "heat": "uniform"}

    def initial(self):
        return Level(5.0, [1.0, 2.0])

    def shown(self, observation):
        return Level(observation[1], observation[2:4]), {"demand": observation[0]}

    def observe(self, state, drawn):
        return [drawn["demand"], state.level, *state.cells]

    def prior(self, observation):
        return observation[0]

    def step(self, state, drawn, action):
        level = state.level + action - drawn["demand"] + drawn["leak"]
        return Step(Level(level, state.cells + np.asarray(drawn["heat"])), 0.0, abs(level))

    def limits(self):
        return {"leak": (-2.0, -1.0), "heat": (1.0, 3.0), "demand": (0.0, 9.0)}


@dataclasses.dataclass(frozen=True)
class Known(Structure):
    """Reads the level, and has a floor of what it is told to."""

    kind = "known"

    @property
    def scale(self):
        return 7.0

    def start(self, zero):
        return zero, zero

    def read(self, observation):
        return (observation[1],)

    def gaps_between(self, seen, prior_seen, ops):
        return seen[0] - prior_seen[0], prior_seen[0] - seen[0]

    def bounds(self, now, action, plan, ops):
        size = abs(action - now.prior)
        return Bounds((size - 1.0,), 90.0 + size, (-4.0 * size, now.gaps[0]))

    def close(self, step, cost, epsilon, ops):
        return step[0], step


def shadowing(**options):
    return Shadowing(CONTRACT, Known(), Tank(), **options)


def state(rounds=1.0, known=True, **changes):
    before = Shadow(Level(4.0, np.array([3.0, 5.0])), known)
    return ShadowingState(rounds, 1.0, (0.5, 0.25), 30.0, 0.0, False, False, 0.0, before)._replace(**changes)


SEEN = (2.0, 6.0, 3.0, 5.0)
"""Demand 2, level 6."""
TAKEN = Taken(40.0, 90.0, (-4.0, 0.5), 0.0, False, EPSILON, (2.0,), 2.0)


def watched(known=True, action=2.5):
    return Watched(TAKEN, np.array(SEEN), action, Shadow(Level(4.0, np.array([3.0, 5.0])), known))


def revealed(leak=-1.5, heat=(2.0, 2.0)):
    return {"leak": np.array(leak), "heat": np.array(heat)}


def paid(leak=-1.5, action=2.5):
    """What the own tank pays: its level of 6 and what is poured beyond the demand, less the leak."""
    return abs(6.0 + action - 2.0 + leak)


def test_before_the_first_round_the_priors_state_is_the_environments():
    start = shadowing().start(FLOATS)
    assert start[:6] == (0.0, 0.0, (0.0, 0.0), 4.0 + 7.0, 0.0, False)
    assert type(start.shadow.state.level) is float
    assert start.shadow.state.level == 5.0
    np.testing.assert_array_equal(start.shadow.state.cells, [1.0, 2.0])
    assert start.shadow.known is True
    assert shadowing().start().rounds == 0.0
    assert shadowing().revealed_names == ("leak", "heat")


def test_in_the_first_round_both_plants_are_where_the_own_one_is_seen_to_be():
    opened = shadowing().open(state(rounds=0.0), SEEN, FLOATS)
    assert opened.shadow.state.level == 6.0
    np.testing.assert_array_equal(opened.shadow.state.cells, [3.0, 5.0])
    assert opened.gaps == (0.0, 0.0)
    assert opened.epsilon < 1e-15


@pytest.mark.parametrize("rounds", [1.0, 3.0])
def test_later_the_gap_is_that_to_the_priors_own_state_while_it_is_known(rounds):
    opened = shadowing().open(state(rounds), SEEN, FLOATS)
    assert opened.gaps == (2.0, -2.0)
    assert [type(each) for each in opened.gaps] == [float, float]
    assert opened.shadow.state.level == 4.0
    lost = shadowing().open(state(rounds, known=False), SEEN, FLOATS)
    assert lost.gaps == (0.5, 0.25)
    assert lost.shadow.known is False


@pytest.mark.parametrize("ops", [FLOATS, NUMPY])
def test_what_is_seen_and_played_is_copied_at_once(ops):
    seen = np.array(SEEN)
    opened = shadowing().open(state(), seen, ops)
    seen[:] = 99.0
    np.testing.assert_array_equal(opened.observation, SEEN)
    choice = shadowing().choose(opened, 2.5, 2.0, BOX, FLOATS)
    assert (type(choice.taken.action), choice.taken.action) == (float, choice.action)
    assert choice.taken.observation is opened.observation
    assert choice.taken.shadow is opened.shadow
    batch = shadowing().choose(opened, np.array([2.5]), np.array([2.0]), BOX, NUMPY)
    np.testing.assert_array_equal(batch.taken.action, [2.5])
    assert not np.shares_memory(batch.taken.action, batch.action)


class Others:
    """Operations of another kind, such as those of a compiler, which must be the ones that are used."""

    def __init__(self):
        self.used = set()

    def __getattr__(self, name):
        self.used.add(name)
        return getattr(NUMPY, name)


def test_operations_of_another_kind_are_used_and_their_values_are_left_alone():
    seen, ops = np.array(SEEN), Others()
    opened = shadowing().open(state(), seen, ops)
    assert opened.observation is seen
    priors = Shadow(Level(np.array([4.0, 5.0]), np.array([3.0, 5.0])), True)
    np.testing.assert_array_equal(shadowing().open(state(shadow=priors), SEEN, NUMPY).gaps[0], [2.0, 1.0])
    ops.used.clear()
    shadowing().update(state(), watched(), Outcome(paid(), revealed=revealed(), epsilon=EPSILON), ops)
    assert "all" in ops.used


def update(cost=None, known=True, epsilon=EPSILON, ops=FLOATS, before=None, **hidden):
    outcome = Outcome(
        paid(hidden.get("leak", -1.5)) if cost is None else cost, revealed=revealed(**hidden), epsilon=epsilon
    )
    return shadowing().update(before or state(), watched(known), outcome, ops)


def test_what_was_revealed_moves_the_priors_state_and_tells_what_it_paid():
    after = update()
    assert after.shadow.known is True
    assert after.shadow.state.level == 4.0 - 1.5
    np.testing.assert_array_equal(after.shadow.state.cells, [5.0, 7.0])
    # The own plant pays 5, the prior's 2.5; the structure alone would know a floor of 0.5.
    assert (type(after.account), after.account) == (float, 1.0 + 5.0 - 3.0 * 2.5)
    assert after[5] is False


def test_if_nothing_is_revealed_the_structures_floor_counts_and_the_prior_is_lost():
    after = shadowing().update(state(), watched(), Outcome(paid(), epsilon=EPSILON), FLOATS)
    assert after.account == 1.0 + 5.0 - 3.0 * 0.5
    assert after.shadow.known is False
    assert after.shadow.state.level == 4.0
    flags = watched()._replace(shadow=Shadow(watched().shadow.state, np.array([True, False])))
    many = shadowing().update(state(), flags, Outcome(np.array([5.0, 6.0])), NUMPY)
    assert np.shape(many.shadow.known) == (2,)
    np.testing.assert_array_equal(many.shadow.known, [False, False])


OFF = 2.0**-10 * (7.0 + 5.0)
"""By how much a cost of 5 may be off: the root of the round-off, of the structure's scale and of the cost."""


@pytest.mark.parametrize(
    ("cost", "hidden", "usable"),
    [
        (5.0 - 0.99 * OFF, {}, True),
        (5.0 + 0.99 * OFF, {}, True),
        (5.0 - 1.01 * OFF, {}, False),
        (5.0 + 1.01 * OFF, {}, False),
        (math.nan, {}, False),
        (None, {"leak": math.nan}, False),
        (None, {"leak": -1.0}, True),
        (None, {"leak": -1.0 + 4.0 * EPSILON}, True),
        (None, {"leak": -1.0 + 4.05 * EPSILON}, False),
        (None, {"leak": -2.0 - 8.0 * EPSILON}, True),
        (None, {"leak": -2.0 - 8.1 * EPSILON}, False),
        (None, {"leak": -0.5}, False),
        (None, {"leak": -2.5}, False),
        (None, {"heat": (1.0 - 4.0 * EPSILON, 3.0 + 12.0 * EPSILON)}, True),
        (None, {"heat": (1.0 - 3.99 * EPSILON, 3.0 + 11.9 * EPSILON)}, True),
        (None, {"heat": (1.0 - 4.05 * EPSILON, 2.0)}, False),
        (None, {"heat": (2.0, 3.0 + 12.1 * EPSILON)}, False),
        (None, {"heat": (0.0, 9.0)}, False),
    ],
)
def test_what_is_revealed_counts_if_it_is_possible_and_explains_the_cost(cost, hidden, usable):
    after = update(cost, **hidden)
    assert after.shadow.known is usable
    assert after.shadow.state.level == (4.0 + hidden.get("leak", -1.5) if usable else 4.0)
    floor = 4.0 + hidden.get("leak", -1.5) if usable else 0.5
    if cost is None and not math.isnan(floor):
        spent = paid(hidden.get("leak", -1.5)) - 3.0 * floor
        assert math.isnan(spent) or after.account == pytest.approx(min(1.0 + spent, 6.0))


def test_the_coarser_round_off_of_the_two_counts_and_equality_is_near_enough():
    fine = watched()._replace(taken=TAKEN._replace(epsilon=2.0**-50))
    for taken, epsilon, known in (
        (watched(), 2.0**-50, True),
        (fine, EPSILON, True),
        (fine, 2.0**-50, False),
    ):
        outcome = Outcome(5.0 + 0.9 * OFF, revealed=revealed(), epsilon=epsilon)
        assert shadowing().update(state(), taken, outcome, FLOATS).shadow.known is known
    # 9 is off by (7 + 9) / 1024 = 1/64 from what explains it.
    edge = watched(action=6.5 + 2.0**-6)
    outcome = Outcome(9.0, revealed=revealed(), epsilon=EPSILON)
    assert shadowing().update(state(), edge, outcome, FLOATS).shadow.known is True


def test_a_prior_that_was_lost_is_not_found_again():
    after = update(known=False)
    assert after.shadow.known is False
    assert after.account == 1.0 + 5.0 - 3.0 * 0.5


def test_many_episodes_are_replayed_at_once():
    before = Shadow(Level(np.array([4.0, 4.0]), np.array([3.0, 5.0])), np.array([True, False]))
    outcome = Outcome(np.array([5.0, 5.0]), revealed=revealed(), epsilon=EPSILON)
    after = shadowing().update(state(), watched()._replace(shadow=before), outcome, NUMPY)
    np.testing.assert_array_equal(after.shadow.known, [True, False])
    np.testing.assert_array_equal(after.account, [1.0 + 5.0 - 7.5, 1.0 + 5.0 - 1.5])
    np.testing.assert_array_equal(after.shadow.state.level, [2.5, 4.0])


def test_what_is_revealed_has_the_shape_of_the_series():
    with pytest.raises(ValueError, match="revealed must have the shapes of the series"):
        update(5.0, leak=(-1.5, -1.5))


def test_a_certificate_says_which_environment_replays_the_prior():
    assert shadowing().to_dict() == {
        "kind": "shadowing",
        "contract": CONTRACT.to_dict(),
        "system": {"kind": "known"},
        "resolution": 0.0,
        "env": {"class": "Tank", "size": 9.0},
    }
    with pytest.raises(dataclasses.FrozenInstanceError):
        shadowing().env = None


SAVED = {
    "rounds": 1.0,
    "account": 1.0,
    "gaps": [0.5, 0.25],
    "magnitude": 30.0,
    "backup": 0.0,
    "breached": False,
    "overridden": False,
    "clipped": 0.0,
    "shadow": [[4.0, [3.0, 5.0]], True],
}
OPEN = [
    [40.0, 90.0, [-4.0, 0.5], 0.0, False, EPSILON, [2.0], 2.0, False],
    list(SEEN),
    2.5,
    [[4.0, [3.0, 5.0]], True],
]


def test_what_was_saved_comes_back():
    for taken in (None, OPEN):
        restored, again = shadowing().restore(json.loads(json.dumps(SAVED)), taken)
        assert restored[:6] == state()[:6]
        assert restored.shadow.state.level == 4.0
        np.testing.assert_array_equal(restored.shadow.state.cells, [3.0, 5.0])
        assert restored.shadow.known is True
    assert shadowing().restore(SAVED, None)[1] is None
    assert again.taken == TAKEN
    np.testing.assert_array_equal(again.observation, SEEN)
    assert again.action == 2.5
    assert again.shadow.state.level == 4.0
    pair = shadowing().restore(SAVED, [OPEN[0], OPEN[1], [1.0, 2.0], OPEN[3]])[1]
    np.testing.assert_array_equal(pair.action, np.array([1.0, 2.0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shadow": [[4.0, [3.0, 5.0]]]}, "shadow must be a list of 2"),
        ({"shadow": [[4.0], True]}, "shadow state must be a list of 2"),
        ({"shadow": [[4.0, [3.0, 5.0]], 1]}, "shadow known must be true or false"),
        ({"shadow": [[4.0, [3.0]], True]}, "shadow state must be finite numbers"),
        ({"shadow": [[math.nan, [3.0, 5.0]], True]}, "shadow state must be finite numbers"),
        ({"taken": OPEN[:3]}, "taken must be a list of 4"),
        ({"taken": [*OPEN, 1.0]}, "taken must be a list of 4"),
        ({"taken": [OPEN[0], [math.nan], 2.5, OPEN[3]]}, "observation must be finite numbers"),
        ({"taken": [OPEN[0], [[2.0]], 2.5, OPEN[3]]}, "observation must be finite numbers"),
        ({"taken": [OPEN[0], OPEN[1], math.inf, OPEN[3]]}, "action must be finite numbers"),
        ({"taken": [OPEN[0], OPEN[1], 2.5, [[4.0], True]]}, "shadow state must be a list of 2"),
    ],
)
def test_what_cannot_have_been_saved_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        shadowing().restore({**SAVED, "shadow": change.get("shadow", SAVED["shadow"])}, change.get("taken"))


def test_an_environment_must_show_and_hide_something():
    blind = type("Blind", (), {"hidden": {"leak": "uniform"}})()
    mute = type("Mute", (), {"shown": Tank.shown})()
    open_ = type("Open", (Tank,), {"hidden": {}})()
    for env in (blind, mute):
        with pytest.raises(TypeError, match=r"env must be a tether\.envs\.Env"):
            Shadowing(CONTRACT, Known(), env)
    with pytest.raises(ValueError, match="Open names no hidden series"):
        Shadowing(CONTRACT, Known(), open_)
    with pytest.raises(TypeError, match="contract must be"):
        Shadowing("2, 3", Known(), Tank())


def test_a_system_whose_observation_does_not_show_what_a_replay_needs_is_refused():
    class Dark(Tank):
        series: ClassVar = ("demand", "wind", "leak", "rain", "heat")

    class Plain(Tank):
        def initial(self):
            return (5.0, [1.0, 2.0])

    with pytest.raises(
        ValueError, match=r"replaying the prior needs wind, rain, which .* of Dark does not name"
    ):
        Shadowing(CONTRACT, Known(), Dark())
    with pytest.raises(ValueError, match=r"Plain.initial must give a NamedTuple, got \(5.0, "):
        Shadowing(CONTRACT, Known(), Plain())
