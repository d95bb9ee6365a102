from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from tether.data.sources.caiso import download_caiso, load_caiso

HEADER = "Time,Solar,Wind,Geothermal,Biomass,Biogas,Small hydro,Coal,Nuclear,Natural Gas,Large Hydro,"
HEADER += "Batteries,Imports,Other"
ZONE = ZoneInfo("America/Los_Angeles")


def line(
    time: str, solar: float | str, wind: float | str = 10, small: float | str = 1, large: float | str = 2
) -> str:
    return f"{time},{solar},{wind},900,300,200,{small},3,2200,10000,{large},-50,6000,0"


def clock() -> Iterator[str]:
    return (f"{minute // 60:02d}:{minute % 60:02d}" for minute in range(0, 24 * 60, 5))


def day_file(
    folder: Path, day: date, lines: list[str] | None = None, name: str = "CAISO-supply-{}.csv"
) -> Path:
    """A file of Today's Outlook; the sun's reading is the hour of the clock unless lines are given."""
    file = folder / name.format(day.strftime("%Y%m%d"))
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = lines if lines is not None else [line(time, int(time[:2])) for time in clock()]
    file.write_text("\n".join([HEADER, *rows]) + "\n")
    return file


def test_a_day_becomes_24_hours_in_utc_with_solar_wind_and_hydro_summed(tmp_path: Path) -> None:
    series = load_caiso(day_file(tmp_path, date(2019, 1, 15)))
    assert series.start == datetime(2019, 1, 15, 8, tzinfo=UTC)
    assert series.values.tolist() == [hour + 13.0 for hour in range(24)]
    assert series.unit == "MW"
    assert series.intake is not None
    assert (series.intake.rows, series.intake.sampling_minutes, series.intake.clipped) == (288, 5.0, 0)


def test_the_date_may_stand_in_the_folder_and_files_are_put_in_order(tmp_path: Path) -> None:
    for day in (date(2019, 1, 16), date(2019, 1, 15)):
        day_file(tmp_path, day, name="{}/fuelsource.csv")
    seen: list[Path] = []
    series = load_caiso(tmp_path, progress=seen.append)
    assert len(series) == 48
    assert series.start == datetime(2019, 1, 15, 8, tzinfo=UTC)
    assert len(seen) == 2


def test_sources_can_be_chosen_in_any_case(tmp_path: Path) -> None:
    file = day_file(tmp_path, date(2019, 1, 15))
    assert load_caiso(file, sources=["WIND"]).values.tolist() == [10.0] * 24
    with pytest.raises(ValueError, match=r"row 1: no column 'tidal'; there are Time, Solar"):
        load_caiso(file, sources=["tidal"])


class TestDaylightSaving:
    SPRING, AUTUMN = date(2019, 3, 10), date(2019, 11, 3)

    @pytest.mark.parametrize("skipped", ["absent", "blank", "zero"])
    def test_the_spring_day_has_23_hours(self, tmp_path: Path, skipped: str) -> None:
        lines = []
        for time in clock():
            if not time.startswith("02"):
                lines.append(line(time, int(time[:2])))
            elif skipped != "absent":
                lines.append(line(time, *(["" if skipped == "blank" else 0] * 4)))
        for day in (self.SPRING - timedelta(days=1), self.SPRING + timedelta(days=1)):
            day_file(tmp_path, day)
        day_file(tmp_path, self.SPRING, lines)
        series = load_caiso(tmp_path, sources=["solar"])
        assert len(series) == 24 + 23 + 24
        assert series.values[24:47].tolist() == [0.0, 1.0, *range(3, 24)]
        assert series.start == datetime(2019, 3, 9, 8, tzinfo=UTC)
        assert series.end == datetime(2019, 3, 12, 7, tzinfo=UTC)
        assert series.intake is not None
        assert series.intake.gaps == 0

    def test_a_reading_in_the_skipped_hour_is_refused(self, tmp_path: Path) -> None:
        file = day_file(tmp_path, self.SPRING)
        with pytest.raises(ValueError, match=r"20190310.csv, row 26: 2019-03-10 02:00:00 does not exist"):
            load_caiso(file)
        assert len(load_caiso(file, zone="Etc/GMT+8")) == 24

    def test_the_autumn_day_has_25_hours_when_the_hour_is_repeated(self, tmp_path: Path) -> None:
        times = list(clock())
        times = times[:24] + times[12:24] + times[24:]
        lines = [line(time, 100 if 24 <= k < 36 else int(time[:2])) for k, time in enumerate(times)]
        series = load_caiso(day_file(tmp_path, self.AUTUMN, lines), sources=["solar"])
        assert series.values.tolist() == [0.0, 1.0, 100.0, *range(2, 24)]
        assert series.start == datetime(2019, 11, 3, 7, tzinfo=UTC)
        assert series.end == datetime(2019, 11, 4, 8, tzinfo=UTC)

    def test_an_autumn_hour_that_is_there_once_is_bridged(self, tmp_path: Path) -> None:
        series = load_caiso(day_file(tmp_path, self.AUTUMN), sources=["solar"])
        assert len(series) == 25
        assert series.values[[0, 1, 3]].tolist() == [0.0, 1.0, 2.0]
        assert 1.0 < series.values[2] < 2.0
        assert series.intake is not None
        assert (series.intake.gaps, series.intake.longest_gap_hours) == (1, 1.0)

    @pytest.mark.parametrize(("day", "hours"), [(SPRING, 23), (AUTUMN, 25)])
    def test_a_table_with_local_offsets_agrees_with_one_in_utc(
        self, tmp_path: Path, day: date, hours: int
    ) -> None:
        start = datetime(day.year, day.month, day.day, tzinfo=ZONE).astimezone(UTC)
        moments = [start + timedelta(hours=k) for k in range(hours)]
        results = []
        for name, zone in (("local", ZONE), ("utc", UTC)):
            file = tmp_path / f"{name}.csv"
            rows = [line(moment.astimezone(zone).isoformat(sep=" "), k) for k, moment in enumerate(moments)]
            file.write_text("\n".join([HEADER.replace("Time", "Interval Start"), *rows]))
            results.append(load_caiso(file))
        assert results[0].start == results[1].start == start
        assert np.array_equal(results[0].values, results[1].values)
        assert len(results[0]) == hours


