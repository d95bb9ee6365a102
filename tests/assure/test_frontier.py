"""What each contract costs and brings, and which of them nobody needs to look at."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tether
from commands import run
from tether.assure.frontier import Point, contracted, learner_point, limit_point, prior_point
from tether.assure.limit import Limit
from tether.learn.train import Score

PRIOR = Point(100.0, 20.0, 30.0)


def test_a_contract_is_best_unless_another_permits_no_more_and_earns_more():
    learners = [
        Point(110.0, 25.0, 40.0),
        Point(105.0, 28.0, 45.0),
        Point(120.0, 50.0, 80.0),
        Point(120.0, 50.0, 80.0),
    ]
    limits = [
        Point(120.0, 30.0, 50.0),
        Point(130.0, 40.0, 60.0),
        Point(140.0, 60.0, 90.0),
        Point(140.0, 60.0, 90.0),
    ]
    grid = [(0.0, 1.0), (0.5, 1.0), (1.0, 2.0), (1.0, 2.0)]
    rows = contracted(PRIOR, grid, learners, limits)
    assert [row.best for row in rows] == [True, False, True, True]
    assert [row.share for row in rows] == [0.5, pytest.approx(1 / 6), 0.5, 0.5]
    assert (rows[1].lam, rows[1].b) == (0.5, 1.0)


def test_where_there_is_no_way_to_go_there_is_no_share():
    (row,) = contracted(PRIOR, [(0.0, 0.0)], [PRIOR], [PRIOR])
    assert row.share is None


def test_the_limit_stands_at_what_the_contract_permits():
    contract = tether.Contract(lam=0.5, b=2.0, horizon=3, cost_floor=1.0)
    prior = tether.Run(rewards=np.ones((2, 3)), costs=np.array([[1.0, 1.0, 2.0], [2.0, 2.0, 6.0]]))
    found = limit_point(Limit(np.array([5.0, 7.0]), np.array([5.0, 7.0])), contract, prior)
    assert found == Point(6.0, mean_cost=1.5 * 7.0 + 6.0, worst_cost=1.5 * 10.0 + 6.0)
    assert prior_point(prior) == Point(3.0, 7.0, 10.0)


def test_the_learner_is_its_mean_over_the_seeds_and_its_worst_episode_of_all():
    scores = [Score(1.0, 2.0, 0, 10.0, 5.0, 9.0, 0.0, 1.0), Score(1.0, 2.0, 1, 14.0, 7.0, 8.0, 0.1, 1.0)]
    assert learner_point(scores) == Point(12.0, 6.0, 9.0, reward_spread=2.0, violation_rate=0.1)


@pytest.mark.slow
def test_the_command_writes_table_figure_and_results_and_goes_on_where_it_stopped(
    monkeypatch, capsys, tmp_path
):
    command = (
        "frontier", "carbon", "--lams", "0,2", "--bs", "2", "--certificate", "lipschitz", "--method", "random+acd",
        "--episodes", "50", "--passes", "1", "--seeds", "1", "--limits", "2", "--out", tmp_path,
    )  # fmt: skip
    code, out, err = run(monkeypatch, capsys, *command, "--worth", "0.5", "--currency", "EUR")
    assert (code, "permitted" in out, " EUR" in out) == (0, True, True), err
    content = json.loads((tmp_path / "results.json").read_text())
    assert [(row["lam"], row["b"]) for row in content["contracts"]] == [(0.0, 2.0), (2.0, 2.0)]
    for row in content["contracts"]:
        assert row["learner"]["violation_rate"] == 0.0
        assert row["learner"]["worst_cost"] <= row["limit"]["worst_cost"]
        assert row["learner"]["reward"] <= row["limit"]["reward"] + 1e-6
    assert (tmp_path / "frontier.png").stat().st_size > 10_000
    code, _, err = run(monkeypatch, capsys, *command)
    assert (code, "add --resume" in err) == (2, True)
    monkeypatch.setattr("tether.learn.trial.run_method", lambda *_: pytest.fail("trained again"))
    assert run(monkeypatch, capsys, *command, "--resume")[0] == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--worth", "0"), "--worth must be"),
        (("--lams", "-1"), "--lams must be"),
        (("--bs", "two"), "--bs must be numbers"),
        (("--method", "magic"), "method must be one of"),
        (("--certificate", "none"), "certificate must be one of"),
    ],
)
def test_a_wrong_option_is_one_line(monkeypatch, capsys, tmp_path, options, complaint):
    code, _, err = run(
        monkeypatch, capsys, "frontier", "carbon", "--out", tmp_path, "--episodes", "3", *options
    )
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert complaint in err
