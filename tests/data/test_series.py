from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.data.enrich import Forecast, augment, clock_context
from tether.data.episodes import Episodes
from tether.data.periods import align, split_by_date, split_by_share
from tether.data.readings import fill_gaps, hourly_from_readings
from tether.data.series import HourlySeries, autocorrelation
from tether.data.store import load_episodes, read_episode_file, save_episodes
from tether.data.tables import read_table
from tether.envs import Carbon
from tether.systems.carbon.build import build_carbon_episodes, build_carbon_splits, scale_carbon

START = datetime(2019, 1, 1, tzinfo=UTC)


def ramp(hours: int, start: datetime = START, name: str = "ramp") -> HourlySeries:
    return HourlySeries(start, np.arange(float(hours)), name=name)


def days(count: int, start: datetime = START, seed: int = 0) -> tuple[HourlySeries, HourlySeries]:
    """A demand and a solar-like series."""
    hours = np.arange(24 * count)
    noise = np.random.default_rng(seed).normal(0.0, 0.1, hours.size)
    demand = HourlySeries(start, 5.0 + np.sin(2 * np.pi * (hours - 13) / 24) + noise, "MW", "demand")
    sun = np.maximum(np.sin(2 * np.pi * (hours - 6) / 24), 0.0) + 0.2
    return demand, HourlySeries(start, 900.0 * sun, "MW", "renewables")


