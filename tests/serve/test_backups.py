"""A certificate with other backups than the prior: a client that gets no answer plays the one that was named last."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import tether
from tether.certificates import Structured
from tether.core.audit import audit
from tether.serve.plant import Plant
from tether.serve.service import Service

CARBON = tether.envs.Carbon()
CERTIFICATE = Structured(CARBON.contract(2.0, 0.2, 24), CARBON.structure)
PLANT = Plant(CERTIFICATE, CARBON.prior, low=CARBON.low, high=CARBON.high)
ROUNDS = 23


def backup(name, observation):
    """What a client plays by itself: the backup of this name."""
    trusted = float(CARBON.prior(observation))
    number = CERTIFICATE.backup_names.index(name)
    state = CERTIFICATE.start(CERTIFICATE.online_ops, 0.0)._replace(backup=float(number))
    opened = CERTIFICATE.open(state, observation, CERTIFICATE.online_ops, 1.2e-7)
    box = PLANT.guard()._box
    return float(CERTIFICATE.backup_action(opened, trusted, box, CERTIFICATE.online_ops))


def played(episodes, i, seed, loss):
    """(costs, costs of the prior, service) of an episode in which a share of the answers is lost."""
    dice, service = random.Random(seed), Service({"p": PLANT})
    service.reset("p", "e")
    draws = {name: np.asarray(episodes[name][i]) for name in CARBON.drawn_names}
    own = follower = CARBON.initial()
    costs, prior_costs, current, unsent = [], [], "prior", []
    for h in range(1, ROUNDS + 1):
        drawn = {name: values[h - 1] for name, values in draws.items()}
        seen = [float(each) for each in CARBON.observation(own, drawn)]
        asked = {
            "round": h,
            "observation": seen,
            "proposal": float(CARBON.prior(seen)) + dice.choice((-3.0, 8.0)),
        }
        action, chance = None, dice.random()
        if chance >= loss:
            for kind, call in unsent:
                getattr(service, kind)("p", "e", **call)
            unsent = []
            answer = service.act("p", "e", **asked)
            action, current = answer.action, answer.backup
        elif chance < loss / 2 and not unsent:
            service.act("p", "e", **asked)  # its answer is lost
        else:
            unsent.append(("act", asked))
        action = backup(current, seen) if action is None else action
        own, _, cost = CARBON.step(own, drawn, action)
        wish = CARBON.prior(CARBON.observation(follower, drawn))
        follower, _, prior_cost = CARBON.step(follower, drawn, wish)
        costs.append(float(cost))
        prior_costs.append(float(prior_cost))
        unsent.append(("observe", {"round": h, "cost": float(cost), "applied": action}))
        if len(unsent) == 1:
            service.observe("p", "e", **unsent.pop()[1])
    return costs, prior_costs, service


@pytest.mark.parametrize("loss", [0.3, 0.7])
def test_the_promise_is_kept_and_the_backup_is_no_override(loss):
    episodes = tether.data.synthetic_carbon(0, 4)
    found = [played(episodes, i, seed, loss) for i in range(4) for seed in range(2)]
    contract = replace(CERTIFICATE.contract, horizon=ROUNDS)
    verdict = audit([each[0] for each in found], [each[1] for each in found], contract)
    assert verdict.holds
    for _, _, service in found:
        guard = service._book.desk("p").episode("e").guard
        assert guard.overrides == ()
        assert guard.breach is None


def test_what_was_decided_gives_way_to_the_backup_that_was_played():
    guard = PLANT.guard()
    seen = [4.0, 3.0, 0.0, 0.0]
    trusted = float(CARBON.prior(seen))
    guard.prior.action = trusted
    assert guard.act(seen, trusted + 2.0).backup == guard.certificate.backup_names[1]
    guard.observe(1.0)
    carried = backup(guard.carried_backup, seen)
    decided = guard.act(seen, trusted - 1.0).action
    assert not guard.backup_played(seen, trusted, decided + 0.1)
    assert guard.open_action == decided
    assert guard.backup_played(seen, trusted, carried)
    assert guard.open_action == carried != decided
    guard.observe(1.0)
    assert guard.overrides == ()
    assert guard.breach is None


def test_after_a_breach_nothing_gives_way():
    guard = PLANT.guard()
    seen = [4.0, 3.0, 0.0, 0.0]
    trusted = guard.prior.action = float(CARBON.prior(seen))
    guard.act(seen, trusted)
    guard.observe(-1.0)
    guard.act(seen, trusted)
    assert not guard.backup_played(seen, trusted, trusted)


def test_a_backup_that_cannot_be_computed_gives_way_to_nothing():
    guard = PLANT.guard()
    seen = [4.0, 3.0, 0.0, 0.0]
    trusted = guard.prior.action = float(CARBON.prior(seen))
    guard.act(seen, trusted)
    assert not guard.backup_played("nothing", trusted, trusted)
