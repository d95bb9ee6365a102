from pathlib import Path

import numpy as np
import pytest

from tether.systems.carbon.reader import load_carbon
from tether.systems.inference.env import Inference
from tether.systems.inference.synthetic import synthetic_inference

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
WINDOWS = 1440  # as many as the paper tests on
SEEDS = range(5)

REAL = {
    "demand mean": 3.5,
    "demand std": 0.4846,
    "demand lag 1": 0.5347,
    "renewables mean": 2.4788,
    "renewables std": 1.4192,
    "renewables lag 1": 0.9473,
    "renewables lag 24": 0.9538,
}
"""BLOOM's GPU power scaled to a mean of 3.5, and the renewables of the authors' training split."""
REAL_DEMAND_LAG_24 = 0.0197


def hourly(windows):
    return np.concatenate([windows[:, 0], windows[-1, 1:]])


def autocorrelation(series, lag):
    centred = series - series.mean()
    return np.mean(centred[lag:] * centred[:-lag]) / np.mean(centred**2)


def statistics(demand, renewables):
    result = {}
    for name, series in (("demand", demand), ("renewables", renewables)):
        result[f"{name} mean"] = series.mean()
        result[f"{name} std"] = series.std()
        result[f"{name} lag 1"] = autocorrelation(series, 1)
        result[f"{name} lag 24"] = autocorrelation(series, 24)
    return result


def mean_statistics(seeds, n):
    drawn = [synthetic_inference(seed, n) for seed in seeds]
    found = [statistics(hourly(episodes["demand"]), hourly(episodes["renewables"])) for episodes in drawn]
    return {name: np.mean([each[name] for each in found]) for name in found[0]}


def bloom_demand():
    """GPU power of the full hours, scaled to a mean of 3.5: [455]."""
    file = DATA / "inference" / "bloom_gpu_power_10min.csv"
    watts = np.genfromtxt(file, delimiter=",", skip_header=1, usecols=1)[5:]  # the first hour lacks a reading
    series = watts[: len(watts) // 6 * 6].reshape(-1, 6).mean(axis=1)
    return 3.5 * series / series.mean()


@pytest.mark.parametrize(("seeds", "n"), [(SEEDS, WINDOWS), (SEEDS, 2160), (range(1), 20_000)])
def test_the_statistics_are_within_five_percent_of_the_real_series(seeds, n):
    found = mean_statistics(seeds, n)
    # Hardly any daily cycle: five percent of a number near 0 would say nothing.
    assert found.pop("demand lag 24") == pytest.approx(REAL_DEMAND_LAG_24, abs=0.05)
    assert found == pytest.approx(REAL, rel=0.05)


def test_over_many_seeds_the_statistics_have_no_bias_above_three_percent():
    found = mean_statistics(range(100, 150), WINDOWS)
    assert found.pop("demand lag 24") == pytest.approx(REAL_DEMAND_LAG_24, abs=0.02)
    assert found == pytest.approx(REAL, rel=0.03)


@pytest.mark.needs_data
@pytest.mark.skipif(not DATA.is_dir(), reason="the real series are not here")
def test_the_stored_numbers_are_those_of_the_real_series():
    found = statistics(bloom_demand(), hourly(load_carbon(DATA / "carbon", "train")["renewables"]))
    assert found.pop("demand lag 24") == pytest.approx(REAL_DEMAND_LAG_24, abs=1e-4)
    assert found == pytest.approx(REAL, rel=1e-4)


@pytest.mark.needs_data
@pytest.mark.skipif(not DATA.is_dir(), reason="the real series are not here")
def test_demand_has_the_quantiles_and_renewables_the_mean_day_of_the_real_series():
    episodes = synthetic_inference(0, 20_000)
    levels = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]
    quantiles = [np.quantile(series, levels) for series in (bloom_demand(), hourly(episodes["demand"]))]
    np.testing.assert_allclose(*quantiles, rtol=0.06)

    real = load_carbon(DATA / "carbon", "train")["renewables"]
    mean_days = [
        hourly(windows)[: len(windows) // 24 * 24].reshape(-1, 24).mean(axis=0)
        for windows in (real, episodes["renewables"])
    ]
    np.testing.assert_allclose(*mean_days, atol=0.25)


@pytest.mark.needs_data
@pytest.mark.skipif(not DATA.is_dir(), reason="the real series are not here")
def test_no_part_of_the_real_series_is_copied():
    generated = np.sort(hourly(synthetic_inference(0, WINDOWS)["demand"]))
    nearest = np.abs(generated[:, None] - bloom_demand()).min(axis=0)
    assert np.mean(nearest < 1e-9) == 0.0


def test_the_rates_are_uniform_and_drawn_anew_for_each_window():
    episodes = synthetic_inference(0, WINDOWS)
    levels = np.linspace(0.0, 1.0, 11)
    for name, lowest in (("discharge_rate", 0.7), ("charge_rate", 0.8)):
        expected = lowest + (1.0 - lowest) * levels
        np.testing.assert_allclose(np.quantile(episodes[name], levels), expected, atol=0.005)
        later, sooner = episodes[name][1:, :-1].ravel(), episodes[name][:-1, 1:].ravel()
        assert abs(np.corrcoef(later, sooner)[0, 1]) < 0.03


@pytest.mark.parametrize("seed", SEEDS)
def test_every_value_is_in_the_range_that_the_environment_covers(seed):
    episodes = synthetic_inference(seed, 20_000)
    Inference().check(episodes)
    assert episodes["demand"].min() > 2.63
    assert episodes["demand"].max() <= 6.0
    assert episodes["renewables"].min() >= 0.3
    assert episodes["renewables"].max() <= 5.8


def test_the_same_seed_gives_the_same_episodes_and_another_seed_others():
    first, again, other = (synthetic_inference(seed, 50) for seed in (3, 3, 4))
    for name in first.names:
        np.testing.assert_array_equal(first[name], again[name])
        assert not np.array_equal(first[name], other[name])


@pytest.mark.parametrize(("n", "horizon"), [(1, 1), (1, 24), (50, 7), (3, 1000), (1000, 24)])
def test_windows_slide_by_one_hour_and_start_at_that_hour_of_the_clock(n, horizon):
    episodes = synthetic_inference(0, n, horizon)
    assert set(episodes.names) == set(Inference.series)
    assert (len(episodes), episodes.horizon) == (n, horizon)
    np.testing.assert_array_equal(episodes.start_hours, np.arange(n) % 24)
    for name in ("demand", "renewables"):
        np.testing.assert_array_equal(episodes[name][1:, :-1], episodes[name][:-1, 1:])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"seed": -1, "n": 5}, ValueError, "seed must be at least 0, got -1"),
        ({"seed": 0.5, "n": 5}, TypeError, "seed must be a whole number"),
        ({"seed": 0, "n": 0}, ValueError, "n must be at least 1, got 0"),
        ({"seed": 0, "n": 5, "horizon": "24"}, TypeError, "horizon must be a whole number"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected(arguments, error, message):
    with pytest.raises(error, match=message):
        synthetic_inference(**arguments)