class TestHourlySeries:
    def test_an_aware_start_is_kept_in_utc(self) -> None:
        local = datetime.fromisoformat("2019-03-10T00:00-08:00")
        assert HourlySeries(local, np.ones(3)).start == datetime(2019, 3, 10, 8, tzinfo=UTC)
        assert HourlySeries(local, np.ones(3)).start.tzinfo is UTC

    def test_its_values_cannot_be_changed_and_are_a_copy(self) -> None:
        values = np.ones(3)
        series = HourlySeries(START, values)
        values[0] = 9.0
        assert series.values[0] == 1.0
        with pytest.raises(ValueError, match="read-only"):
            series.values[0] = 2.0

    @pytest.mark.parametrize(
        ("start", "values", "message"),
        [
            (START, [], "shape"),
            (START, [[1.0]], "shape"),
            (START, [1.0, np.nan], "finite; in hour 1 it is nan"),
            (START + timedelta(minutes=5), [1.0], "full hour"),
        ],
    )
    def test_bad_content_is_refused(self, start: datetime, values: list[float], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            HourlySeries(start, np.array(values))

    def test_scaling_gives_the_mean_the_peak_or_both(self) -> None:
        series = ramp(11)
        assert series.scaled(mean=2.0).values.mean() == pytest.approx(2.0)
        assert series.scaled(peak=3.0).values.max() == pytest.approx(3.0)
        both = series.scaled(mean=2.0, peak=3.0).values
        assert (both.mean(), both.max()) == (pytest.approx(2.0), pytest.approx(3.0))

    def test_a_constant_series_cannot_have_both_a_mean_and_a_peak(self) -> None:
        with pytest.raises(ValueError, match="constant"):
            HourlySeries(START, np.ones(5)).scaled(mean=1.0, peak=2.0)
        with pytest.raises(ValueError, match="cannot be scaled"):
            HourlySeries(START, np.zeros(5)).scaled(mean=1.0)
        with pytest.raises(ValueError, match="needs a mean, a peak"):
            ramp(5).scaled()

    def test_clock_hours_follow_daylight_saving_in_a_zone(self) -> None:
        series = ramp(4, datetime(2019, 3, 10, 8, tzinfo=UTC))
        assert series.clock_hours().tolist() == [8, 9, 10, 11]
        assert series.clock_hours("America/Los_Angeles").tolist() == [0, 1, 3, 4]
        with pytest.raises(ValueError, match="has no time zone"):
            ramp(4, datetime(2019, 3, 10)).clock_hours("America/Los_Angeles")

    def test_autocorrelation_is_nan_where_it_has_no_meaning(self) -> None:
        assert np.isnan(autocorrelation(np.ones(50), 24))
        assert np.isnan(ramp(10).autocorrelation(24))
        assert ramp(100).autocorrelation(24) == pytest.approx(1.0)


class TestWindows:
    @given(st.integers(1, 60), st.integers(1, 30), st.integers(1, 5), st.integers(0, 10))
    def test_windows_are_stretches_of_the_series_and_all_that_fit_are_there(
        self, length: int, horizon: int, stride: int, ahead: int
    ) -> None:
        series = ramp(length)
        if length < horizon + ahead:
            with pytest.raises(ValueError, match=f"{length} hours, too few"):
                series.windows(horizon, stride, ahead)
            return
        values, first, hours = series.windows(horizon, stride, ahead)
        assert np.array_equal(values, first[:, None] + np.arange(horizon))
        assert np.array_equal(hours, first % 24)
        last = int(first[-1]) + horizon + ahead
        assert last <= length < last + stride
        assert np.all(np.diff(first) == stride)


class TestReadings:
    def hourly(
        self, seconds: list[float], values: list[float], limit: float = 3.0
    ) -> tuple[int, list[float]]:
        first, hourly, _ = hourly_from_readings(
            np.array(seconds, dtype=float), np.array(values, dtype=float), lambda k: f"reading {k}", limit
        )
        return first, hourly.tolist()

    def test_hours_are_means_of_their_readings(self) -> None:
        assert self.hourly([0, 1800, 3600, 5400], [1.0, 3.0, 5.0, 7.0]) == (0, [2.0, 6.0])

    @given(st.floats(-5, 5), st.floats(-100, 100), st.sets(st.integers(1, 70), max_size=30))
    def test_a_straight_line_survives_any_gap_within_the_limit(
        self, slope: float, offset: float, dropped: set[int]
    ) -> None:
        kept = [k for k in range(72) if k not in dropped]
        seconds = [600.0 * k for k in kept]
        _, full = self.hourly([600.0 * k for k in range(72)], [slope * k + offset for k in range(72)], 99.0)
        if np.median(np.diff(kept)) == 1:
            _, bridged = self.hourly(seconds, [slope * k + offset for k in kept], 99.0)
            assert bridged == pytest.approx(full, abs=1e-9)

    def test_a_gap_that_is_too_long_names_its_end_and_length(self) -> None:
        seconds = [3600.0 * hour for hour in (0, 1, 2, 3, 8, 9)]
        with pytest.raises(ValueError, match=r"^reading 4: a gap of 4.00 h before it is longer .* = 3$"):
            self.hourly(seconds, [1.0] * 6)
        assert len(self.hourly(seconds, [1.0] * 6, limit=4.0)[1]) == 10

    def test_a_time_that_repeats_is_refused(self) -> None:
        with pytest.raises(ValueError, match="reading 2: the time repeats or goes back"):
            self.hourly([0, 300, 300], [1.0, 1.0, 1.0])

    def test_hours_at_the_ends_of_which_little_was_read_are_left_out(self) -> None:
        seconds = [600.0 * k for k in range(4, 20)]
        assert self.hourly(seconds, [1.0] * 16) == (1, [1.0, 1.0])

    @given(st.lists(st.floats(-10, 10), min_size=2, max_size=30), st.data())
    def test_filled_gaps_stay_between_their_neighbours(
        self, values: list[float], data: st.DataObject
    ) -> None:
        array = np.array(values)
        holes = data.draw(st.sets(st.integers(1, len(values) - 1))) - {len(values) - 1}
        broken = array.copy()
        broken[list(holes)] = np.nan
        filled, _, longest = fill_gaps(broken, str, max_gap_hours=99)
        known = np.isfinite(broken)
        assert np.array_equal(filled[known], array[known])
        assert filled.min() >= array[known].min()
        assert filled.max() <= array[known].max()
        assert longest <= len(holes)
        if longest:
            with pytest.raises(ValueError, match="longer than max_gap_hours"):
                fill_gaps(broken, str, max_gap_hours=longest - 1)


class TestTables:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a,b\n1,2\n3\n", "table.csv, row 3: expected 2 columns, got 1"),
            ("a,b\n1,2\n\n3,4,5\n", "table.csv, row 4: expected 2 columns, got 3"),
            ('a,b\n"1\n2",3\n4\n', "table.csv, row 4: expected 2 columns, got 1"),
            ("a,b\n", "table.csv holds no data rows"),
            ("a,b\n\n , \n", "table.csv holds no data rows"),
            ("", "table.csv holds no data rows"),
        ],
    )
    def test_a_malformed_table_is_refused_by_row(self, tmp_path: Path, text: str, message: str) -> None:
        file = tmp_path / "table.csv"
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            read_table(file)

    def test_faults_are_named_by_their_line_whatever_blank_lines_and_quotes_are_before_them(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "table.csv"
        file.write_text(
            '\ufefftime, x ,note\r\n2019-01-01, 1.5 ,"a, b"\r\n\r\n2019-01-02,-2e1,"two\r\nlines"\r\nnoon,,\r\n'
        )
        table = read_table(file)
        assert (table.columns, len(table)) == (["time", "x", "note"], 3)
        assert table.numbers(1, np.array([0, 1])).tolist() == [1.5, -20.0]
        for read, message in (
            (lambda: table.numbers(1), "row 6: x is '', not a number"),
            (
                lambda: table.numbers(1, np.array([1]), signed=False),
                "row 5: x is -20, it must not be negative",
            ),
            (lambda: table.times(0), "row 6: 'noon' is not a time such as"),
        ):
            with pytest.raises(ValueError, match=f"table.csv, {message}"):
                read()

    def test_a_file_that_is_no_text_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "table.csv"
        file.write_bytes(b"\xff\xfe\x00\x80" * 10)
        with pytest.raises(ValueError, match="not a readable CSV file"):
            read_table(file)
        with pytest.raises(FileNotFoundError, match=r"absent\.csv not found"):
            read_table(tmp_path / "absent.csv")


class TestAlign:
    def test_the_common_period_is_kept(self) -> None:
        early, late = ramp(48), ramp(48, START + timedelta(hours=10))
        first, second = align(early, late)
        assert first.start == second.start == late.start
        assert len(first) == len(second) == 38
        assert (first.values[0], second.values[0]) == (10.0, 0.0)

    def test_series_without_a_common_hour_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"no hour in common: a 2019.*, b 2016.*hour-of-year"):
            align(ramp(24, name="a"), ramp(24, datetime(2016, 1, 1, tzinfo=UTC), "b"))

    def test_a_zone_and_none_are_not_mixed_silently(self) -> None:
        with pytest.raises(ValueError, match="only one has a time zone"):
            align(ramp(24), ramp(24, datetime(2019, 1, 1)))

    def test_different_years_meet_at_the_hour_of_the_year(self) -> None:
        first, second = align(ramp(48), ramp(100, datetime(2016, 1, 1, 12)), how="hour-of-year")
        assert first.start == second.start == START + timedelta(hours=12)
        assert len(first) == 36

    def test_a_series_that_crosses_new_year_is_moved_to_where_it_overlaps(self) -> None:
        winter = ramp(24 * 60, datetime(2016, 12, 15))
        first, second = align(ramp(24 * 20), winter, how="hour-of-year")
        assert first.start == START
        assert second.values[0] == 24 * 17

    def test_a_leap_day_can_be_a_start(self) -> None:
        first, _ = align(ramp(24 * 90), ramp(48, datetime(2016, 2, 29)), how="hour-of-year")
        assert first.start == datetime(2019, 2, 28, tzinfo=UTC)


