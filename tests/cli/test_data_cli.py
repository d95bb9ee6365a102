from __future__ import annotations

import gzip
import json
import sys
from datetime import date, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from scipy.io import savemat
from typer.testing import CliRunner, Result

from tether.bench.data import bench_data, bench_table
from tether.cli.app import data_group
from tether.cli.data_build import parse_forecast, parse_split
from tether.cli.data_sources import recognise
from tether.data.episodes import Episodes
from tether.data.store import load_episodes, read_episode_file, save_episodes
from tether.envs import Carbon
from tether.systems.carbon.reader import FILES

DAY = timedelta(days=1)
SUPPLY = "Time,Solar,Wind,Geothermal,Biomass,Biogas,Small hydro,Coal,Nuclear,Natural Gas,Large Hydro,"
SUPPLY += "Batteries,Imports,Other"


def run(*arguments: object) -> Result:
    words = [str(argument) for argument in arguments]
    with patch.object(sys, "argv", ["tether", "data", *words]):
        return CliRunner().invoke(data_group, words, env={"COLUMNS": "120"})


def shown(*arguments: object) -> str:
    """What a command that goes well prints."""
    result = run(*arguments)
    if result.exception is not None:
        raise result.exception
    return result.output


def caiso_folder(folder: Path, days: int, first: date = date(2019, 3, 8)) -> Path:
    """Hourly files in the daily layout, a little below zero at night."""
    folder.mkdir()
    for day in (first + k * DAY for k in range(days)):
        rows = []
        for hour in range(24):
            if day == date(2019, 3, 10) and hour == 2:
                continue
            sun = 5000.0 * np.sin(np.pi * (hour - 6) / 12) if 6 < hour < 18 else -4.0
            rows.append(
                f"{hour:02d}:00,{sun:.1f},900,800,300,200,300,3,2200,9000,{1500 + day.day},-50,6000,0"
            )
        (folder / f"CAISO-supply-{day:%Y%m%d}.csv").write_text("\n".join([SUPPLY, *rows]) + "\n")
    return folder


