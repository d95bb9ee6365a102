"""Hostile fleets against contracts without an end, schedules, raised and with a probability; red when loosened."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tether.assure.contracts import attack
from tether.cli.app import app

SIZES = {"plants": 60, "rounds": 900, "episodes": 360, "seed": 0}


@pytest.mark.parametrize("kind", ["continuing", "schedule", "raised"])
def test_no_contract_breaks_where_unguarded_ones_do_and_a_loosened_guard_does(kind):
    found = list(attack(kind, **SIZES))
    assert {each.rule for each in found} == {"tight", "released", "paper"}
    for each in found:
        assert each.kept
        assert each.violations == each.breaches == 0
        assert each.unguarded > 0.5 * each.plants
    assert not any(each.kept for each in attack(kind, **SIZES, loosen=1.05))


def test_a_promise_with_a_probability_fails_no_more_often_than_it_says():
    sizes = SIZES | {"plants": 500, "episodes": 2000}
    found = list(attack("probability", **sizes))
    assert [each.allowed for each in found] == pytest.approx([0.5, 0.1, 0.01, 0.001])
    assert all(each.kept for each in found)
    assert found[0].violations > 0
    assert all("with probability" in each.contract for each in found)
    assert not all(each.kept for each in attack("probability", **sizes, loosen=1.05))


def test_the_command_says_whether_the_promise_held(tmp_path):
    given = ["attack-contract", "raised", "--plants", "30", "--episodes", "90", "--out", str(tmp_path)]
    assert CliRunner().invoke(app, given).exit_code == 0
    assert all(each["kept"] for each in json.loads((tmp_path / "results.json").read_text())["findings"])
    assert CliRunner().invoke(app, [*given, "--loosen", "1.05"]).exit_code == 0
    assert CliRunner().invoke(app, [*given, "--loosen", "1.000000000001"]).exit_code == 1