class TestSplits:
    @given(st.integers(3, 40), st.data())
    def test_no_window_crosses_a_border(self, count: int, data: st.DataObject) -> None:
        cut = sorted(data.draw(st.sets(st.integers(1, count - 1), min_size=2, max_size=2)))
        borders = [date(2019, 1, 1) + timedelta(days=day) for day in cut]
        series = ramp(24 * count)
        parts = split_by_date(series, borders[0], borders[1])
        edges = [0, 24 * cut[0], 24 * cut[1], 24 * count]
        for k, part in enumerate(parts.values()):
            windows = part.windows(24).values
            assert windows.min() == edges[k]
            assert windows.max() == edges[k + 1] - 1
        assert sum(len(part) for part in parts.values()) == len(series)

    def test_shares_are_cut_at_midnight(self) -> None:
        parts = split_by_share(ramp(24 * 10), [0.6, 0.2, 0.2])
        assert [len(part) for part in parts.values()] == [144, 48, 48]

    def test_borders_outside_the_period_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"leaves an empty part: ramp covers 2019-01-01"):
            split_by_date(ramp(48), date(2019, 1, 2), date(2019, 3, 1))
        with pytest.raises(ValueError, match="sum to 1"):
            split_by_share(ramp(240), [0.5, 0.2, 0.2])