def azure_folder(folder: Path, days: int, files: int = 4) -> Path:
    folder.mkdir()
    pytest.importorskip("polars")
    rows = [
        f"{second},vm{machine},1.0,90.0,{30 + 10 * np.sin(2 * np.pi * second / 86400) + machine:.4f}"
        for second in range(0, days * 86400, 300)
        for machine in range(2)
    ]
    share = -(-len(rows) // files)
    for k in range(files):
        text = "\n".join(rows[k * share : (k + 1) * share]) + "\n"
        (folder / f"vm_cpu_readings-file-{k + 1}-of-{files}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def bloom_file(folder: Path, days: int) -> Path:
    file = folder / "bloom.csv"
    times = [datetime(2022, 3, 9) + timedelta(hours=hour) for hour in range(24 * days)]
    file.write_text("time,requests\n" + "".join(f"{time.isoformat()},{50 + time.hour}\n" for time in times))
    return file


class TestDescribe:
    def test_a_caiso_folder_is_recognised_and_told(self, tmp_path: Path) -> None:
        text = shown("describe", caiso_folder(tmp_path / "caiso", 4))
        for words in ("CAISO", "2019-03-08T08:00:00+00:00", "negative values clipped", "lag-24", "mean (MW)"):
            assert words in text
        assert "│ 95 " in text

    def test_an_azure_folder_is_recognised_and_told(self, tmp_path: Path) -> None:
        text = shown("describe", azure_folder(tmp_path / "azure", 2))
        assert "Azure" in text
        assert "mean (VM-equivalents)" in text
        assert "│ 1152 " in text

    def test_power_logs_are_recognised_and_told(self, tmp_path: Path) -> None:
        assert "requests/h" in shown("describe", bloom_file(tmp_path, 3))
        file = tmp_path / "emissions.csv"
        file.write_text("timestamp,run_id,duration,gpu_power\n2024-05-27T11:00:00,a,7200,300\n")
        assert "CodeCarbon" in shown("describe", file)

    def test_a_folder_of_mat_files_is_told_split_by_split(self, tmp_path: Path) -> None:
        series = np.sin(np.arange(60.0)) + 2.0
        windows = np.lib.stride_tricks.sliding_window_view(series, 24)
        for name in FILES.values():
            savemat(tmp_path / name, dict.fromkeys(("train", "val", "test"), windows))
        text = shown("describe", tmp_path)
        assert "carbon data" in text
        assert text.count("37 of 24 h") == 3
        assert text.count("efficiency_noise") == 3

    def test_the_figure_and_the_numbers_are_saved(self, tmp_path: Path) -> None:
        shown(
            "describe", caiso_folder(tmp_path / "caiso", 4), "--out", tmp_path / "out", "--sources", "solar"
        )
        assert (tmp_path / "out" / "describe.png").read_bytes().startswith(b"\x89PNG")
        results = json.loads((tmp_path / "out" / "results.json").read_text())
        series = results["series"][0]
        assert (results["kind"], series["name"], series["unit"]) == ("CAISO", "solar", "MW")
        assert (series["hours"], series["negative_values_clipped"], series["min"]) == (95, 51, 0.0)
        assert series["lag_24"] > 0.9
        assert "command" in results["provenance"]

    def test_what_has_no_meaning_is_null(self, tmp_path: Path) -> None:
        save_episodes(tmp_path / "a.npz", Episodes({"demand": np.ones((3, 24))}), "by hand")
        assert "made by: by hand" in shown("describe", tmp_path / "a.npz", "--out", tmp_path / "out")
        assert json.loads((tmp_path / "out" / "results.json").read_text())["series"][0]["lag_1"] is None

    def test_unknown_files_are_refused_with_what_is_known(self, tmp_path: Path) -> None:
        file = tmp_path / "other.csv"
        file.write_text("a,b\n1,2\n")
        result = run("describe", file)
        assert isinstance(result.exception, ValueError)
        assert str(result.exception).startswith(f"{file}, row 1: not the layout of CAISO")
        assert isinstance(run("describe", tmp_path / "none.csv").exception, FileNotFoundError)
        cut = tmp_path / "cut.csv.gz"
        cut.write_bytes(gzip.compress(b"0,a,1,2,3\n" * 50)[:20])
        with pytest.raises(ValueError, match="not a complete gzip file"):
            recognise(cut)


def carbon(demand: Path, renewables: Path) -> tuple[str, ...]:
    """The first arguments of `tether data build` for the carbon system."""
    return ("carbon", "--series", f"demand={demand}", "--series", f"renewables={renewables}")


class TestBuild:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ("carbon", "--series", "demand=a"),
                r"once for each of demand=PATH .* renewables=PATH .*; got demand=a$",
            ),
            (("carbon", "--series", "demand=", "--series", "renewables=b"), "once for each of"),
            (("carbon", "--series", "load=a", "--series", "renewables=b"), "got load=a renewables=b"),
            (
                ("cooling", "--series", "demand=a"),
                "needs the part 'builder' of a system, which cooling does not have",
            ),
        ],
    )
    def test_the_system_says_which_series_it_needs(
        self, tmp_path: Path, arguments: tuple[str, ...], message: str
    ) -> None:
        result = run("build", *arguments, "--out", tmp_path / "a.npz")
        assert isinstance(result.exception, ValueError)
        with pytest.raises(ValueError, match=message):
            raise result.exception

    def test_azure_and_caiso_become_episodes_that_the_environment_accepts(self, tmp_path: Path) -> None:
        demand, renewables = azure_folder(tmp_path / "azure", 8), caiso_folder(tmp_path / "caiso", 9)
        out = tmp_path / "made" / "carbon.npz"
        text = shown(
            *("build", *carbon(demand, renewables), "--azure-start", "2019-03-09T00:00-08:00"),
            *("--out", out, "--split", "2019-03-13,2019-03-15"),
            *("--episodes", 200, "--clock", "--forecast", "0.1", "--seed", 7),
        )
        assert "train: 200 of 24 h" in text
        sets = read_episode_file(out).splits
        assert list(sets) == ["train", "val", "test"]
        for episodes in sets.values():
            Carbon().check(episodes)
            assert {"clock_sin", "clock_cos", "demand_forecast", "renewables_forecast"} <= set(episodes.names)
            assert episodes["demand_forecast"].shape[2] == 24
        assert "--seed 7" in read_episode_file(out).provenance
        assert "train: 200 of 24 h" in shown("describe", out)

    def test_the_same_seed_gives_the_same_file(self, tmp_path: Path) -> None:
        demand, renewables = bloom_file(tmp_path, 6), caiso_folder(tmp_path / "caiso", 7)
        made = []
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            out = tmp_path / f"{name}.npz"
            arguments = ("--align", "hour-of-year", "--out", out, "--seed", seed)
            shown("build", *carbon(demand, renewables), *arguments)
            made.append(load_episodes(out))
        assert all(np.array_equal(made[0][name], made[1][name]) for name in made[0].names)
        assert not np.array_equal(made[0]["drop_rate"], made[2]["drop_rate"])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--split", "0.5,0.5"), r"--split must be two dates .* got '0.5,0.5'"),
            (("--split", "0.9,0.05,0.2"), r"three positive numbers that sum to 1"),
            (("--split", "2018-01-01,2018-02-01"), "leaves an empty part"),
            (("--align", "nearest"), "--align must be one of 'overlap', 'hour-of-year', got 'nearest'"),
            (("--align", "overlap"), "only one has a time zone"),
            (("--forecast", "good"), "--forecast must be none, perfect or an error such as 0.1, got 'good'"),
            (("--azure-start", "soon"), "--azure-start must be a time such as"),
            (("--horizon", "900"), "^the common period has 96 hours, too few for a window of 900"),
            (
                ("--split", "0.5,0.25,0.25", "--horizon", "25"),
                "^val: the common period has 24 hours, too few",
            ),
            (("--sources", "tidal"), "no column 'tidal'"),
        ],
    )
    def test_bad_options_are_one_clear_line_and_nothing_is_written(
        self, tmp_path: Path, options: tuple[str, ...], message: str
    ) -> None:
        demand, renewables = bloom_file(tmp_path, 4), caiso_folder(tmp_path / "caiso", 5)
        base = ["--align", "hour-of-year"] if "--align" not in options else []
        out = tmp_path / "out" / "a.npz"
        result = run("build", *carbon(demand, renewables), "--out", out, *base, *options)
        assert isinstance(result.exception, ValueError)
        with pytest.raises(ValueError, match=message):
            raise result.exception
        assert "\n" not in str(result.exception)
        assert not out.parent.exists() or not list(out.parent.iterdir())

    def test_a_malformed_source_leaves_the_old_file_as_it_was(self, tmp_path: Path) -> None:
        demand, renewables = bloom_file(tmp_path, 4), caiso_folder(tmp_path / "caiso", 5)
        out = tmp_path / "a.npz"
        arguments = (
            "build",
            *carbon(demand, renewables),
            "--align",
            "hour-of-year",
            "--out",
            out,
        )
        shown(*arguments)
        before = out.read_bytes()
        broken = renewables / "CAISO-supply-20190309.csv"
        broken.write_text(broken.read_text().replace("09:00,", "nine,"))
        result = run(*arguments)
        assert str(result.exception) == f"{broken}, row 11: 'nine' is not a time like 01:05"
        assert out.read_bytes() == before
        assert not list(tmp_path.glob(".*"))

    def test_episodes_are_no_source_and_files_end_in_npz(self, tmp_path: Path) -> None:
        save_episodes(tmp_path / "a.npz", Episodes({"demand": np.ones((3, 24))}))
        arguments = ("build", *carbon(tmp_path / "a.npz", tmp_path / "a.npz"), "--out")
        assert "holds episodes, not a series" in str(run(*arguments, tmp_path / "b.npz").exception)
        assert "--out must end in .npz" in str(run(*arguments, tmp_path / "b.csv").exception)


def test_options_are_read() -> None:
    assert parse_split("") is None
    assert parse_split("2019-07-01, 2019-09-01") == (date(2019, 7, 1), date(2019, 9, 1))
    assert parse_forecast("none") is None
    assert [getattr(parse_forecast(text), "error", None) for text in ("perfect", "0.2")] == [0.0, 0.2]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("build", ("--azure-start", "--split", "hour-of-year", "carbon.npz")),
        ("describe", ("--out", ".mat", "BLOOM")),
    ],
)
def test_help_teaches_with_examples(command: str, words: tuple[str, ...]) -> None:
    text = shown(command, "--help")
    assert f"tether data {command}" in text
    assert all(word in text for word in words)


def test_the_benchmark_measures_readers_that_agree() -> None:
    pytest.importorskip("polars")
    pytest.importorskip("pandas")
    figures = bench_data(rows=20_000, files=2, repeats=1)
    assert figures["rows"] >= 20_000
    assert figures["hours"] == 8
    assert figures["largest_difference"] < 1e-12
    assert figures["peak_below_limit"] in (True, False)  # of this process, whatever it has done before
    assert bench_table(figures).row_count == 3
