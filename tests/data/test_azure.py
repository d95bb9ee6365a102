from __future__ import annotations

import builtins
import gzip
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether.data.sources.azure as azure
from tether.data.sources.azure import load_azure

pytest.importorskip("polars")

VM = "yNf/R3X8fyXkOJm3ihXQcT0F52a8cDWPPRzTT6QFW8N+1QPfeKR5//6xyX0VYn7"


def row(second: int, machine: int, average: float | str) -> str:
    return f"{second},{VM}{machine},0.5,99.5,{average}"


def write(folder: Path, rows: Sequence[str], name: str = "vm_cpu_readings-file-1-of-195.csv.gz") -> Path:
    file = folder / name
    text = ("\n".join(rows) + "\n").encode()
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
    return file


def trace(hours: int, machines: int) -> list[str]:
    """Every machine at 10 % times its number, plus the hour."""
    seconds = range(0, 3600 * hours, 300)
    return [row(s, m, 10 * m + s // 3600) for s in seconds for m in range(1, machines + 1)]


def test_load_is_the_sum_over_machines_averaged_over_the_hour(tmp_path: Path) -> None:
    series = load_azure(write(tmp_path, trace(hours=3, machines=4)))
    assert series.values == pytest.approx([1.0, 1.04, 1.08])
    assert series.unit == "VM-equivalents"
    assert series.start == datetime(2019, 1, 1)
    assert series.intake is not None
    assert (series.intake.rows, series.intake.sampling_minutes) == (3 * 12 * 4, 5.0)


def test_the_mean_over_machines_can_be_had_in_percent(tmp_path: Path) -> None:
    series = load_azure(write(tmp_path, trace(hours=2, machines=4)), how="mean")
    assert series.values == pytest.approx([25.0, 26.0])
    assert series.unit == "%"
    with pytest.raises(ValueError, match="how must be one of 'sum', 'mean'"):
        load_azure(tmp_path, how="median")  # type: ignore[arg-type]


def test_the_start_can_be_placed_in_time(tmp_path: Path) -> None:
    start = datetime.fromisoformat("2019-03-01T00:00-08:00")
    series = load_azure(write(tmp_path, trace(2, 1)), start=start)
    assert series.start == datetime(2019, 3, 1, 8, tzinfo=UTC)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(100, 5000), st.booleans(), st.randoms(use_true_random=False))
def test_neither_files_nor_chunks_nor_order_change_the_load(
    tmp_path_factory: pytest.TempPathFactory, files: int, chunk: int, packed: bool, random: Any
) -> None:
    rows = trace(hours=2, machines=3)
    expected = load_azure(write(tmp_path_factory.mktemp("one"), rows)).values
    folder = tmp_path_factory.mktemp("many")
    random.shuffle(rows)
    for k in range(files):
        write(folder, rows[k::files], f"part-{k}.csv" + (".gz" if packed else ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(azure, "CHUNK_BYTES", chunk)
        assert load_azure(folder).values == pytest.approx(expected, rel=1e-12)


def test_it_agrees_with_pandas(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    rows = [
        row(int(s), k, f"{v:.6f}")
        for k, (s, v) in enumerate(
            zip(np.repeat(np.arange(48) * 300, 20), random.uniform(0, 100, 960), strict=True)
        )
    ]
    file = write(tmp_path, rows)
    frame = pandas.read_csv(file, header=None)
    moments = frame.groupby(0)[4].sum() / 100.0
    assert load_azure(file).values == pytest.approx(moments.groupby(moments.index // 3600).mean().to_numpy())


def test_files_are_read_without_isal_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, trace(2, 3))
    expected = load_azure(file).values
    monkeypatch.setitem(sys.modules, "isal", None)
    assert np.array_equal(load_azure(file).values, expected)


def test_progress_is_told_after_each_file(tmp_path: Path) -> None:
    rows = trace(2, 2)
    for k in range(5):
        write(tmp_path, rows[k::5], f"part-{k}.csv.gz")
    seen: list[Path] = []
    load_azure(tmp_path, workers=2, progress=seen.append)
    assert sorted(file.name for file in seen) == [f"part-{k}.csv.gz" for k in range(5)]


class TestFaults:
    @pytest.mark.parametrize("packed", [True, False])
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("timestamp,vm,min,max,avg", "row 31: timestamp is 'timestamp', not whole seconds"),
            ("1.5,vm,1,2,3", "row 31: timestamp is '1.5', not whole seconds"),
            ("-300,vm,1,2,3", "row 31: timestamp is '-300', not whole seconds"),
            (",vm,1,2,3", "row 31: timestamp is '', not whole seconds"),
            ("300,vm,1,2,busy", "row 31: avg cpu is 'busy', not a percentage"),
            ("300,vm,1,2,nan", "row 31: avg cpu is 'nan', not a percentage"),
            ("300,vm,1,2,-3", "row 31: avg cpu is '-3', not a percentage"),
            ("300,vm,1,2,", "row 31: avg cpu is '', not a percentage"),
            ("300,vm,1,2", "row 31: expected 5 columns, got 4"),
            ("300,vm,1,2,3,4", "row 31: expected 5 columns, got 6"),
            ("", "row 31: expected 5 columns, got 1"),
        ],
    )
    def test_a_malformed_row_is_named(self, tmp_path: Path, text: str, message: str, packed: bool) -> None:
        rows = trace(hours=2, machines=2)
        rows.insert(30, text)
        file = write(tmp_path, rows, "a.csv.gz" if packed else "a.csv")
        with pytest.raises(ValueError, match=rf"^{file}, {message}"):
            load_azure(file)

    def test_the_row_is_counted_from_the_start_of_the_file_in_later_chunks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(azure, "CHUNK_BYTES", 500)
        rows = trace(hours=2, machines=2)
        rows[40] = "x"
        with pytest.raises(ValueError, match="row 41: expected 5 columns, got 1"):
            load_azure(write(tmp_path, rows))

    def test_a_row_that_does_not_end_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(azure, "CHUNK_BYTES", 50)
        with pytest.raises(ValueError, match="a row is longer than 50 bytes"):
            load_azure(write(tmp_path, trace(2, 2)))

    @pytest.mark.parametrize("isal", [True, False])
    @pytest.mark.parametrize("damage", ["cut", "garbled"])
    def test_a_damaged_gzip_file_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isal: bool, damage: str
    ) -> None:
        if not isal:
            monkeypatch.setitem(sys.modules, "isal", None)
        file = write(tmp_path, trace(2, 2))
        content = file.read_bytes()
        file.write_bytes(content[:-20] if damage == "cut" else content[:60] + bytes(40) + content[100:])
        with pytest.raises(ValueError, match=r"^[^\n]*is not a complete gzip file[^\n]*$"):
            load_azure(file)

    def test_a_gap_that_is_too_long_names_file_and_row(self, tmp_path: Path) -> None:
        rows = [row(s, 1, 5.0) for s in [*range(0, 7200, 300), *range(25200, 28800, 300)]]
        write(tmp_path, rows[:10], "a.csv")
        file = write(tmp_path, rows[10:], "b.csv")
        with pytest.raises(ValueError, match=rf"^{file}, row 15: a gap of 5.00 h before it"):
            load_azure(tmp_path)
        assert len(load_azure(tmp_path, max_gap_hours=5)) == 8

    def test_empty_places_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"holds no file \*\.csv\.gz or \*\.csv"):
            load_azure(tmp_path)
        (tmp_path / "a.csv").write_text("")
        with pytest.raises(ValueError, match=r"a\.csv holds no data rows"):
            load_azure(tmp_path / "a.csv")
        with pytest.raises(ValueError, match="no files given"):
            load_azure([])

    def test_without_polars_the_error_says_what_to_install(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = builtins.__import__

        def without(name: str, *rest: Any, **options: Any) -> Any:
            if name == "polars":
                raise ModuleNotFoundError(name=name)
            return original(name, *rest, **options)

        monkeypatch.setattr(builtins, "__import__", without)
        with pytest.raises(ImportError, match=r"pip install 'tether-rl\[data\]'"):
            load_azure(write(tmp_path, trace(1, 1)))
