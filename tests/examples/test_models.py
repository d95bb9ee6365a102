"""The systems of `examples/models`: each is a model of a few lines, and all of tether takes it."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import tether
from tether.assure.attack import Hostile, hostile_episodes, plants
from tether.systems import registry

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "examples" / "models").glob("*.py"))
LINES = 25
"""That a system may have, imports and empty lines aside."""


@pytest.fixture(autouse=True)
def _from_here(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def system_of(file):
    return registry.find(f"examples.models.{file.stem}:system")


def test_there_are_at_least_five():
    assert len(FILES) >= 5


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_system_takes_at_most_twenty_five_lines(file):
    text = file.read_text(encoding="utf-8")
    imports = {
        line
        for node in ast.parse(text).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = [line for i, line in enumerate(text.splitlines(), start=1) if line.strip() and i not in imports]
    assert len(lines) <= LINES


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_unguarded_policies_break_the_promise_of_each_and_its_prior_is_inside_the_ranges(file):
    system = system_of(file)
    env = plants(system)["standard"]
    episodes = hostile_episodes(system, env, 100, np.random.default_rng(0))
    contract = env.contract(0.5, 0.2)
    prior = tether.rollout(env, env.prior, episodes)
    assert np.all((prior.actions >= env.low) & (prior.actions <= env.high))
    assert np.all(prior.costs >= contract.cost_floor)
    free = tether.rollout(env, Hostile(env), episodes, record="outcomes")
    assert tether.audit(free, prior, contract).violation_rate > 0.1
