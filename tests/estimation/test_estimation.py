"""The constants, from logs of plants for which they are known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether
from commands import run
from tether.data.logs import Columns, read_blocks
from tether.estimation import known_plants
from tether.estimation.analysis import slowest_decay
from tether.estimation.estimates import Impulse
from tether.estimation.local_slopes import contraction_norm, fit_noise, worst_draw


def linear_log(rows=6000, seed=0, dither=0.3, noise=0.3, hidden=0.0):
    """cost 5 + 2 a + x / 2 + noise, next state 0.8 x + a + noise, prior -0.5 x: closed loop 0.3."""
    random = np.random.default_rng(seed)
    rounds = 50
    episodes = rows // rounds
    state, memory = np.zeros(episodes), np.zeros(episodes)
    table = []
    for step in range(rounds):
        prior = -0.5 * state
        action = prior + random.uniform(-dither, dither, episodes)
        cost = 5.0 + 2.0 * action + 0.5 * state + random.uniform(-noise, noise, episodes)
        memory = 0.9 * memory + hidden * (action - prior)
        after = 0.8 * state + action + memory + random.uniform(-0.5, 0.5, episodes)
        table.append([np.arange(episodes), np.full(episodes, step + 1), state, prior, action, cost, after])
        state = after
    flat = np.array(table).transpose(2, 0, 1).reshape(rows, -1).T
    return dict(
        zip(("episode", "round", "state", "prior", "action", "cost", "next_state"), flat, strict=True)
    )


@pytest.fixture(scope="module")
def found():
    return tether.estimate(linear_log(rows=20_000))


def test_noise_is_not_taken_for_slope(found):
    # The truth is constant; the steepest of many noisy local slopes would be far above it.
    truth = {"immediate": 2.0, "L_f_action": 1.0, "L_c_state": 0.5, "L_f_state": 0.8, "L_pi": 0.5, "rho": 0.3}
    for name, exact in truth.items():
        each = found[name]
        assert each.recommended >= exact, name
        assert each.recommended <= (2.2 if name != "rho" else 2.5) * exact, name
        assert each.value == pytest.approx(exact, rel=0.3), name
        assert each.low <= each.value <= each.high, name
    assert 3.0 < found["cost_floor"].recommended < 5.0
    assert found["L_pi"].value == pytest.approx(0.5, rel=1e-6)
    assert found.rounds == 50


def test_the_recommendation_is_marked_as_an_estimate_and_drives_a_guard(found):
    bounds = found.sensitivity
    assert isinstance(bounds, tether.Sensitivity)
    assert not bounds.proved
    assert "Estimated" in repr(bounds)
    assert "not proved" in str(found)
    contract = found.contract(lam=0.5, b=0.1)
    assert contract.horizon == 50
    guard = tether.Guard(tether.LipschitzCertificate(contract, bounds), prior=lambda x: -0.5 * x)
    assert guard.act(1.0, proposal=3.0).intervened


def test_a_larger_safety_is_more_careful_in_every_constant():
    found, careful = (tether.estimate(linear_log(rows=1500), safety=safety) for safety in (1.2, 1.5))
    for name, each in careful.constants.items():
        if name == "cost_floor":
            assert each.recommended <= found[name].recommended
        else:
            assert each.recommended > found[name].recommended


def test_the_impulse_response_is_that_of_the_closed_loop(found):
    n = np.arange(5)
    assert np.all(np.abs(found.impulse.state[:5] - 0.3**n) <= 5.0 * found.impulse.state_error[:5])
    assert np.all(
        np.abs(found.impulse.cost[1:5] - 0.5 * 0.3 ** (n[1:] - 1)) <= 5.0 * found.impulse.cost_error[1:5]
    )


def test_actions_that_only_follow_the_state_identify_nothing_and_it_says_what_to_log():
    still = tether.estimate(linear_log(dither=0.0))
    assert not still["immediate"].identified
    assert still["rho"].identified
    assert any("add a dither" in text for text in still.warnings)
    with pytest.raises(ValueError, match=r"immediate was not identified.*dither"):
        _ = still.sensitivity
    assert still.to_dict()["recommended"] is None


def test_a_hidden_state_is_noticed_and_p_is_made_slower():
    # One round's slopes say 0.3, but a unit deviation is still there at 0.5 after two more rounds.
    impulse = Impulse(np.array([1.0, 0.7, 0.5]), np.full(3, 0.01), np.ones(3), np.ones(3), np.full(3, 1000))
    rho = slowest_decay(impulse, first=1.0)
    assert rho >= np.sqrt(0.5 - 0.03)
    assert all(rho**n >= value - 0.03 - 1e-12 for n, value in enumerate(impulse.state))
    seen = tether.estimate(linear_log(rows=5000, hidden=0.5))
    later = np.arange(len(seen.impulse.state))
    bound = seen["L_f_action"].recommended * seen.scale * seen["rho"].recommended ** later
    assert np.all(bound >= seen.impulse.state - 3.0 * seen.impulse.state_error - 1e-9)


def test_without_the_priors_action_it_is_inferred_and_said():
    log = linear_log()
    del log["prior"]
    inferred = tether.estimate(log)
    assert any("not logged" in text for text in inferred.warnings)
    assert inferred.impulse is None
    assert inferred["immediate"].value == pytest.approx(2.0, rel=0.25)


def test_a_multiplicative_draw_makes_the_worst_slope_steeper_than_the_mean():
    random = np.random.default_rng(0)
    z = random.uniform(1.0, 3.0, (20_000, 1))
    residual = 0.2 * z[:, 0] * random.uniform(-1.0, 1.0, 20_000)
    noise = fit_noise(z, residual, np.arange(100))
    exact = 0.2 / np.sqrt(3.0)
    assert noise.slopes[:, 0].mean() == pytest.approx(exact, rel=0.1)
    steep = worst_draw(
        np.ones((1, 1, 1)), np.full((1, 1, 1), exact), np.array([-np.sqrt(3.0)]), np.array([np.sqrt(3.0)])
    )
    assert steep[0, 0, 0] == pytest.approx(1.2)
    plain = fit_noise(z, random.uniform(-1.0, 1.0, 20_000), np.arange(100))
    assert np.abs(plain.slopes).max() < 0.05


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_contraction_bounds_every_product_of_jacobians(seed):
    random = np.random.default_rng(seed)
    jacobians = 0.45 * random.standard_normal((2, 2)) + 0.05 * random.standard_normal((30, 2, 2))
    change, condition = contraction_norm(jacobians)
    inverse = np.linalg.inv(change)
    rho = max(np.linalg.norm(change @ each @ inverse, 2) for each in jacobians)
    gap = np.eye(2)
    for n, place in enumerate(random.integers(30, size=12), start=1):
        gap = jacobians[place] @ gap
        assert np.linalg.norm(gap, 2) <= condition * rho**n * (1.0 + 1e-9)


def test_how_the_rows_are_cut_does_not_matter(tmp_path):
    import polars

    log = linear_log(rows=3000)
    polars.DataFrame(log).write_csv(tmp_path / "log.csv")
    polars.DataFrame(log).write_parquet(tmp_path / "log.parquet")
    whole = tether.estimate(log, sample_rows=1500)
    for source, block in ((tmp_path / "log.csv", 700), (tmp_path / "log.parquet", 65_536)):
        again = tether.estimate(source, sample_rows=1500, block_rows=block)
        for name, each in whole.constants.items():
            assert again[name].recommended == pytest.approx(each.recommended, rel=1e-9), name
        assert again.impulse.state == pytest.approx(whole.impulse.state, rel=1e-9)


@pytest.mark.parametrize("with_next", [True, False])
def test_blocks_do_not_depend_on_chunks_and_next_states_are_found(tmp_path, with_next):
    import polars

    log = linear_log(rows=500)
    if not with_next:
        del log["next_state"]
    polars.DataFrame(log).write_csv(tmp_path / "log.csv")
    parts = {}
    for size, block in ((7, 64), (1 << 16, 1000)):
        blocks = list(read_blocks(tmp_path / "log.csv", block_rows=block, batch_rows=size)[1])
        parts[size] = [np.concatenate([each[k] for each in blocks]) for k in range(len(blocks[0]))]
    for one, other in zip(*parts.values(), strict=True):
        assert np.array_equal(one, other)
    rows, _, _, _, _, _, _, after = parts[7]
    assert len(rows) == (500 if with_next else 490)
    assert np.allclose(after[:, 0], linear_log(rows=500)["next_state"][rows])


class TestBadLogs:
    HEADER = "episode,round,state,action,cost,next_state\n"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "no column state"),
            (HEADER, "holds no data rows"),
            (
                HEADER + "0,1,0.5,0.1,1.0,0.2\n0,2,oops,0.1,1.0,0.2\n",
                "row 3: state is 'oops', not a finite number",
            ),
            (HEADER + "0,1,0.5,0.1,,0.2\n", "row 2: cost is '', not a finite number"),
            (HEADER + "0,1,0.5,0.1,inf,0.2\n", "row 2: cost is 'inf'"),
            (HEADER + "0,1,0.5,0.1,1.0,0.2,9\n", "row 2: expected 6 columns, got 7"),
            ("episode,round,state,action\n0,1,0,0\n", "no column 'cost'"),
            (HEADER + "0,1,0.5,0.1,1.0,0.2\n" * 5, "5 rounds are too few"),
        ],
    )
    def test_the_error_names_the_place(self, tmp_path, monkeypatch, capsys, text, message):
        file = tmp_path / "log.csv"
        file.write_text(text)
        code, _, err = run(monkeypatch, capsys, "estimate", file, "--out", tmp_path / "out")
        assert code == 2
        assert err.startswith("tether: error:")
        assert err.count("\n") == 1
        assert message in err

    def test_what_is_no_log_is_refused(self, tmp_path):
        (tmp_path / "log.parquet").write_bytes(b"not parquet")
        with pytest.raises(ValueError, match="not a readable Parquet file"):
            tether.estimate(tmp_path / "log.parquet")
        with pytest.raises(FileNotFoundError, match=r"gone.csv not found"):
            tether.estimate(tmp_path / "gone.csv")
        with pytest.raises(TypeError, match="logs must be"):
            tether.estimate(3)
        with pytest.raises(ValueError, match="roles are"):
            tether.estimate(linear_log(), columns={"sate": ["x"]})
        with pytest.raises(ValueError, match="safety must be at least 1"):
            tether.estimate(linear_log(), safety=0.9)
        with pytest.raises(ValueError, match="never varies"):
            tether.estimate(linear_log(rows=1000) | {"state": np.ones(1000)})
        with pytest.raises(ValueError, match="as many columns"):
            Columns(state=("x",), action=("a",), next_state=("y", "z"))


def test_the_command_writes_figures_results_and_a_line_to_copy(tmp_path, monkeypatch, capsys):
    import polars

    log = linear_log(rows=3000)
    log["level"], log["eur"] = log.pop("state"), log.pop("cost")
    polars.DataFrame(log).write_csv(tmp_path / "log.csv")
    code, out, err = run(
        monkeypatch,
        capsys,
        "estimate",
        tmp_path / "log.csv",
        "--state",
        "level",
        "--cost",
        "eur",
        "--out",
        tmp_path,
    )
    assert code == 0, err
    assert "estimated, not proved" in out
    assert "tether.Sensitivity(immediate=" in out
    assert "peak memory" in out
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["proved"] is False
    assert results["recommended"]["immediate"] == pytest.approx(
        results["constants"]["immediate"]["recommended"]
    )
    for name in ("slopes.png", "perturbation.png"):
        assert (tmp_path / name).stat().st_size > 10_000


def test_the_logs_of_a_known_plant_obey_its_equations_and_its_noise_is_bounded():
    import jax

    plant = known_plants.make_plant(1000)
    log = known_plants.play(plant, 50, seed=5)
    states, actions = len(plant.sat), len(plant.r)
    with jax.enable_x64(True):
        for row in range(0, 5000, 1000):
            x, planned, a, after = (
                np.array([log[f"{name}_{k + 1}"][row] for k in range(size)])
                for name, size in (
                    ("state", states),
                    ("prior", actions),
                    ("action", actions),
                    ("next_state", states),
                )
            )
            assert np.allclose(planned, known_plants.prior(plant, x))
            assert np.all(np.abs(a - planned) <= plant.dither)
            ends = [known_plants.step(plant, x, a, sign * plant.eta_f) for sign in (-1.0, 1.0)]
            assert np.all(after >= np.minimum(*ends) - plant.zeta_f - 1e-9)
            assert np.all(after <= np.maximum(*ends) + plant.zeta_f + 1e-9)
    random = np.random.default_rng(0)
    for shape in ((1, 3), (2, 2), (3, 3), (3, 2)):
        matrices = random.standard_normal((5, *shape))
        with jax.enable_x64(True):
            assert np.asarray(known_plants.spectral_norm(matrices)) == pytest.approx(
                np.linalg.norm(matrices, 2, axis=(1, 2))
            )