def table(folder: Path, rows: list[str], header: str = HEADER) -> Path:
    file = folder / "table.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


class TestTables:
    def test_gridstatus_columns_are_read_by_interval_start(self, tmp_path: Path) -> None:
        header = "Time,Interval Start,Interval End,Solar,Wind,Small Hydro,Large Hydro"
        rows = [
            f"2019-07-01 {h:02d}:05:00-07:00,2019-07-01 {h:02d}:00:00-07:00,2019-07-01 {h:02d}:05:00-07:00,1,2,3,4"
            for h in range(5)
        ]
        series = load_caiso(table(tmp_path, rows, header))
        assert series.start == datetime(2019, 7, 1, 7, tzinfo=UTC)
        assert series.values.tolist() == [10.0] * 5

    def test_naive_times_are_local(self, tmp_path: Path) -> None:
        series = load_caiso(table(tmp_path, [line(f"2019-07-01T{h:02d}:00", h) for h in range(5)]))
        assert series.start == datetime(2019, 7, 1, 7, tzinfo=UTC)

    def test_offsets_and_none_cannot_be_mixed(self, tmp_path: Path) -> None:
        rows = [line("2019-07-01T00:00", 1), line("2019-07-01T01:00-07:00", 1)]
        with pytest.raises(
            ValueError, match=r"table.csv, row 3: mixed time zones: a time with UTC offset after"
        ):
            load_caiso(table(tmp_path, rows))

    def test_offsets_of_other_zones_cannot_be_mixed_in(self, tmp_path: Path) -> None:
        rows = [line("2019-07-01T00:00-07:00", 1), line("2019-07-01T01:00-07:00", 1)]
        rows.append(line("2019-07-01T09:00+00:00", 1))
        with pytest.raises(ValueError, match=r"table.csv, row 4: mixed time zones: the UTC offset \+0000"):
            load_caiso(table(tmp_path, rows))

    def test_files_with_and_without_offset_cannot_be_mixed(self, tmp_path: Path) -> None:
        first = day_file(tmp_path, date(2019, 7, 1))
        second = table(tmp_path, [line("2019-07-02T00:00-07:00", 1)])
        with pytest.raises(ValueError, match=r"table.csv, row 2: mixed time zones"):
            load_caiso([first, second])


