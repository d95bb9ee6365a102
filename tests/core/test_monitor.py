from __future__ import annotations

import copy
import json
import math
import pickle
import warnings
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from commands import run
from tether import AssumptionBreach, Guard, LipschitzMonitor, Ranges, Reason
from tether.bench import monitoring
from tether.core.monitor import outside
from tether.envs import Carbon, Cooling, Inference
from tether.systems import registry

SYSTEMS = {"carbon": Carbon(), "inference": Inference(), "cooling": Cooling()}


def shares(n):
    """Where in its range each of n numbers is: at an end, or anywhere."""
    return st.lists(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0)), min_size=n, max_size=n)


def case(system, share):
    """State, draws and action of a system, from the place of each number in its range."""
    low_high = {
        "carbon": [(0, 15), (0, 6), (0, 9), (-0.2, 0.2), (0, 0.1), (0, 40)],
        "inference": [(0, 6), (0, 6), (0, 9), (0.7, 1), (0.8, 1), (0, 6)],
        "cooling": [(10, 40), (10, 40), (0, 6), (0, 6), (-10, 40), (0.8, 1), (0.8, 1), (0, 8), (0, 8)],
    }[system]
    values = [low + each * (high - low) for each, (low, high) in zip(share, low_high, strict=False)]
    env = SYSTEMS[system]
    if system == "cooling":
        x1, x2, q1, q2, outside_now, v1, v2, a1, a2 = values
        drawn = {
            "heat_load": np.array([q1, q2]),
            "outside": np.float64(outside_now),
            "price": np.float64(0.1),
            "effectiveness": np.array([v1, v2]),
        }
        return env, type(env.initial())(np.array([x1, x2])), drawn, np.array([a1, a2])
    state, demand, renewables, first, second, action = map(np.float64, values)
    hidden = dict(zip(env.hidden, (first, second), strict=True))
    return (
        env,
        type(env.initial())(state, 0.0, 1.0),
        {"demand": demand, "renewables": renewables, **hidden},
        action,
    )


def judged(env, observation, action, cost, after, precision="float64"):
    """What the system's monitor says of a round, and of the observation after it."""
    monitor = env.monitor()
    told, next_told = (np.asarray(each).astype(precision).tolist() for each in (observation, after))
    memory, first = monitor.arrived(monitor.start(), told)
    memory, second = monitor.paid(memory, told, action.tolist(), float(np.asarray(cost).astype(precision)))
    return first, second, monitor.arrived(memory, next_told)[1]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(SYSTEMS)), shares(9), st.sampled_from(["float64", "float32"]))
def test_what_the_claims_allow_is_never_contradicted(system, share, precision):
    env, state, drawn, action = case(system, share)
    step = env.step(state, drawn, action)
    seen, after = env.observe(state, drawn), env.observe(step.state, drawn)
    assert judged(env, seen, action, step.cost, after, precision) == (None, None, None)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(SYSTEMS)), shares(9))
def test_the_ends_of_the_ranges_are_reached_so_that_no_tighter_claim_would_hold(system, share):
    env, state, drawn, action = case(system, share)
    observation = env.observe(state, drawn).tolist()
    steps = [
        env.step(state, {**drawn, **hidden}, action)
        for hidden in monitoring.claimed(
            registry.of_env(env), env, *(_batched(each) for each in (state, drawn)), np.asarray(action)[None]
        )
        for hidden in [{name: value[0] for name, value in hidden.items()}]
    ]
    costs = [float(step.cost) for step in steps]
    (low, high, scale), _ = env.monitor().claims(observation, action.tolist(), min(costs))
    assert low == pytest.approx(min(costs), abs=1e-9 * scale)
    assert high == pytest.approx(max(costs), abs=1e-9 * scale)


def _batched(values):
    if isinstance(values, dict):
        return {name: np.asarray(value)[None] for name, value in values.items()}
    return type(values)(*(np.asarray(value)[None] for value in values))