class TestContext:
    def test_the_clock_is_a_point_on_the_circle(self) -> None:
        clock = clock_context(np.arange(24))
        assert np.allclose(clock["clock_sin"] ** 2 + clock["clock_cos"] ** 2, 1.0)
        assert clock["clock_cos"][[0, 12]].tolist() == [1.0, -1.0]

    def test_a_perfect_forecast_is_what_happens_next(self) -> None:
        demand, renewables = days(6)
        episodes = build_carbon_episodes(demand, renewables, 0, forecast=Forecast(hours=5))
        assert episodes["demand_forecast"].shape == (len(episodes), 24, 5)
        assert np.array_equal(episodes["demand_forecast"][:, :-1, 0], episodes["demand"][:, 1:])
        assert np.array_equal(episodes["renewables_forecast"][:, :-3, 2], episodes["renewables"][:, 3:])

    def test_forecast_errors_grow_with_the_lead_as_stated(self) -> None:
        series = HourlySeries(START, np.full(400, 2.0))
        first = np.arange(300)
        drawn = Forecast(hours=24, error=0.1).draw(series, first, 24, np.random.default_rng(0))
        error = (drawn / 2.0 - 1.0).reshape(-1, 24).std(axis=0)
        assert error == pytest.approx(0.1 * np.sqrt(np.arange(1, 25) / 24), rel=0.05)

    def test_windows_with_a_forecast_end_early_enough(self) -> None:
        demand, renewables = days(3)
        assert len(build_carbon_episodes(demand, renewables, 0)) == 49
        assert len(build_carbon_episodes(demand, renewables, 0, forecast=Forecast())) == 25