class TestFaults:
    DAY = date(2019, 1, 15)

    def lines(self) -> list[str]:
        return [line(time, int(time[:2])) for time in clock()]

    def test_negative_readings_are_set_to_zero_and_counted(self, tmp_path: Path) -> None:
        lines = self.lines()
        lines[:12] = [line(time, -4, wind=10, large=-500) for time in list(clock())[:12]]
        series = load_caiso(day_file(tmp_path, self.DAY, lines))
        assert series.values[0] == 11.0
        assert series.intake is not None
        assert series.intake.clipped == 24

    def test_a_gap_within_the_limit_is_a_straight_line(self, tmp_path: Path) -> None:
        rows = [line(f"2019-07-01T{h:02d}:00", h) for h in range(10) if h not in (4, 5, 6)]
        series = load_caiso(table(tmp_path, rows), sources=["solar"])
        assert series.values == pytest.approx(np.arange(10.0))
        assert series.intake is not None
        assert (series.intake.gaps, series.intake.longest_gap_hours) == (1, 3.0)

    def test_a_longer_gap_is_refused_by_file_row_and_length(self, tmp_path: Path) -> None:
        lines = self.lines()
        blank = [line(time, "", "", "", "") for time in list(clock())[24:72]]
        file = day_file(tmp_path, self.DAY, lines[:24] + blank + lines[72:])
        with pytest.raises(ValueError, match=r"20190115.csv, row 74: a gap of 4.00 h before it is longer"):
            load_caiso(file)
        assert len(load_caiso(file, max_gap_hours=4)) == 24

    def test_rows_at_the_end_of_a_running_day_may_be_blank(self, tmp_path: Path) -> None:
        lines = self.lines()[:144] + [line(time, "", "", "", "") for time in list(clock())[144:]]
        assert len(load_caiso(day_file(tmp_path, self.DAY, lines))) == 12

    def test_the_midnight_after_the_day_is_passed_over(self, tmp_path: Path) -> None:
        series = load_caiso(day_file(tmp_path, self.DAY, [*self.lines(), line("00:00", 99)]))
        assert len(series) == 24

    @pytest.mark.parametrize(
        ("number", "text", "message"),
        [
            (3, line("00:15", "n/a"), "row 5: Solar is 'n/a', not a number"),
            (3, line("00:15", "inf"), "row 5: Solar is 'inf', not a number"),
            (3, "00:15,1,2", "row 5: expected 14 columns, got 3"),
            (3, line("00:15", 1) + ",7", "row 5: expected 14 columns, got 15"),
            (3, line("0015", 1), "row 5: '0015' is not a time like 01:05"),
            (3, line("25:00", 1), "row 5: '25:00' is not a time of the day"),
            (3, line("00:05", 1), "row 5: the time repeats or goes back"),
        ],
    )
    def test_a_malformed_row_is_named(self, tmp_path: Path, number: int, text: str, message: str) -> None:
        lines = self.lines()
        lines[number] = text
        with pytest.raises(ValueError, match=f"20190115.csv, {message}"):
            load_caiso(day_file(tmp_path, self.DAY, lines))

    def test_a_daily_file_without_a_date_in_its_name_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="must be named by day"):
            load_caiso(day_file(tmp_path, self.DAY, name="fuelsource.csv"))

    def test_a_bad_time_in_a_table_is_named(self, tmp_path: Path) -> None:
        rows = [line("2019-07-01T00:00", 1), line("yesterday", 1)]
        with pytest.raises(ValueError, match=r"table.csv, row 3: 'yesterday' is not a time"):
            load_caiso(table(tmp_path, rows))

    def test_other_tables_and_empty_places_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="row 1: no column Time"):
            load_caiso(table(tmp_path, ["1,2"], "when,solar"))
        (tmp_path / "empty").mkdir()
        with pytest.raises(FileNotFoundError, match=r"holds no file \*\.csv"):
            load_caiso(tmp_path / "empty")
        with pytest.raises(FileNotFoundError, match=r"nothing\.csv not found"):
            load_caiso(tmp_path / "nothing.csv")
        with pytest.raises(ValueError, match=r"every reading of .* is blank"):
            load_caiso(day_file(tmp_path, self.DAY, [line(time, "", "", "", "") for time in clock()]))
        with pytest.raises(ValueError, match="zone must be an IANA time zone"):
            load_caiso(day_file(tmp_path, self.DAY), zone="Mars/Olympus")


class TestDownload:
    def test_without_gridstatus_the_error_says_what_to_install(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = builtins.__import__

        def without(name: str, *rest: Any, **options: Any) -> Any:
            if name == "gridstatus":
                raise ModuleNotFoundError(name=name)
            return original(name, *rest, **options)

        monkeypatch.setattr(builtins, "__import__", without)
        with pytest.raises(ImportError, match=r"pip install 'tether-rl\[caiso\]'"):
            download_caiso("2019-01-01", "2019-01-02", tmp_path / "a.csv")

    def test_what_gridstatus_gives_is_saved_as_a_table_that_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Frame:
            def to_csv(self, path: Path, index: bool) -> None:
                rows = [f"2019-07-01 {h:02d}:00:00-07:00,1,2,3,4" for h in range(5)]
                path.write_text("\n".join(["Time,Solar,Wind,Small Hydro,Large Hydro", *rows]))

        caiso = SimpleNamespace(get_fuel_mix=lambda start, end: Frame())
        monkeypatch.setitem(sys.modules, "gridstatus", SimpleNamespace(CAISO=lambda: caiso))
        file = download_caiso(date(2019, 7, 1), date(2019, 7, 2), tmp_path / "mix.csv")
        assert load_caiso(file).values.tolist() == [10.0] * 5
