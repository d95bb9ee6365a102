from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tether.data.sources.gpu import load_bloom, load_codecarbon

HEADER = (
    "timestamp,project_name,run_id,duration,emissions,emissions_rate,cpu_power,gpu_power,ram_power,cpu_energy,"
    "gpu_energy,ram_energy,energy_consumed,country_name,country_iso_code,region,cloud_provider,cloud_region,os,"
    "python_version,codecarbon_version,cpu_count,cpu_model,gpu_count,gpu_model,longitude,latitude,ram_total_size,"
    "tracking_mode,on_cloud,pue"
)


def run(end: str, duration: float | str, power: float | str, name: str = "a") -> str:
    return (
        f"{end},codecarbon,{name},{duration},0.001,2e-07,42.5,{power},31.3,0.01,0.02,0.01,0.04,France,FRA,,,,"
        'Linux-6.1,3.11.7,2.4.2,12,"Xeon, 2.2 GHz",1,1 x NVIDIA A100,2.3,48.8,83.4,machine,N,1.0'
    )


def log(folder: Path, rows: list[str], header: str = HEADER) -> Path:
    file = folder / "emissions.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


class TestCodeCarbon:
    def test_a_run_counts_for_all_of_its_duration(self, tmp_path: Path) -> None:
        series = load_codecarbon(log(tmp_path, [run("2024-05-27T11:30:00", 3.5 * 3600, 300.0)]))
        assert series.start == datetime(2024, 5, 27, 8)
        assert series.values.tolist() == [300.0] * 4
        assert series.unit == "W"

    def test_flushed_rows_count_for_the_time_since_the_last_one(self, tmp_path: Path) -> None:
        rows = [
            run(f"2024-05-27T{8 + k // 4:02d}:{15 * (k % 4):02d}:00", 900 * k, 100.0 * k) for k in range(1, 9)
        ]
        series = load_codecarbon(log(tmp_path, rows))
        assert series.values.tolist() == [250.0, 650.0]
        assert series.intake is not None
        assert series.intake.sampling_minutes == 15.0

    def test_runs_that_overlap_are_averaged_by_time(self, tmp_path: Path) -> None:
        rows = [run("2024-05-27T09:00:00", 3600, 100.0, "a"), run("2024-05-27T09:00:00", 1200, 200.0, "b")]
        assert load_codecarbon(log(tmp_path, rows)).values.tolist() == [pytest.approx(125.0)]

    def test_a_pause_within_the_limit_is_bridged_and_a_longer_one_named(self, tmp_path: Path) -> None:
        rows = [run("2024-05-27T08:00:00", 3600, 100.0, "a"), run("2024-05-27T12:00:00", 3600, 400.0, "b")]
        series = load_codecarbon(log(tmp_path, rows))
        assert series.values.tolist() == [100.0, 175.0, 250.0, 325.0, 400.0]
        with pytest.raises(ValueError, match=r"emissions.csv, row 3: a gap of 3.00 h before it"):
            load_codecarbon(log(tmp_path, rows), max_gap_hours=2)

    def test_times_with_offset_are_kept_in_utc(self, tmp_path: Path) -> None:
        series = load_codecarbon(log(tmp_path, [run("2024-05-27T10:00:00+02:00", 3600, 1.0)]))
        assert series.start == datetime(2024, 5, 27, 7, tzinfo=UTC)

    def test_other_powers_can_be_read(self, tmp_path: Path) -> None:
        series = load_codecarbon(log(tmp_path, [run("2024-05-27T10:00:00", 3600, 1.0)]), column="cpu_power")
        assert series.values.tolist() == [42.5]

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([run("2024-05-27T10:00:00", 3600, "")], "row 2: gpu_power is '', not a number"),
            ([run("2024-05-27T10:00:00", 3600, -1.0)], "row 2: gpu_power is -1, it must not be negative"),
            ([run("2024-05-27T10:00:00", "long", 1.0)], "row 2: duration is 'long', not a number"),
            ([run("noon", 3600, 1.0)], "row 2: 'noon' is not a time"),
            (["2024-05-27T10:00:00,codecarbon"], "row 2: expected 31 columns, got 2"),
            (
                [run("2024-05-27T10:00:00", 3600, 1.0), run("2024-05-27T11:00:00Z", 3600, 1.0)],
                "row 3: mixed time zones",
            ),
            (
                [run("2024-05-27T10:00:00", 3600, 1.0), run("2024-05-27T09:00:00", 60, 1.0)],
                "row 3: the time of run a goes back",
            ),
        ],
    )
    def test_a_malformed_row_is_named(self, tmp_path: Path, rows: list[str], message: str) -> None:
        with pytest.raises(ValueError, match=f"emissions.csv, {message}"):
            load_codecarbon(log(tmp_path, rows))

    def test_a_log_without_gpu_power_or_too_short_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="row 1: no column 'gpu_power'"):
            load_codecarbon(log(tmp_path, ["2024-05-27T10:00:00,a,1"], "timestamp,run_id,duration"))
        with pytest.raises(ValueError, match="cover no hour by half"):
            load_codecarbon(log(tmp_path, [run("2024-05-27T10:00:00", 60, 1.0)]))


def bloom(
    folder: Path, rows: list[str], header: str = "time,gpu_power_mean_w,gpu_power_min_w,gpu_power_max_w"
) -> Path:
    file = folder / "bloom.csv"
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


class TestBloom:
    def test_ten_minutes_become_hours(self, tmp_path: Path) -> None:
        rows = [f"2022-09-22T{15 + k // 6}:{k % 6}0:00,{100 * k},1,9999" for k in range(1, 18)]
        series = load_bloom(bloom(tmp_path, rows))
        assert series.start == datetime(2022, 9, 22, 15)
        assert series.values.tolist() == [300.0, 850.0, 1450.0]
        assert series.unit == "W"

    def test_requests_are_read_as_they_are(self, tmp_path: Path) -> None:
        series = load_bloom(
            bloom(tmp_path, [f"2022-09-22T{h}:00:00,{h}" for h in range(10, 15)], "time,requests")
        )
        assert series.values.tolist() == [10.0, 11.0, 12.0, 13.0, 14.0]
        assert series.unit == "requests/h"

    def test_faults_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"bloom.csv, row 3: requests is 'x', not a number"):
            load_bloom(bloom(tmp_path, ["2022-09-22T10:00:00,1", "2022-09-22T11:00:00,x"], "time,requests"))
        rows = [f"2022-09-22T{h:02d}:00:00,1" for h in (9, 15, 16, 17)]
        with pytest.raises(ValueError, match=r"bloom.csv, row 3: a gap of 5.00 h"):
            load_bloom(bloom(tmp_path, rows, "time,requests"))
        with pytest.raises(ValueError, match="row 1: no column gpu_power_mean_w or requests"):
            load_bloom(bloom(tmp_path, ["2022-09-22T10:00:00,1"], "time,users"))

    @pytest.mark.needs_data
    def test_the_published_series_are_whole(self, shared: Path) -> None:
        power = load_bloom(shared / "data" / "inference" / "bloom_gpu_power_10min.csv")
        requests = load_bloom(shared / "data" / "inference" / "bloom_requests_hourly.csv")
        assert (len(power), len(requests)) == (456, 413)
        assert power.values.mean() == pytest.approx(1664.8, rel=1e-3)
        assert np.corrcoef(power.values[:413], requests.values)[0, 1] > 0.3