class TestAugment:
    def episodes(self) -> Episodes:
        values = np.arange(48.0).reshape(2, 24) + 1.0
        clock = clock_context(np.arange(48).reshape(2, 24) % 24)
        return Episodes({"demand": values, "demand_forecast": values[..., None], **clock}, [0, 0])

    def test_the_given_episodes_come_first_and_the_rest_are_close_to_one_of_them(self) -> None:
        given_ones = self.episodes()
        more = augment(given_ones, 50, seed=1, noise=0.02)
        assert len(more) == 50
        assert np.array_equal(more["demand"][:2], given_ones["demand"])
        nearest = np.min(np.abs(more["demand"][:, None] / given_ones["demand"] - 1.0).max(axis=2), axis=1)
        assert 0.0 < nearest[2:].max() <= 0.06 + 1e-12

    def test_a_forecast_moves_with_its_series_and_the_clock_stays(self) -> None:
        more = augment(self.episodes(), 20, seed=1)
        assert np.array_equal(more["demand_forecast"][..., 0], more["demand"])
        assert np.array_equal(more["clock_cos"][7], self.episodes()["clock_cos"][0])

    def test_the_seed_decides(self) -> None:
        one, same, other = (augment(self.episodes(), 9, seed=seed)["demand"] for seed in (1, 1, 2))
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)

    def test_independent_series_come_unchanged_from_another_episode(self) -> None:
        given = self.episodes()
        more = augment(given, 40, seed=1, independent=("demand",))
        rows = {tuple(row) for row in given["demand"].tolist()}
        assert all(tuple(row) in rows for row in more["demand"].tolist())

    def test_limits_are_kept_and_fewer_episodes_are_refused(self) -> None:
        more = augment(self.episodes(), 99, seed=0, noise=0.3, limits={"demand": (0.0, 48.0)})
        assert more["demand"].max() == 48.0
        with pytest.raises(ValueError, match="count must be at least 2"):
            augment(self.episodes(), 1, seed=0)
        with pytest.raises(ValueError, match="below 1/3"):
            augment(self.episodes(), 9, seed=0, noise=0.5)


class TestCarbonEpisodes:
    def test_they_are_in_the_authors_range_and_accepted_by_the_environment(self) -> None:
        demand, renewables = days(40)
        episodes = build_carbon_episodes(demand, renewables, seed=3)
        Carbon().check(episodes)
        assert episodes["demand"].mean() == pytest.approx(3.45, rel=0.02)
        assert episodes["renewables"].mean() == pytest.approx(2.3, rel=0.02)
        assert episodes.start_hours is not None
        assert episodes.start_hours[:26].tolist() == [*range(24), 0, 1]

    def test_a_demand_with_spikes_is_flattened_below_the_limit(self) -> None:
        demand, renewables = days(40)
        values = demand.values.copy()
        values[100] *= 10.0
        scaled, _ = scale_carbon(replace(demand, values=values), renewables)
        assert scaled.values.max() == pytest.approx(5.9)
        assert scaled.values.mean() == pytest.approx(3.45)
        assert scaled.values.min() >= 0.0

    def test_negative_demand_is_refused(self) -> None:
        demand, renewables = days(3)
        with pytest.raises(ValueError, match="demand must not be negative"):
            build_carbon_episodes(demand.affine(1.0, -20.0), renewables, 0)

    def test_noise_is_as_the_paper_says_and_independent_in_overlapping_windows(self) -> None:
        demand, renewables = days(40)
        episodes = build_carbon_episodes(demand, renewables, seed=3)
        noise, drop = episodes["efficiency_noise"], episodes["drop_rate"]
        assert noise.std() == pytest.approx(1 / 15, rel=0.03)
        assert np.abs(noise).max() == 0.2
        assert (drop.min() >= 0.0, drop.max() <= 0.1, drop.mean()) == (
            True,
            True,
            pytest.approx(0.05, rel=0.02),
        )
        assert abs(np.corrcoef(noise[1:, :-1].ravel(), noise[:-1, 1:].ravel())[0, 1]) < 0.03

    def test_the_seed_decides_everything(self) -> None:
        demand, renewables = days(5)
        one, same, other = (
            build_carbon_episodes(demand, renewables, seed, count=150, forecast=Forecast(error=0.1))
            for seed in (1, 1, 2)
        )
        assert all(np.array_equal(one[name], same[name]) for name in one.names)
        assert not np.array_equal(one["efficiency_noise"], other["efficiency_noise"])

    def test_augmented_episodes_stay_in_the_range_of_the_environment(self) -> None:
        demand, renewables = days(5)
        episodes = build_carbon_episodes(demand, renewables, 1, count=500, noise=0.2)
        assert len(episodes) == 500
        Carbon().check(episodes)
        assert len(build_carbon_episodes(demand, renewables, 1, count=7)) == 7

    def test_splits_do_not_share_hours_and_only_train_is_augmented(self) -> None:
        demand, renewables = days(30)
        parts = build_carbon_splits(
            demand, renewables, 0, (date(2019, 1, 21), date(2019, 1, 26)), count=1000, clock=True
        )
        assert {name: len(part) for name, part in parts.items()} == {"train": 1000, "val": 97, "test": 97}
        hours = {name: set(np.unique(part["demand"][:97])) for name, part in parts.items()}
        assert not hours["train"] & hours["val"]
        assert not hours["val"] & hours["test"]
        shares = build_carbon_splits(demand, renewables, 0, [0.5, 0.25, 0.25])
        assert list(shares) == ["train", "val", "test"]

    def test_start_hours_can_be_local(self) -> None:
        demand, renewables = days(5)
        episodes = build_carbon_episodes(demand, renewables, 0, zone="America/Los_Angeles")
        assert episodes.start_hours is not None
        assert episodes.start_hours[0] == 16


