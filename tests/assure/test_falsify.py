"""The search for counterexamples: true structures stand, false ones are told apart by what is false in them."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

import tether
from evening import Forgetful, Sleepy, Station, StationStructure
from tether.assure.attack import loosened
from tether.assure.breeding import Breeder
from tether.assure.cases import Case, GuardedCase
from tether.assure.falsify import falsify, series_ranges
from tether.certificates import Structured
from tether.systems.carbon import CarbonStructure

SYSTEMS = {
    "carbon": tether.envs.Carbon(),
    "inference": tether.envs.Inference(),
    "cooling": tether.envs.Cooling(),
}
BROKEN = {
    ("carbon", "now"): {"now (prior)", "now (clear)", "later (clear)"},
    ("carbon", "floor"): {"floor"},
    ("carbon", "above"): {"gap 0"},
    ("carbon", "below"): {"gap 1"},
    ("inference", "now"): {"now (prior)", "now (idle)", "later (idle)"},
    ("inference", "floor"): {"floor"},
    ("inference", "below"): {"gap 0"},
    ("cooling", "now"): {"now (prior)"},
    ("cooling", "later"): {"later (prior)"},
    ("cooling", "floor"): {"floor"},
    ("cooling", "above"): {"gap 0", "gap 2"},
    ("cooling", "below"): {"gap 1", "gap 3"},
}
QUICK = {"count": 3 * 2048, "guarded": 0}
"""A seventh of the default."""


@pytest.mark.parametrize("kind", SYSTEMS)
def test_nothing_is_found_about_the_structures_of_our_systems(kind):
    found = falsify(SYSTEMS[kind], SYSTEMS[kind].structure, count=2048, guarded=10)
    assert found.holds, str(found)
    assert {"floor", "ceiling", "admits", "agrees", "gap 0", "later (prior)", "promise", "breach"} <= set(
        found
    )
    assert "no proof" in str(found)


def test_every_bound_that_our_systems_can_loosen_is_looked_at():
    assert set(BROKEN) == {
        (kind, bound) for kind, env in SYSTEMS.items() for bound in env.structure.loosenable
    }


@pytest.mark.parametrize(("kind", "bound"), BROKEN)
def test_a_bound_loosened_by_five_percent_is_found_and_no_other_is_blamed(kind, bound):
    found = falsify(SYSTEMS[kind], loosened(SYSTEMS[kind].structure, bound), **QUICK)
    assert set(found.broken) == BROKEN[kind, bound], str(found)


def test_a_gap_that_revives_in_the_evening_is_found_with_default_settings_and_breaks_the_promise():
    found = falsify(Station(), Forgetful())
    assert found.broken == ("later (prior)", "promise")
    text = str(found)
    assert "and the prior from then on" in text
    assert "above what was promised" in text
    case = found.cases["later (prior)"]
    assert case.round + len(case.draws) - 1 == 24  # to the horizon
    assert case.until > 17
    assert case.action < case.prior_action


def test_a_case_plays_again_in_numpy_alone_and_from_plain_numbers():
    found = falsify(Station(), Forgetful(), count=2048, guarded=20)
    for bound in ("later (prior)", "promise", "gap 0"):
        case = found.cases[bound]
        again = found.replay(bound)
        assert again.amount == pytest.approx(case.amount, abs=1e-9)
        assert again.broken == case.broken == (bound != "gap 0")
        kind = Case if isinstance(case, Case) else GuardedCase
        saved = kind(**json.loads(json.dumps(dataclasses.asdict(case), allow_nan=False)))
        assert saved.replay(Station(), Forgetful()).amount == again.amount
        assert not saved.replay(Station(), StationStructure()).broken
    with pytest.raises(KeyError, match="no bound 'later'; there are gap 0"):
        found.replay("later")


def test_a_true_structure_that_knows_the_clock_stands_and_a_refinement_that_is_too_narrow_by_it_does_not():
    assert falsify(Station(), StationStructure(), count=4096, guarded=20).holds
    assert falsify(Station(), Sleepy(), count=4096, guarded=0).broken == ("gap 0",)


def changed(structure, **methods):
    """The structure with some methods replaced; `method(structure, what it returned, *arguments)`."""

    def replaced(name, change):
        def method(self, *arguments):
            return change(self, getattr(structure, name)(*arguments), *arguments)

        return method

    kind = type(structure)
    made = type("Changed", (kind,), {name: replaced(name, change) for name, change in methods.items()})
    return made(**{each.name: getattr(structure, each.name) for each in dataclasses.fields(kind)})


CARBON = SYSTEMS["carbon"]


class Cheaper(Station):
    cost_floor = 1.1


WRONG = {
    "a cost floor that is too high": (Cheaper(), StationStructure(), {"cost floor"}),
    "a floor that is too high": (
        Station(),
        changed(StationStructure(), close=lambda _, found, *__: (found[0] + 0.01, found[1])),
        {"floor"},
    ),
    "a ceiling that is too low": (
        Station(),
        changed(StationStructure(), bounds=lambda _, found, *__: found._replace(ceiling=found.ceiling - 0.01)),
        {"ceiling"},
    ),
    "a ceiling that is not a number": (
        Station(),
        changed(StationStructure(), bounds=lambda _, found, *__: found._replace(ceiling=math.nan * found.ceiling)),
        {"ceiling"},
    ),
    "what is possible is refused": (
        Station(),
        changed(StationStructure(), admits=lambda _, found, seen, ops: seen[2] < 22.5),
        {"admits"},
    ),
    "the prior is refused": (
        Station(),
        changed(StationStructure(), agrees=lambda _, found, seen, prior, *__: prior < 0.999),
        {"agrees"},
    ),
    "a backup that does not do what is said of it": (
        CARBON,
        changed(CARBON.structure, backup=lambda _, found, *__: 0.9 * found),
        {"later (clear)"},
    ),
    "a backup that cannot be played": (
        CARBON,
        changed(CARBON.structure, backup=lambda _, found, *__: -found),
        {"backup (clear)", "later (clear)"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_apart(name):
    env, structure, broken = WRONG[name]
    assert set(falsify(env, structure, **QUICK).broken) == broken


def test_a_bound_that_is_infinite_or_not_a_number_gives_no_freedom_and_is_not_false():
    for nothing in (math.inf, math.nan):
        structure = changed(
            StationStructure(),
            bounds=lambda _, found, *__, no=nothing: found._replace(totals=(no + found.totals[0],)),
            close=lambda _, found, *__, no=nothing: (-abs(no) * found[0], (no + found[1][0],)),
            refine=lambda _, found, *__: found,
        )
        assert falsify(Station(), structure, count=1024, guarded=0).holds


def test_what_fails_on_plain_floats_only_is_found_by_the_online_guard():
    structure = changed(
        StationStructure(),
        refine=lambda _, found, gaps, seen, *__: (found[0] + 0.0 * 1.0 / (30.0 + seen[2] - 40.0),),
    )
    found = falsify(Station(), structure, count=1024, guarded=3)
    assert found.broken == ("breach",)
    assert "ZeroDivisionError" in str(found)
    assert found.replay("breach").round == found.cases["breach"].round == 11


@dataclasses.dataclass(frozen=True)
class Packed(StationStructure):
    """The same with its gap, and what it reads, in arrays."""

    scalar = False
    short: bool = False

    def start(self, zero):
        return (zero + np.zeros(1),)

    def read(self, observation):
        return (observation[2:], observation[:2])

    def gaps_between(self, seen, prior_seen, ops):
        return (ops.maximum(seen[0] - prior_seen[0], 0.0),)

    def admits(self, seen, ops):
        return ops.all(ops.isfinite(seen[0]))

    def refine(self, gaps, seen, epsilon, ops):
        return (ops.minimum(gaps[0], seen[0]) * (0.95 if self.short else 1.0),)

    def bounds(self, now, action, plan, ops):
        flat = now._replace(gaps=(now.gaps[0][0],), seen=(now.seen[0][0], now.seen[1][0], now.seen[1][1]))
        found = super().bounds(flat, action, plan, ops)
        return found._replace(step=(ops.stack(found.step),))

    def close(self, step, cost, epsilon, ops):
        return ops.maximum(cost - step[0][0], 1.0), step


def test_gaps_may_be_arrays():
    assert falsify(Station(), Packed(), count=2048, guarded=5).holds
    assert falsify(Station(), Packed(short=True), **QUICK).broken == ("gap 0",)


def test_a_contract_sets_lam_and_the_horizon_and_bounds_of_the_actions_set_the_backups():
    contract = CARBON.contract(3.0, 0.5, horizon=4)
    found = falsify(CARBON, CARBON.structure, contract=contract, high=30.0, count=2048, guarded=4)
    assert found.holds, str(found)
    for case in found.cases.values():
        lam = case.lam if isinstance(case, Case) else case.contract["lam"]
        assert lam == 3.0
        assert case.high == 30.0
        assert 1 <= case.round <= 4
    alone = falsify(CARBON, CARBON.structure, contract=dataclasses.replace(contract, horizon=1), count=256)
    assert alone.holds
    assert "gap 0" not in alone


@dataclasses.dataclass(frozen=True)
class Told(CarbonStructure):
    """Relies on a context: what is in it is what an episode has, round by round."""

    def read(self, observation):
        return (*super().read(observation), observation[4])

    def admits(self, seen, ops):
        return ops.logical_and(super().admits(seen[:2], ops), abs(ops.mod(seen[2] + 0.5, 1.0) - 0.5) < 1e-9)

    def gaps_between(self, seen, prior_seen, ops):
        return super().gaps_between(seen[:2], prior_seen[:2], ops)

    def bounds(self, now, action, plan, ops):
        return super().bounds(now._replace(seen=now.seen[:2]), action, plan, ops)

    def backup(self, plan, now, ops):
        return super().backup(plan, now._replace(seen=now.seen[:2]), ops)


def test_a_series_without_limits_is_taken_from_the_episodes_as_it_is():
    env = tether.envs.Carbon(context=("clock",))
    with pytest.raises(ValueError, match="series 'clock' has no finite range: give `episodes`"):
        falsify(env, env.structure)
    plain = tether.data.synthetic_carbon(0, 5)
    rows = {name: plain[name] for name in plain.names}
    clock = np.arange(24.0) + np.arange(5.0)[:, None]
    episodes = tether.data.Episodes({**rows, "clock": clock})
    structure = Told(**dataclasses.asdict(env.structure))
    assert falsify(env, structure, episodes, count=2048, guarded=3).holds
    breeder = Breeder(series_ranges(env, episodes, 24), 24, (), (0.0,), np.random.default_rng(0))
    drawn = breeder.children(breeder.fresh(50), 50).series
    assert np.all(np.diff(drawn["clock"], axis=1) == 1.0)
    assert not np.array_equal(drawn["demand"][:5], rows["demand"])
    with pytest.raises(ValueError, match="episodes must have 30 rounds"):
        falsify(env, structure, episodes, contract=env.contract(0.0, 1.0, 30))


def test_trials_stay_within_the_limits():
    for env in SYSTEMS.values():
        breeder = Breeder(
            series_ranges(env, None, 6), 6, env.action_shape, (0.0, 1.0), np.random.default_rng(0)
        )
        trials = breeder.fresh(64)
        for _ in range(3):
            trials = breeder.children(trials, 64)
        for name, (low, high) in env.limits().items():
            assert np.all((trials.series[name] >= low) & (trials.series[name] <= high))
        assert np.all(np.abs(trials.script) <= 1.0)
        assert np.all((trials.start >= 0) & (trials.start < 6))
        assert len(np.unique(trials.start)) == 6


def test_a_certificate_whose_structure_is_false_is_refuted_by_what_it_is_made_of():
    """The guard itself keeps to what it is told: where the structure is true, so is the promise."""
    contract = Station().contract(0.0, 0.5)
    for structure, kept in ((StationStructure(), True), (Forgetful(), False)):
        found = falsify(Station(), structure, contract=contract, count=4096, guarded=30)
        assert (found["promise"] <= 0.0) == kept
        assert Structured(contract, structure).contract == contract