def test_a_worn_plant_is_contradicted_by_its_cost_or_by_its_next_state():
    env = Carbon()
    state, action = type(env.initial())(np.float64(0.0), 0.0, 0.0), np.float64(5.0)
    drawn = {"demand": np.float64(4.0), "renewables": 0.0, "efficiency_noise": -0.206, "drop_rate": 0.0}
    step = env.step(state, drawn, action)
    seen, after = env.observe(state, drawn), env.observe(step.state, drawn)
    _, by_cost, _ = judged(env, seen, action, step.cost, after)
    assert by_cost.what == "the cost"
    assert by_cost.high == pytest.approx(3.0)
    assert by_cost.seen == pytest.approx(1.03**2 + 1.03 + 1.0)
    honest = env.step(state, drawn | {"efficiency_noise": -0.1}, action)
    _, nothing, by_state = judged(env, seen, action, honest.cost, after)
    assert nothing is None
    assert (by_state.what, by_state.ago) == ("observation[3]", 1)


def test_each_systems_cost_must_fit_the_state_that_it_led_to():
    env, state, drawn, action = case("cooling", [0.9] * 9)
    step = env.step(state, drawn, action)
    seen, after = env.observe(state, drawn), env.observe(step.state, drawn)
    claimed, _ = env.monitor().claims(seen.tolist(), action.tolist(), 0.0)
    other = 0.5 * (claimed[0] + claimed[1]) + 1e-3 * (claimed[1] - claimed[0])
    assert "by the state that it led to" in judged(env, seen, action, other, after)[2].what
    env, state, drawn, action = case("inference", [0.0, 1.0, 0.3, 0.0, 0.0, 0.6])
    step = env.step(state, drawn, action)
    after = env.observe(step.state._replace(charge=0.2), drawn)
    assert step.cost > 0.0
    assert judged(env, env.observe(state, drawn), action, step.cost, after)[2].high == 0.0


def test_a_cost_that_is_nearly_none_does_not_hide_a_battery_that_should_not_be_empty():
    env = Inference()
    drawn = {"demand": np.float64(3.0), "renewables": np.float64(1.0)}
    state, action = type(env.initial())(np.float64(1.0), 0.0, 1.0), np.float64(1.7)
    seen = env.observe(state, drawn)
    after = env.observe(state._replace(charge=np.float64(0.0)), drawn)  # claimed: at least 0.1
    for cost in (0.0, 1e-8):
        assert judged(env, seen, action, cost, after)[1] is None
        assert judged(env, seen, action, cost, after)[2].low == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("system", "entry", "value"), [("carbon", 0, 6.1), ("inference", 3, -0.1), ("cooling", 1, -1.0)]
)
def test_an_observation_outside_its_limits_is_contradicted_in_its_own_round(system, entry, value):
    env, state, drawn, _ = case(system, [0.5] * 9)
    observation = env.observe(state, drawn).tolist()
    observation[entry] = value
    monitor = env.monitor()
    found = monitor.arrived(monitor.start(), observation)[1]
    assert (found.what, found.seen, found.ago) == (f"observation[{entry}]", value, 0)
    observation[entry] = math.nan
    assert monitor.arrived(monitor.start(), observation)[1] is not None


@pytest.mark.parametrize(
    ("seen", "expected"),
    [(1.0, False), (2.0 + 1e-7, False), (2.0 + 1e-4, True), (math.nan, True), (math.inf, True)],
)
def test_round_off_is_no_contradiction_and_what_is_no_number_is_one(seen, expected):
    assert outside(seen, 0.5, 2.0, 1.0, 1e-6) is expected
    assert outside(-seen, -2.0, -0.5, 1.0, 1e-6) is expected


def test_what_is_exactly_at_the_end_of_a_claim_or_of_its_tolerance_is_within():
    for sign in (1.0, -1.0):
        assert not outside(sign * 2.5, -2.0, 2.0, scale=1.5, tolerance=0.125)
        assert outside(sign * math.nextafter(2.5, 3.0), -2.0, 2.0, scale=1.5, tolerance=0.125)
    assert not outside(math.inf, 0.0, math.inf, 1.0, 1e-6)
    assert not outside(-math.inf, -math.inf, 0.0, 1.0, 1e-6)


@pytest.mark.parametrize("kind", ["initial", "limits", "claimed"])
def test_an_entry_outside_its_range_by_round_off_only_is_not_contradicted(kind):
    entry = [(0, 0.0, 1.0, 1.0)]
    ranges = Ranges(lambda *seen: (None, entry)) if kind == "claimed" else Ranges(**{kind: entry})
    memory = ranges.start()
    if kind == "claimed":
        memory, nothing = ranges.paid(memory, [0.5], 0.0, 7.0)  # a cost of which nothing is claimed
        assert nothing is None
    for seen, contradicted in ((0.0, False), (1.0 + 1e-7, False), (-1e-7, False), (1.1, True), (-0.1, True)):
        found = ranges.arrived(memory, [seen])[1]
        assert (found is not None) is contradicted
        assert found is None or found == ("observation[0]", 0.0, 1.0, seen, int(kind == "claimed"))