class TestEpisodeFiles:
    def test_what_was_saved_is_read(self, tmp_path: Path) -> None:
        episodes = build_carbon_episodes(*days(3), seed=0, forecast=Forecast(hours=2), clock=True)
        save_episodes(tmp_path / "a.npz", episodes, provenance="by hand")
        read = load_episodes(tmp_path / "a.npz")
        assert read.names == episodes.names
        assert all(np.array_equal(read[name], episodes[name]) for name in read.names)
        assert read.start_hours is not None
        assert np.array_equal(read.start_hours, episodes.start_hours)
        assert read_episode_file(tmp_path / "a.npz").provenance == "by hand"
        assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]

    def test_a_set_is_chosen_by_its_name(self, tmp_path: Path) -> None:
        sets = {name: Episodes({"x": np.full((1, 2), k)}) for k, name in enumerate(("train", "test"))}
        save_episodes(tmp_path / "a.npz", sets)
        assert load_episodes(tmp_path / "a.npz", "test")["x"][0, 0] == 1.0
        assert load_episodes(tmp_path / "a.npz", "test").start_hours is None
        for wrong in (None, "val"):
            with pytest.raises(ValueError, match=r"split must name .*it holds 'train', 'test'"):
                load_episodes(tmp_path / "a.npz", wrong)

    def test_a_failed_save_leaves_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "a.npz"
        episodes = Episodes({"x": np.ones((1, 2))})
        save_episodes(file, episodes)
        before = file.read_bytes()

        def fail(draft: Path, **content: object) -> None:
            Path(draft).write_bytes(b"half")
            raise OSError("disk full")

        monkeypatch.setattr(np, "savez_compressed", fail)
        with pytest.raises(OSError, match="disk full"):
            save_episodes(file, episodes)
        assert file.read_bytes() == before
        assert list(tmp_path.iterdir()) == [file]

    def test_other_files_are_refused_with_one_line(self, tmp_path: Path) -> None:
        text, array, other, pickled, cut = (tmp_path / f"{k}.npz" for k in "12345")
        text.write_text("hello")
        with array.open("wb") as stream:
            np.save(stream, np.ones(3))
        np.savez(other, x=np.ones(3))
        np.savez(pickled, format=np.array([{}], dtype=object))
        save_episodes(cut, Episodes({"x": np.ones((1, 2))}))
        cut.write_bytes(cut.read_bytes()[:-40])
        for file in (text, array, other, pickled, cut):
            with pytest.raises(ValueError, match=r"^[^\n]*is not a complete episode file[^\n]*$"):
                load_episodes(file)
        with pytest.raises(FileNotFoundError, match="not found"):
            load_episodes(tmp_path / "none.npz")
        with pytest.raises(ValueError, match=r"ends in \.npz"):
            save_episodes(tmp_path / "a.txt", Episodes({"x": np.ones((1, 2))}))
        with pytest.raises(TypeError, match=r"must be tether\.data\.Episodes"):
            save_episodes(tmp_path / "a.npz", {"train": 3})  # type: ignore[dict-item]
