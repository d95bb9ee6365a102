"""`tether compile`: what a stranger with a model sees."""

from __future__ import annotations

import json
import sys

import pytest

from commands import run

pytestmark = pytest.mark.usefixtures("compiled_quickly")

PLANT = """
import jax
import jax.numpy as jnp
import tether

tank = tether.Model(
    step=lambda x, z, a, w: jnp.clip(0.9 * x + z - a + w, 0.0, 10.0),
    cost=lambda x, z, a, w: 1.0 + (0.9 * x + z - a + w - 5.0) ** 2,
    prior=lambda x, z: jnp.clip(0.9 * x + z - 5.0, 0.0, 4.0),
    state=(0.0, 10.0), action=(0.0, 4.0), context=(0.0, 2.0), draws=(-0.2, 0.0),
)
odd = tether.Model(
    step=lambda x, z, a, w: x,
    cost=lambda x, z, a, w: 1.0
    + jax.scipy.special.digamma(1.0 + x) ** 2,
    prior=lambda x, z: 0.0,
    state=(0.0, 10.0), action=(0.0, 4.0), draws=(-0.2, 0.0),
)
nothing = 3
"""


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """A folder with the user's module, in which the command runs."""
    (tmp_path / "users_plant.py").write_text(PLANT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("users_plant", None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("users_plant:odd",), "'digamma' cannot be bounded over an interval; it stands in"),
        (("users_plant:nothing",), "must be a tether.Model or a tether.systems.System, got int"),
        (("users_plant:missing",), "has no attribute 'missing'"),
        (("no_such_module:model",), "No module named 'no_such_module'"),
        (("nobody",), "the system must be one of"),
        (("users_plant:tank", "--lam", "-1"), "--lam must be at least 0"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(plant, given, said, monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, "compile", *given)
    assert code == 2
    assert said in err
    assert "odd" not in given[0] or "users_plant.py, line 15" in err
    assert len(err.strip().splitlines()) == 1


def test_help_teaches_what_a_model_is(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "compile", "--help")
    assert code == 0
    for word in ("tether.Model(", "--explain", "--cost-floor", "--cells", "--rounds", "--out", "--seed"):
        assert word in out, word


@pytest.mark.slow
def test_a_model_is_compiled_attacked_and_pictured_in_one_go(plant, monkeypatch, capsys):
    small = (
        "--horizon",
        3,
        "--cells",
        2,
        "--rounds",
        1,
        "--episodes",
        20,
        "--compared",
        20,
        "--out",
        "found",
    )
    code, out, err = run(monkeypatch, capsys, "compile", "users_plant:tank", "--lam", 0.5, "--b", 0.5, *small)
    assert code == 0, err
    for word in (
        "kept by the prior",
        "rho = 0.9",
        "What binds is",
        "kept in every round",
        "true in",
    ):
        assert word in out, word
    content = json.loads((plant / "found" / "results.json").read_text())
    assert content["found"]["rate"] == pytest.approx(0.9, rel=1e-3)
    assert content["attack"]["violations"] == 0
    assert {each["broken"] for each in content["verify"].values()} == {0}
    low, high = content["safe_low"][0], content["safe_high"][0]
    assert 0.0 <= low < high <= 4.0
    assert content["explanation"]["binding"] in (plant / "found" / "report.md").read_text()
    assert (plant / "found" / "safe-set.png").stat().st_size > 10_000
