"""A model from a log, and constants that say when they are useless."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import tether
from commands import run
from tether.estimation.fit_model import fit_model


def queue_log(episodes=200, rounds=24, seed=0, walk_ins=0.2, drift=0.0):
    """A queue x' = [x + z + w - a]^+, cost 1 + x' + x'^2 / 4, that its prior empties, with a dither."""
    random = np.random.default_rng(seed)
    x, rows = np.zeros(episodes), []
    for h in range(rounds):
        z, w = random.uniform(0.0, 3.0, episodes), random.uniform(0.0, walk_ins, episodes)
        prior = np.minimum(x + z + 0.1, 3.0)
        a = np.clip(prior + random.uniform(-0.5, 0.5, episodes), 0.0, 3.0)
        after = np.maximum(x + z + w - a, 0.0) + drift * (np.arange(episodes) >= 0.7 * episodes)
        rows.append(
            [np.arange(episodes), np.full(episodes, h), x, z, prior, a, 1 + after + 0.25 * after**2, after]
        )
        x = after
    names = ("episode", "round", "state", "context", "prior", "action", "cost", "next_state")
    return dict(zip(names, np.array(rows).transpose(1, 2, 0).reshape(len(names), -1), strict=True))


def trusted(x, z):
    return jnp.minimum(x + z + 0.1, 3.0)


@pytest.fixture(scope="module")
def log():
    return queue_log()


def test_a_queue_is_found_with_its_empty_state_and_the_range_of_what_is_drawn(log):
    model = fit_model(log, trusted, action=(0.0, 3.0), state=(0.0, 12.0))
    fit = model.fit
    # The noise of 0 to 0.2 has its mean in the constant; its range is +-0.1 around that.
    assert fit.parameters[:4] == pytest.approx([1.0, 1.0, -1.0, 0.1], abs=0.03)
    assert fit.limits == ((0.0, np.inf),)
    (low,), (high,) = model.draws
    assert -0.16 < low < -0.1 < 0.1 < high < 0.16
    assert fit.outside == 0
    assert not fit.proved
    assert fit.useless is None
    assert "estimated, not proved" in str(fit)
    assert min(fit.explained) > 0.9
    # A quadratic in the next state explains every cost, so that nothing is drawn for it.
    assert model.sizes == (1, 1, 1, 1)
    assert float(model.cost(2.0, 1.0, 1.0, np.zeros(1))) == pytest.approx(
        1.0 + (n := float(model.step(2.0, 1.0, 1.0, np.zeros(1)))) + 0.25 * n**2, rel=1e-5
    )
    assert model.step(0.0, 0.0, 3.0, np.zeros(1)) == 0.0
    assert dataclasses.replace(model, draws=(low, high)).fit is fit


def test_a_form_of_ones_own_is_fitted_and_costs_that_it_does_not_explain_are_drawn(log):
    noisy = log | {"cost": log["cost"] + np.random.default_rng(0).uniform(0.0, 0.5, len(log["cost"]))}
    model = fit_model(
        noisy,
        trusted,
        action=(0.0, 3.0),
        step=lambda x, z, a, theta: x + theta[0] * z - a + theta[1],
        step_parameters=[0.5, 0.0],
        cost=lambda x, z, a, after, theta: theta[0] + after + 0.25 * after**2,
        cost_parameters=[0.0],
    )
    assert model.fit.parameters == pytest.approx([1.0, 0.1, 1.25], abs=0.03)
    assert model.sizes[3] == 2
    assert model.draws[1][1] == pytest.approx(0.25, abs=0.1)


def test_a_fit_that_explains_nothing_or_no_longer_says_that_it_is_useless(log):
    blind = fit_model(log, trusted, action=(0.0, 3.0), step=lambda x, z, a, theta: 0.0 * x)
    assert "useless here, because draw 0 has a range" in blind.fit.useless
    moved = fit_model(queue_log(drift=1.0), trusted, action=(0.0, 3.0), state=(0.0, 30.0))
    assert "held-out rows are outside" in moved.fit.useless


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"confidence": 1.0}, "confidence must be between 0.5 and 1, got 1.0"),
        ({"safety": 0.5}, "safety must be at least 1"),
        ({"held_out": 0.0}, "held_out must be between 0 and 1, got 0.0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(log, changes, said):
    with pytest.raises(ValueError, match=said):
        fit_model(log, trusted, action=(0.0, 3.0), **changes)


def test_too_short_and_too_still_logs_are_refused(log):
    with pytest.raises(ValueError, match="100 rounds are too few to fit a model"):
        fit_model({name: each[:100] for name, each in log.items()}, trusted, action=(0.0, 3.0))
    with pytest.raises(ValueError, match="a column of action never varies"):
        fit_model(log | {"action": np.ones(len(log["cost"]))}, trusted, action=(0.0, 3.0))


def test_constants_of_a_queue_are_called_useless_and_what_is_known_helps(log, tmp_path, monkeypatch, capsys):
    found = tether.estimate(log)
    assert found["rho"].recommended > 1.2  # at most 1 is true
    contract = tether.Contract(lam=1.0, b=0.2, horizon=24, cost_floor=1.0)
    said = found.useless(contract)
    assert said.startswith("useless here, because with lam = 1 and b = 0.2 over 24 rounds")
    assert "kinks" in said
    assert "with rho = 1 it may be" in said
    assert "tether.fit_model" in said
    assert said.split(";")[0].startswith(found.to_dict()["useless"][:20])
    known = tether.estimate(log, known={"rho": 1.0})
    assert (known["rho"].recommended, known.scale, known["rho"].method) == (
        1.0,
        1.0,
        "known: given, not estimated",
    )
    assert known.useless(contract) is None
    assert known["immediate"] == found["immediate"]
    with pytest.raises(ValueError, match="known must be one of"):
        tether.estimate(log, known={"rough": 1.0})
    np.savetxt(
        tmp_path / "log.csv", np.array(list(log.values())).T, delimiter=",", header=",".join(log), comments=""
    )
    given = (tmp_path / "log.csv", "--known", "rho=1", "--out", tmp_path / "out")
    code, out, _ = run(monkeypatch, capsys, "estimate", *given)
    assert code == 0
    assert "geometric(1, 1)" in out
    code, _, err = run(monkeypatch, capsys, "estimate", tmp_path / "log.csv", "--known", "rho=x")
    assert code == 2
    assert "--known" in err