def test_a_cost_is_compared_with_the_state_that_it_led_to_and_dated_back():
    ranges = Ranges(cost_after=lambda observation: (0.0, observation[0], 1.0))
    memory, nothing = ranges.paid(ranges.start(), [5.0], 0.0, 3.0)
    assert nothing is None
    assert ranges.arrived(memory, [3.0])[1] is None
    assert ranges.arrived(memory, [2.0])[1] == ("the cost, by the state that it led to,", 0.0, 2.0, 3.0, 1)


def test_a_monitor_cannot_be_changed_and_can_be_a_key():
    for each, name in ((Ranges(), "tolerance"), (LipschitzMonitor(1.0), "cost_lipschitz")):
        assert {each: 1}[each] == 1
        with pytest.raises(FrozenInstanceError):
            setattr(each, name, 0.0)


def plant(rng, rounds, slope=1.0, width=0.2):
    """x' = 0.5 x + a + noise, c = |x|: observations, actions, costs."""
    x, seen = 0.0, []
    for _ in range(rounds):
        action = rng.uniform(-1.0, 1.0)
        seen.append(([x], action, slope * abs(x)))
        x = 0.5 * x + action + rng.choice([-0.5, 0.5, rng.uniform(-0.5, 0.5)]) * width
    return seen


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("remembered", [1, 4])
def test_constants_that_hold_are_never_contradicted_and_others_are(norm, remembered):
    rng = np.random.default_rng(0)
    constants = {"cost_lipschitz": 1.0, "state_lipschitz": 1.0, "state_noise": 0.2}
    found = {}
    for name, change in {
        "right": {},
        "cost": {"cost_lipschitz": 0.5},
        "state": {"state_lipschitz": 0.4},
        "noise": {"state_noise": 0.02},
    }.items():
        monitor = LipschitzMonitor(**constants | change, norm=norm, remembered=remembered)
        memory, found[name] = monitor.start(), []
        for observation, action, cost in plant(rng, 400):
            memory, first = monitor.arrived(memory, observation)
            memory, second = monitor.paid(memory, observation, action, cost)
            assert len(memory[0]) <= remembered
            found[name] += [each.what for each in (first, second) if each is not None]
    assert found["right"] == []
    assert {what.split(",")[0] for what in found["cost"]} == {"the cost"}
    for name in ("state", "noise"):
        assert set(found[name]) == {"the distance to the next state of a round before"}


@pytest.mark.parametrize(("cost", "contradicted"), [(5.4, True), (5.6, False), (8.4, False), (8.6, True)])
def test_a_cost_may_differ_from_a_remembered_one_by_slope_and_noise_on_either_side(cost, contradicted):
    monitor = LipschitzMonitor(cost_lipschitz=2.0, cost_noise=0.5)
    memory, _ = monitor.paid(monitor.start(), [1.0], 3.0, 7.0)
    memory, _ = monitor.arrived(memory, [1.0])
    assert (monitor.paid(memory, [1.0], 3.5, cost)[1] is not None) is contradicted


def guard(monitor, horizon=6, **options):
    contract = tether.Contract(lam=1.0, b=1.0, horizon=horizon, cost_floor=1.0)
    certificate = tether.LipschitzCertificate(contract, tether.Sensitivity(2.0, 1.0, tether.geometric(0.5)))
    return Guard(certificate, lambda observation: 0.125, monitor=monitor, **options)


def level(observation, action, cost):
    """A cost between 1 and 3, and a next observation between 0 and the cost."""
    return (1.0, 3.0, 1.0), [(0, 0.0, cost, 1.0)]


