"""Several contracts at once, online: every one of them allows what is played, and one of them is named."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from tether.core.several import Several, combined
from tether.systems.base import play
from tether.systems.carbon import CarbonStructure

HORIZON = 6
NAMES = ("comfort", "energy")


def lipschitz(lam=0.5, b=1.0, immediate=1.0, floor=1.0, horizon=HORIZON):
    bounds = tether.Sensitivity(immediate, 0.5 * immediate, tether.geometric(0.5))
    return tether.LipschitzCertificate(tether.Contract(lam, b, horizon, floor), bounds)


def two(**second):
    return Several({"comfort": lipschitz(), "energy": lipschitz(**second)})


def guarded(certificate, prior=2.0, **options):
    return tether.Guard(certificate, lambda seen: prior, resolution=0.0, **options)


numbers = st.floats(0.05, 5.0)


@given(
    slopes=st.tuples(numbers, numbers),
    bs=st.tuples(numbers, numbers),
    wishes=st.lists(st.floats(-9, 9), min_size=3),
)
@settings(max_examples=60, deadline=None)
def test_of_balls_the_smallest_counts_and_binds(slopes, bs, wishes):
    alone = [lipschitz(b=b, immediate=slope) for slope, b in zip(slopes, bs, strict=True)]
    guard, others = guarded(dict(zip(NAMES, alone, strict=True))), [guarded(each) for each in alone]
    for wish in wishes[:HORIZON]:
        decision = guard.act(0.0, wish)
        reached = [other.reach(0.0, wish)[1] for other in others]
        nearest = min(range(2), key=lambda i: abs(reached[i] - 2.0))
        assert decision.action == reached[nearest]
        moved = decision.action != wish
        tied = abs(reached[0] - 2.0) == abs(reached[1] - 2.0)
        assert decision.binding == (NAMES[0 if tied else nearest] if moved else None)
        guard.observe((1.5, 3.0))
        for other, cost in zip(others, (1.5, 3.0), strict=True):
            other.act(0.0, decision.action)
            other.observe(cost)


@given(
    wish=st.lists(st.floats(-9.0, 9.0), min_size=2, max_size=2), norm=st.sampled_from(["l1", "l2", "linf"])
)
@settings(max_examples=40, deadline=None)
def test_a_vector_is_the_projection_on_the_smallest_ball_in_the_box(wish, norm):
    prior = np.array([1.0, 2.0])
    small = lipschitz(b=0.3)
    joint = tether.Guard([lipschitz(), small], lambda seen: prior, 0.5, 3.0, norm, resolution=0.0)
    alone = tether.Guard(small, lambda seen: prior, 0.5, 3.0, norm, resolution=0.0)
    assert joint.act(0.0, wish).action.tolist() == alone.act(0.0, wish).action.tolist()


def test_what_all_allow_is_played_as_it_is_and_nothing_binds():
    decision = guarded(two()).act(0.0, 2.1)
    assert (decision.action, decision.intervened, decision.binding, str(decision.reason)) == (
        2.1,
        False,
        None,
        "safe",
    )


@pytest.mark.parametrize("proposal", [math.nan, math.inf, "full", None, [1.0, 2.0]])
def test_what_is_no_action_is_the_priors_and_nothing_binds(proposal):
    decision = guarded(two()).act(0.0, proposal)
    assert (decision.action, decision.binding, str(decision.reason)) == (2.0, None, "invalid proposal")


def test_a_list_has_names_too_and_one_certificate_stays_what_it_is():
    assert tether.Guard([lipschitz(), lipschitz()], lambda seen: 0.0).certificate.names == (
        "cost_1",
        "cost_2",
    )
    alone = lipschitz()
    assert combined(alone) is alone


def alone(certificate, joint, cost):
    """The features after a round in which what the two together allowed was played, and cost so much."""
    guard = guarded(certificate)
    guard.act(0.0, 2.0 + joint._state.parts[0].memory)
    guard.observe(cost)
    return guard.features(0.0)


@pytest.mark.parametrize(
    "costs", [{"energy": 2.0, "comfort": 1.5}, (1.5, 2.0), [1.5, 2.0], np.array([1.5, 2.0])]
)
def test_costs_come_by_name_or_in_order(costs):
    guard = guarded(two(b=0.5))
    guard.act(0.0, 9.0)
    guard.observe(costs)
    features = guard.features(0.0)
    assert features[:3] == alone(lipschitz(), guard, 1.5)
    assert features[3:] == alone(lipschitz(b=0.5), guard, 2.0)
    assert len(features) == len(guard.certificate.feature_names) == 6
    assert guard.certificate.feature_names[3] == "energy: allowance"
    assert guard.round == 2
    assert guard.breach is None


@pytest.mark.parametrize(
    "costs", [1.0, (1.0,), (1.0, 1.0, 1.0), {"comfort": 1.0}, {"comfort": 1.0, "power": 1.0}, "12"]
)
def test_costs_that_are_not_one_for_each_are_refused_and_the_round_stays_open(costs):
    guard = guarded(two())
    guard.act(0.0, 2.0)
    with pytest.raises(ValueError, match="there must be 2 costs, for comfort, energy"):
        guard.observe(costs)
    guard.observe((1.0, 1.0))
    assert guard.breach is None


def test_a_breach_of_one_contract_leaves_the_other_certified_and_plays_the_prior():
    guard = guarded(two())
    guard.act(0.0, 2.5)
    with pytest.warns(
        tether.AssumptionBreach, match="of which energy is not a finite number of at least the floor 1"
    ):
        guard.observe({"comfort": 1.0, "energy": 0.2})
    assert guard.breach.contracts == ("energy",)
    assert (guard.breach.seen, guard.breach.claimed) == (0.2, (1.0, math.inf))
    assert guard.act(0.0, 9.0).action == 2.0
    guard.observe((1.0, 1.0))


def test_a_breach_by_the_first_contract_names_the_first():
    guard = guarded(two())
    guard.act(0.0, 2.5)
    with pytest.warns(tether.AssumptionBreach):
        guard.observe((math.nan, 1.0))
    assert guard.breach.contracts == ("comfort",)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Several(()), ValueError, "expected a certificate for each name, got 0"),
        (lambda: Several((lipschitz(),), ("a", "b")), ValueError, "got 1 for"),
        (lambda: Several((lipschitz(), lipschitz()), ("a", "a")), ValueError, "a name of its own"),
        (lambda: Several((lipschitz(), lipschitz()), ("a", 1)), ValueError, "a name of its own"),
        (lambda: Several({"a": lipschitz()}, ("b",)), ValueError, "names are those of the mapping"),
        (lambda: Several((lipschitz(), "x")), TypeError, "the certificate 'cost_2' must have weigh"),
        (lambda: Several((lipschitz(), lipschitz(horizon=7))), ValueError, r"same horizon, got \[6, 7\]"),
        (
            lambda: Several((tether.Switches(lipschitz(), tether.FiniteActions([0.0, 1.0])),)),
            ValueError,
            r"Switches\(Several",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_saved_guard_goes_on_as_if_it_had_never_stopped():
    certificate = two(b=0.4)
    first = guarded(certificate)
    for cost in ((1.0, 2.0), (1.5, 1.0)):
        first.act(0.0, 9.0)
        first.observe(cost)
    first.act(0.0, -3.0)
    saved = json.loads(json.dumps(first.state_dict()))
    again = tether.Guard.from_state_dict(saved, lambda seen: 2.0, certificate)
    for guard in (first, again):
        guard.observe((1.0, 1.0))
    assert first.act(0.0, 9.0) == again.act(0.0, 9.0)
    assert Several.from_dict(certificate.to_dict()) == certificate


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("backup", 1, "backup must be a whole number from 0 to 0"),
        ("rounds", 7, "rounds must be a whole number"),
        ("parts", [], "parts must be a list of 2 entries"),
        ("void", [True], "void must be a list of 2 entries"),
        ("void", [True, 3], "void must be true or false"),
        ("breached", 1, "breached must be true or false"),
    ],
)
def test_a_saved_state_that_no_episode_leads_to_is_refused(part, value, message):
    certificate = two()
    guard = guarded(certificate)
    guard.act(0.0, 9.0)
    guard.observe((1.0, 1.0))
    saved = guard.state_dict()
    saved["state"][part] = value
    with pytest.raises(ValueError, match=message):
        tether.Guard.from_state_dict(saved, lambda seen: 2.0, certificate)


def test_parts_that_closed_another_number_of_rounds_are_refused():
    certificate = two()
    saved = guarded(certificate).state_dict()
    saved["state"]["rounds"] = 1.0
    with pytest.raises(ValueError, match=r"all parts must have closed 1.0 rounds"):
        tether.Guard.from_state_dict(saved, lambda seen: 2.0, certificate)


CARBON = tether.envs.Carbon()
EPISODES = tether.data.synthetic_carbon(seed=0, n=12)


@dataclasses.dataclass(frozen=True)
class OtherClear(CarbonStructure):
    """The same, but for what it calls `clear`."""

    def backup(self, plan, now, ops):
        return super().backup(plan, now, ops) + 1.0


def carbon(second=None, structure=None):
    """A guard of two contracts on the backlog, the second of which may know other backups, or none but the prior."""
    first = tether.Structured(CARBON.contract(0.0, 0.3), CARBON.structure)
    second = second or tether.Structured(CARBON.contract(0.1, 3.0), structure or CARBON.structure)
    return tether.Guard([first, second], CARBON.prior, 0.0, resolution=0.0)


def restless(guard, episode, broken_at=None):
    """(costs, the prior's costs, backups) of a learner that wants nothing and much by turns, behind two contracts."""
    backups = []

    def act(at, state, drawn):
        decision = guard.act(CARBON.observation(state, drawn), 9.0 * (at % 2))
        backups.append(decision.backup)
        return decision.action

    series = {name: EPISODES[name][episode] for name in CARBON.series}
    costs = []
    for played in play(CARBON, series, act):
        costs.append(float(played.step.cost))
        guard.observe((costs[-1], 0.0 if played.round == broken_at else costs[-1]))
    trusted = play(CARBON, series, lambda _, state, drawn: CARBON.prior(CARBON.observation(state, drawn)))
    return costs, [float(played.step.cost) for played in trusted], backups


def test_a_backup_that_all_know_is_used_and_both_promises_are_kept():
    guard = carbon()
    backups = []
    for episode in range(6):
        guard.reset()
        costs, trusted, used = restless(guard, episode)
        backups += used
        for contract in guard.certificate.contracts.values():
            assert tether.audit([costs], [trusted], contract).holds
    assert guard.certificate.backup_names == ("prior", "clear")
    assert "clear" in backups


def test_a_backup_that_one_of_them_does_not_know_is_never_used():
    second = tether.LipschitzCertificate(CARBON.contract(1.0, 8.0), CARBON.sensitivity)
    guard = carbon(second)
    costs, trusted, used = restless(guard, 0)
    assert guard.certificate.backup_names == ("prior",)
    assert set(used) == {"prior"}
    for contract in guard.certificate.contracts.values():
        assert tether.audit([costs], [trusted], contract).holds
    assert costs != trusted


def test_where_another_backup_is_carried_a_breach_of_one_contract_voids_all():
    carried_at = 1 + restless(carbon(), 0)[2].index("clear")
    guard = carbon()
    with pytest.warns(tether.AssumptionBreach):
        restless(guard, 0, broken_at=carried_at)
    assert guard.breach.round == carried_at
    assert guard.breach.contracts == ("cost_1", "cost_2")


def test_certificates_that_mean_different_things_by_one_name_are_a_breach():
    guard = carbon(structure=OtherClear(**dataclasses.asdict(CARBON.structure)))
    with pytest.warns(tether.AssumptionBreach, match="does not cover the observation"):
        _, _, used = restless(guard, 0)
    assert used[guard.breach.round - 2] == "clear"
    assert guard.breach.contracts == ("cost_1", "cost_2")


def test_what_is_played_is_safe_for_each_certificate_by_itself():
    guard = carbon(tether.LipschitzCertificate(CARBON.contract(1.0, 8.0), CARBON.sensitivity))
    own = [tether.Guard(each, CARBON.prior, 0.0, resolution=0.0) for each in guard.certificate.certificates]
    series = {name: EPISODES[name][1] for name in CARBON.series}

    def act(_round, state, drawn):
        observation = CARBON.observation(state, drawn)
        decision = guard.act(observation, 0.0)
        for each in own:
            assert each.act(observation, decision.action).action == pytest.approx(decision.action, abs=1e-9)
        return decision.action

    for played in play(CARBON, series, act):
        guard.observe((float(played.step.cost),) * 2)
        for each in own:
            each.observe(float(played.step.cost))
