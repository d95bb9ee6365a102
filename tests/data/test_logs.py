from __future__ import annotations

import builtins
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tether.data.logs import read_blocks
from tether.data.sources.caiso import load_caiso

polars = pytest.importorskip("polars")

HEADER = "episode,round,state,action,cost,next_state\n"
ROW = "0,1,0.5,0.1,1.0,0.2\n"


def states(file: Path, **options: Any) -> list[float]:
    return [float(x) for block in read_blocks(file, **options)[1] for x in block.state[:, 0]]


def test_every_format_gives_the_same_rows_whatever_the_batches_are(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(500, 4))
    log = {"episode": np.repeat(np.arange(10), 50), "round": np.tile(np.arange(50), 10)}
    log |= dict(zip(("state", "action", "cost", "next_state"), values.T, strict=True))
    frame = polars.DataFrame(log)
    frame.write_csv(tmp_path / "log.csv")
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress((tmp_path / "log.csv").read_bytes()))
    frame.write_parquet(tmp_path / "log.parquet", row_group_size=30)
    for name in ("log.csv", "log.csv.gz", "log.parquet"):
        for batch in (7, 1 << 16):
            read = states(tmp_path / name, batch_rows=batch, block_rows=64)
            assert read == pytest.approx(values[:, 0], rel=1e-15)


def test_names_may_be_written_with_blanks_and_quotes_and_other_columns_hold_anything(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text(
        '\ufeffepisode ,"round ",note,state,action,cost,next_state,note\na,1,"x, y",0.5,1,1,2,z\n'
    )
    assert states(file) == [0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + ROW + "\n" + ROW, r"log.csv, row 3: the line is blank"),
        (HEADER + ROW + "0,2,0.5\n", "row 3: expected 6 columns, got 3"),
        (HEADER + ROW + "0,2,0.5,0.1,1.0,nan\n", "row 3: next_state is 'nan', not a finite number"),
        (HEADER + ROW + ",2,0.5,0.1,1.0,0.2\n", "row 3: episode is ''"),
    ],
)
def test_a_malformed_row_of_a_csv_log_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "log.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        states(file)


def test_a_packed_log_that_was_cut_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "log.csv.gz"
    file.write_bytes(gzip.compress((HEADER + ROW * 2000).encode())[:-20])
    with pytest.raises(ValueError, match=r"log.csv.gz is not a complete file"):
        states(file)


@pytest.mark.parametrize("column", ["state", "episode"])
def test_a_missing_value_in_a_parquet_log_is_named_by_its_row(tmp_path: Path, column: str) -> None:
    log: dict[str, list[Any]] = {name: [1.0] * 50 for name in HEADER.strip().split(",")}
    log[column] = [*log[column][:40], None, *log[column][41:]]
    polars.DataFrame(log).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=f"log.parquet, row 41: {column} is None, not a number"):
        states(tmp_path / "log.parquet", batch_rows=16)


def test_text_in_a_parquet_log_is_refused_in_one_line(tmp_path: Path) -> None:
    log = {name: ["1", "two"] for name in HEADER.strip().split(",")}
    polars.DataFrame(log).write_parquet(tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=r"^[^\n]*log.parquet: [^\n]*$"):
        states(tmp_path / "log.parquet")


def test_without_polars_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name == "polars":
            raise ModuleNotFoundError(name=name)
        return original(name, *rest, **options)

    file = tmp_path / "log.csv"
    file.write_text(HEADER + ROW)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"^reading log files needs .*: pip install 'tether-rl\[data\]'$"):
        states(file)
    with pytest.raises(ImportError, match=r"^reading CAISO files needs .*: pip install 'tether-rl\[data\]'$"):
        load_caiso(file)
