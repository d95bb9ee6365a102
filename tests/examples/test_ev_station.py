"""The charging station of examples/ev_charging: its constants, its structure and its hindsight program are true."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tether
from tether.assure.falsify import falsify
from tether.assure.verify import Search
from tether.certificates import Structured
from tether_ev import EV, synthetic_ev, system
from tether_ev.structure import EVStructure

ENV = EV()
CONTRACT = ENV.contract(lam=1.0, b=1.0)
CERTIFICATES = {
    "lipschitz": tether.LipschitzCertificate(CONTRACT, ENV.sensitivity),
    "structured": Structured(CONTRACT, ENV.structure),
}
QUICK = Search(samples=512, steps=0, generations=10)


def thrifty(observation, key=None):
    """Charges when electricity is cheap."""
    return 5.0 * (observation[1] < 3.0)


@dataclasses.dataclass(frozen=True)
class WithoutEvening(EVStructure):
    """Believes that no hour brings more cars than an hour of the night: a gap is soon gone, and never costs again."""

    def bounds(self, now, action, plan, ops):
        by_night = EVStructure(**{**dataclasses.asdict(self), "booked_evening": self.booked_else})
        found = super().bounds(now, action, plan, ops)
        first, *later = by_night.bounds(now, action, plan, ops).totals
        return found._replace(totals=(found.totals[0], *(each - first + found.totals[0] for each in later)))


@pytest.mark.slow
def test_the_structure_survives_the_falsifier_at_every_plant():
    for make in (EV, *system.variants.values()):
        found = falsify(make(), make().structure, count=512)
        assert not found.broken, found


@pytest.mark.slow
def test_a_structure_that_forgets_the_evening_is_found_out():
    assert (
        "later (prior)"
        in falsify(ENV, WithoutEvening(**dataclasses.asdict(ENV.structure)), count=1024).broken
    )


def test_the_constants_survive_and_a_faster_fading_gap_does_not():
    claims = ["immediate", "carried (0)", "p(1)", "cost floor"]
    assert tether.verify(ENV, ENV.sensitivity, rounds=1, claims=claims, search=QUICK).stands
    faster = dataclasses.replace(ENV.sensitivity, perturbation=tether.geometric(0.9))
    assert not tether.verify(ENV, faster, rounds=1, claims=["p(1)"], search=QUICK).stands


def test_who_waits_for_cheap_hours_breaks_the_promise_unless_guarded():
    episodes = synthetic_ev(seed=3, n=40)
    prior = tether.rollout(ENV, ENV.prior, episodes)
    assert tether.audit(tether.rollout(ENV, thrifty, episodes), prior, CONTRACT).violation_rate == 1.0
    gained = {}
    for name, certificate in CERTIFICATES.items():
        run = tether.rollout(ENV, thrifty, episodes, certificate)
        assert tether.audit(run, prior, CONTRACT).holds
        gained[name] = run.returns.mean() - prior.returns.mean()
    assert gained["structured"] > gained["lipschitz"] + 2.0


def test_no_queue_is_ever_shorter_than_the_priors():
    rng = np.random.default_rng(0)
    episodes = synthetic_ev(seed=4, n=1)
    state = fastest = ENV.initial()
    for h in range(24):
        drawn = {name: episodes[name][0, h] for name in ENV.series}
        state = ENV.step(state, drawn, rng.uniform(0.0, 5.0)).state
        fastest = ENV.step(fastest, drawn, ENV.prior(ENV.observe(fastest, drawn))).state
        assert state.queue >= fastest.queue
    assert state.hour == 6.0


def test_the_online_guard_and_its_monitor_see_no_breach_in_days_within_the_limits():
    episodes = synthetic_ev(seed=5, n=3)
    for certificate in CERTIFICATES.values():
        guard = tether.Guard(certificate, ENV.prior, low=0.0, high=5.0, monitor=ENV.monitor())
        for i in range(len(episodes)):
            guard.reset()
            state = ENV.initial()
            for h in range(24):
                drawn = {name: episodes[name][i, h] for name in ENV.series}
                observation = ENV.observe(state, drawn)
                step = ENV.step(state, drawn, guard.act(observation, thrifty(observation)).action)
                guard.observe(float(step.cost))
                state = step.state
            assert guard.breach is None


def test_what_a_round_tells_of_the_hidden_series_is_true():
    drawn = {"booked": 4.0, "price": 3.0, "solar": 0.5, "walk_in": 0.3, "efficiency": 0.9, "plug_out": 0.1}
    drawn = {name: np.asarray(value) for name, value in drawn.items()}
    state = ENV.initial()._replace(queue=np.asarray(2.0), hour=np.asarray(18.0))
    action = np.asarray(2.5)
    features, targets = ENV.evidence(state, drawn, action, ENV.step(state, drawn, action))
    hidden = np.array([drawn[name] for name in ENV.hidden])
    np.testing.assert_allclose(features @ hidden, targets)
    assert np.all(np.any(features != 0.0, axis=1))
    emptied = ENV.evidence(state, drawn, np.asarray(9.0), ENV.step(state, drawn, np.asarray(9.0)))
    assert not np.any(emptied.features)


def test_the_hindsight_program_is_attained_and_above_what_a_guarded_policy_earns():
    pytest.importorskip("cvxpy")
    episodes = synthetic_ev(seed=6, n=3)
    prior = tether.rollout(ENV, ENV.prior, episodes)
    run = tether.rollout(ENV, thrifty, episodes, CERTIFICATES["structured"])
    bounds = CONTRACT.bound(np.cumsum(prior.costs, axis=1), np.arange(1, 25))
    program = system.program(ENV, 24)
    for i in range(3):
        upper, attained = program.solve({name: episodes[name][i] for name in ENV.series}, bounds[i])
        assert attained == pytest.approx(upper, abs=1e-3)
        assert upper > max(run.returns[i], prior.returns[i])


@pytest.mark.parametrize(
    "wrong", [{"plug_out_min": 0.0}, {"plug_out_min": 0.2}, {"booked_else": 6.0}, {"tariff": np.nan}]
)
def test_parameters_that_the_proofs_do_not_cover_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        EV(**wrong)