def test_a_contradicted_cost_is_a_breach_with_evidence_and_the_prior_goes_on():
    each = guard(Ranges(level))
    each.act(np.array([0.5, 7.0]), 0.2)
    with pytest.warns(AssumptionBreach, match="round 1: the cost was 3.5, claimed between 1 and 3"):
        each.observe(3.5)
    breach = each.breach
    assert (breach.round, breach.claimed, breach.seen) == (1, (1.0, 3.0), 3.5)
    assert (breach.observation, breach.action) == ((0.5, 7.0), 0.2)
    decision = each.act(np.array([99.0, 0.0]), 0.2)
    assert (decision.reason, decision.action) == (Reason.BREACH, 0.125)
    assert math.isnan(decision.margin)
    each.observe(3.5)  # one breach is reported, not every round after it
    assert each.uncertified_from == 1
    each.reset()
    assert each.uncertified_from == 7
    each.act(np.array([0.5, 7.0]), 0.25)
    with pytest.warns(AssumptionBreach, match="at least the floor 1"):
        each.observe(0.5)
    assert (each.breach.claimed, each.breach.seen) == ((1.0, math.inf), 0.5)
    assert (each.breach.observation, each.breach.action) == ((0.5, 7.0), 0.25)
    each.reset()
    assert each.act(np.array([99.0, 0.0]), 0.2).reason is Reason.SAFE


def test_a_next_state_that_cannot_be_is_dated_to_the_round_that_led_to_it():
    each = guard(Ranges(level, limits=[(1, -1.0, 1.0, 1.0)]))
    observation = np.array([0.5, 0.0])
    each.act(observation, 0.2)
    observation[:] = 9.0  # what is recorded is what was seen, whatever becomes of the array
    each.observe(2.0)
    with pytest.warns(AssumptionBreach, match=r"round 1: observation\[0\] was 2.5, claimed between 0 and 2"):
        assert each.act([2.5, 0.0], 0.2).reason is Reason.BREACH
    assert (each.breach.round, each.breach.observation, each.breach.action) == (1, (0.5, 0.0), 0.2)
    each.observe(2.0)
    each.reset()
    each.act([0.5, 0.0], 0.2)
    each.observe(2.0)
    with pytest.warns(AssumptionBreach, match=r"round 2: observation\[1\] was 3"):
        each.act([0.5, 3.0], 0.2)
    assert (each.breach.round, each.breach.observation, each.breach.action) == (2, (0.5, 3.0), None)


def test_a_monitor_that_fails_is_a_breach_and_not_the_end_of_the_episode():
    def broken(observation, action, cost):
        raise RuntimeError("no model")

    each = guard(Ranges(broken))
    each.act([0.5], 0.2)
    with pytest.warns(AssumptionBreach, match=r"the monitor raised RuntimeError\('no model'\)"):
        each.observe(2.0)
    assert (each.breach.observation, each.breach.action, each.breach.claimed) == ((0.5,), 0.2, None)
    assert each.act([0.5], 0.2).reason is Reason.BREACH
    other = guard(Ranges(limits=[(3, 0.0, 1.0, 1.0)]))
    with pytest.warns(AssumptionBreach, match="the monitor raised IndexError"):
        assert other.act([0.5], 0.2).reason is Reason.BREACH
    json.dumps(other.state_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "monitor", [Ranges(level, initial=[(0, -math.inf, 9.0, 1.0)]), LipschitzMonitor(1.0, 1.0)]
)
@pytest.mark.parametrize("stop", range(6))
def test_a_watched_guard_stopped_anywhere_goes_on_with_the_same_verdicts(monitor, stop):
    """Calls are numbered: even ones act, odd ones observe; the third cost or observation is impossible."""

    def call(each, number):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionBreach)
            if number % 2 == 0:
                return each.act([1.0 + 5.0 * (number == 4)], 0.1)
            return each.observe(1.5)

    original = guard(monitor)
    for number in range(stop):
        call(original, number)
    saved = json.loads(json.dumps(original.state_dict(), allow_nan=False))
    resumed = Guard.from_state_dict(saved, original.prior, monitor=monitor)
    for number in range(stop, 8):
        mine, its = call(original, number), call(resumed, number)
        assert mine is None or mine[:6] == its[:6]
        assert resumed.breach == original.breach
    assert original.breach.round == 2
    again = Guard.from_state_dict(
        json.loads(json.dumps(resumed.state_dict())), original.prior, monitor=monitor
    )
    assert again.breach == original.breach
    for copied in (copy.deepcopy(original), pickle.loads(pickle.dumps(guard(Carbon().monitor()).monitor))):
        assert copied is not None
    with pytest.raises(ValueError, match="this guard has a monitor, which is not saved with it"):
        Guard.from_state_dict(saved, original.prior)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: guard("monitor"), TypeError, "monitor must have start, arrived, paid"),
        (lambda: Ranges(3.0), TypeError, "claims must be a function or None, got 3.0"),
        (
            lambda: Ranges(limits=[(0, 1.0)]),
            ValueError,
            r"limits must hold \(key, low, high, scale\), got \(0, 1.0\)",
        ),
        (lambda: Ranges(tolerance=-1.0), ValueError, "tolerance must be at least 0"),
        (lambda: LipschitzMonitor(-1.0), ValueError, "cost_lipschitz must be at least 0"),
        (lambda: LipschitzMonitor(1.0, -1.0), ValueError, "state_lipschitz must be at least 0"),
        (lambda: LipschitzMonitor(1.0, remembered=0), ValueError, "remembered must be at least 1"),
        (lambda: LipschitzMonitor(1.0, norm="l7"), ValueError, "norm must be one of"),
        (lambda: LipschitzMonitor(1.0, inputs=3), TypeError, "inputs must be a function"),
    ],
)
def test_a_monitor_that_makes_no_sense_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.slow
def test_a_guarded_environment_reports_the_breach_and_what_is_certified():
    import gymnasium

    import tether.adapters.episode_env
    from tether.adapters.guarded import Guarded

    env = gymnasium.make("tether/Carbon-v0", draws=3)
    system = env.unwrapped.system
    certificate = tether.LipschitzCertificate(system.contract(lam=1.0, b=1.0), system.sensitivity)
    worn = Carbon(efficiency=0.9, efficiency_noise_max=0.0)
    reports = {}
    for name, monitor in (("right", system.monitor()), ("wrong", worn.monitor())):
        watched = Guarded(env, certificate, system.prior, monitor=monitor)
        watched.reset(seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionBreach)
            reports[name] = [watched.step([2.0])[-1]["tether"] for _ in range(24)]
    assert {report["uncertified_from"] for report in reports["right"]} == {25}
    last = reports["wrong"][-1]
    assert last["uncertified_from"] == last["breach"]["round"] < 24
    low, high = last["breach"]["claimed"]
    assert not low <= last["breach"]["seen"] <= high


