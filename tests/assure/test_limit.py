"""The hindsight limit: above every policy that keeps the promise, and attained or nearly so."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

import tether
from tether.assure.limit import hindsight_limit
from tether.assure.nonlinear import NonlinearProgram
from tether.systems import registry

pytest.importorskip("cvxpy")

SYSTEMS = {
    "carbon": (tether.envs.Carbon(), tether.data.synthetic_carbon(0, 6), ((0.0, 2.0), (10.0, 6.0))),
    "inference": (
        tether.envs.Inference(),
        tether.data.synthetic_inference(0, 6),
        ((5.0, 6.0), (0.0, 2.0)),
    ),
    "cooling": (tether.envs.Cooling(), tether.data.synthetic_cooling(0, 6), ((0.5, 0.5), (0.0, 1.0))),
}


GENEROUS = {
    "carbon": lambda observation, key: observation[0] + 0.3 * observation[1],
    "inference": lambda observation, key: observation[0] + 0.3 * observation[1],
    "cooling": lambda observation, key: 0.0 * observation[:2],
}
"""Whoever would rather earn than keep the promise."""


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_limit_is_above_whatever_keeps_the_promise_and_nearly_attained(name, tmp_path):
    env, episodes, settings = SYSTEMS[name]
    prior = tether.rollout(env, env.prior, episodes)
    for lam, b in settings:
        contract = env.contract(lam, b)
        limit = hindsight_limit(env, episodes, contract, prior.costs, processes=1, cache=tmp_path)
        certificate = tether.LipschitzCertificate(contract, env.sensitivity)
        run = tether.rollout(env, GENEROUS[name], episodes, certificate)
        assert np.all(run.returns <= limit.upper + 1e-6)
        assert np.all(limit.attained <= limit.upper + 1e-3)
        assert np.mean(limit.upper - limit.attained) < 0.1 * np.mean(limit.upper - prior.returns)
        assert limit.share(limit.upper, prior.returns) == pytest.approx(1.0)


def test_more_slack_never_lowers_the_limit_and_no_slack_leaves_the_prior_feasible():
    env, episodes, _ = SYSTEMS["carbon"]
    prior = tether.rollout(env, env.prior, episodes)
    uppers = [
        hindsight_limit(env, episodes, env.contract(lam, b), prior.costs, processes=1).upper
        for lam, b in ((0.0, 0.0), (0.0, 2.0), (2.0, 2.0), (10.0, 6.0))
    ]
    assert np.all(uppers[0] >= prior.returns - 1e-4)
    for less, more in itertools.pairwise(uppers):
        assert np.all(less <= more + 1e-4)


def test_what_was_solved_is_read_again(tmp_path, monkeypatch):
    env, episodes, _ = SYSTEMS["carbon"]
    prior = tether.rollout(env, env.prior, episodes)
    contract = env.contract(2.0, 2.0)
    first = hindsight_limit(env, episodes, contract, prior.costs, processes=1, cache=tmp_path)
    monkeypatch.setattr("tether.assure.limit._solved", lambda *_, **__: pytest.fail("solved again"))
    again = hindsight_limit(env, episodes, contract, prior.costs, processes=1, cache=tmp_path)
    assert np.array_equal(first.upper, again.upper)


def test_the_digits_of_an_episode_do_not_depend_on_those_that_were_solved_before():
    env, episodes, _ = SYSTEMS["carbon"]
    program = registry.find("carbon").program(env, episodes.horizon)
    prior = tether.rollout(env, env.prior, episodes)
    bounds = env.contract(2.0, 2.0).bounds(prior.costs)
    drawn = [{name: episodes[name][i] for name in env.series} for i in range(3)]
    once = {i: program.solve(drawn[i], bounds[i]) for i in (0, 1, 2)}
    assert once == {i: program.solve(drawn[i], bounds[i]) for i in (2, 0, 1)}


def test_the_program_of_a_linear_system_is_exact():
    env, episodes, _ = SYSTEMS["cooling"]
    prior = tether.rollout(env, env.prior, episodes)
    found = hindsight_limit(env, episodes, env.contract(0.5, 0.5), prior.costs, processes=1)
    assert found.proven
    np.testing.assert_allclose(found.attained, found.upper, rtol=1e-4)


def test_a_search_by_gradients_attains_what_the_convex_program_proves_within_a_percent():
    # Twelve hours: for a day the search has twice the unknowns and the bounds, and takes several times as long.
    env, some = tether.envs.Carbon(), tether.data.synthetic_carbon(0, 2, horizon=12)
    contract = env.contract(2.0, 2.0, some.horizon)
    prior = tether.rollout(env, env.prior, some)
    convex, searched = (
        hindsight_limit(env, some, contract, prior.costs, processes=1, program=program)
        for program in (None, NonlinearProgram)
    )
    assert convex.proven
    assert not searched.proven
    assert np.array_equal(searched.upper, searched.attained)
    gained = (searched.attained - prior.returns) / (convex.upper - prior.returns)
    assert np.all((gained > 0.99) & (gained < 1.0 + 1e-5))


def test_costs_of_the_wrong_shape_are_refused():
    env, episodes, _ = SYSTEMS["carbon"]
    with pytest.raises(ValueError, match=r"prior_costs must be \[6, 24\]"):
        hindsight_limit(env, episodes, env.contract(2.0, 2.0), np.ones(3))


def test_the_command_writes_the_share_of_each_policy(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from tether.cli.app import app
    from tether.learn.mpc import PlanningPolicy

    # The prior's action in the place of the plan, which tests/learn/test_mpc.py looks at; in two calls.
    monkeypatch.setattr(PlanningPolicy, "__call__", lambda planner, seen, key: planner.env.prior(seen))
    monkeypatch.setattr("tether.cli.limit.PLANNED_AT_ONCE", 2)
    policy = tether.NetworkPolicy.fresh(
        np.zeros(4), np.ones(4), low=0.0, high=np.inf, center=5.0, width=4, seed=0
    )
    for seed in (0, 1):
        policy.save(tmp_path / f"rl-lam2-b2-seed{seed}.npz")
    trained = {"system": "carbon", "certificate": "structured", "rule": "tight", "inputs": [], "without": []}
    (tmp_path / "results.json").write_text(json.dumps(trained))
    options = ["--lams", "2", "--episodes", "3", "--processes", "1", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["limit", "carbon", "--plan", "--policies", str(tmp_path), *options])
    assert result.exit_code == 0, result.output
    rows = {row["policy"]: row for row in json.loads((tmp_path / "out/results.json").read_text())["rows"]}
    assert set(rows) == {"prior", "rl structured", "mpc structured forecast", "attained", "limit"}
    assert rows["mpc structured forecast"]["reward"] == pytest.approx(rows["prior"]["reward"])
    assert rows["prior"]["share"] == 0.0
    assert rows["rl structured"]["share"] < 1.0 == rows["limit"]["share"]