@pytest.mark.slow
@pytest.mark.parametrize(
    "drift", [each for each in monitoring.drifts() if each.share == 0.05], ids=lambda each: each.what
)
def test_a_drift_is_flagged_by_the_call_that_brings_the_evidence(drift):
    row = monitoring.drift_row(drift, 1.0, 1.0, episodes=3, seed=0, begins=9)
    assert row.evident > 0
    assert (row.at_once, row.late, row.missed, row.early) == (row.evident, 0, 0, 0)
    assert row.violations_monitored == row.violations_certified == 0


@pytest.mark.slow
def test_the_monitor_keeps_a_promise_that_a_large_drift_would_break():
    row = monitoring.drift_row(monitoring.drifts()[-1], 1.0, 1.0, episodes=4, seed=0, begins=9)
    assert row.violations > 0.0
    assert row.violations_monitored == 0.0


@pytest.mark.slow
def test_bench_monitor_shows_drifts_false_alarms_and_time(tmp_path, monkeypatch, capsys):
    first = monitoring.drifts()[:1]
    monkeypatch.setattr(monitoring, "drifts", lambda: first)
    code, out, err = run(
        monkeypatch,
        capsys,
        "bench",
        "monitor",
        "--seeds",
        2,
        "--episodes",
        2,
        "--rounds",
        960,
        "--repetitions",
        3,
        "--out",
        tmp_path,
    )
    assert code == 0, err
    results = json.loads((tmp_path / "results.json").read_text())
    assert [row["alarms"] for row in results["conforming"]] == [0] * 10
    assert all(row["rounds"] >= 480 for row in results["conforming"])
    assert results["drifts"][0]["early"] == 0
    assert "ratio, ranges" in out
    code, _, err = run(monkeypatch, capsys, "bench", "monitor", "--lam", -1, "--out", tmp_path)
    assert code == 2
    assert "tether: error: --lam must be at least 0" in err


@pytest.mark.slow
def test_a_monitor_that_is_too_strict_raises_alarms_in_the_same_experiment():
    strict = Carbon(efficiency_noise_max=0.1).monitor()
    alarms = monitoring.false_alarms(Carbon(), strict, np.random.default_rng(0), 4, 24, "float64")
    assert alarms > 10
    assert next(monitoring.alarm_rows(48, 0, lambda done, total: None)).alarms == 0
