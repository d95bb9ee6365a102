"""CSV tables with a header, read as text by polars; numbers and times are checked, and faults named by their row."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.data.chunks import existing_file
from tether.data.frames import load_polars

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


class Times(NamedTuple):
    """A column of times."""

    clock: Floats
    """[R] seconds since 1970 on the clock that they are written in."""
    offset: Floats | None
    """[R] UTC offset of that clock in seconds; None if the times have none."""

    @property
    def seconds(self) -> Floats:
        """[R] seconds since 1970 in UTC, or on the clock of the file if that is all that is known."""
        return self.clock if self.offset is None else self.clock - self.offset


class Table(NamedTuple):
    """A CSV file with a header; rows count from 0, blank lines left out."""

    path: Path
    columns: list[str]
    """The header, as written but without surrounding blanks."""
    frame: Any
    """Polars frame of text, its columns called "0", "1", ...; null where a field is blank."""

    def __len__(self) -> int:
        return int(self.frame.height)

    def column(self, name: str) -> int:
        """The index of a column by its exact name."""
        if name not in self.columns:
            raise ValueError(f"{self.path}, row 1: no column {name!r}; there are {', '.join(self.columns)}")
        return self.columns.index(name)

    def texts(self, column: int, rows: Rows | None = None) -> Any:
        """[R] fields as they are written, a polars series; "" where they are blank."""
        texts = self.frame[str(column)].fill_null("")
        return texts if rows is None else texts[rows]

    def numbers(self, column: int, rows: Rows | None = None, *, signed: bool = True) -> Floats:
        """[R] fields as finite numbers, negative ones only if `signed`; of all rows unless some are chosen."""
        texts = self.texts(column, rows)
        float64 = load_polars("reading CSV files").Float64
        values = np.array(texts.str.strip_chars().cast(float64, strict=False).fill_null(np.nan), dtype=float)
        bad = np.flatnonzero(~(np.isfinite(values) & (signed | (values >= 0.0))))
        if bad.size:
            k = int(bad[0])
            wrong = f"{self.columns[column]} is {texts[k]!r}, not a number"
            if np.isfinite(values[k]):
                wrong = f"{self.columns[column]} is {values[k]:g}, it must not be negative"
            raise self.fault(k if rows is None else int(rows[k]), wrong)
        return values

    def times(self, column: int) -> Times:
        """[R] fields as ISO 8601 times, all with a UTC offset or all without."""
        moments = []
        for k, text in enumerate(self.texts(column)):
            try:
                moments.append(datetime.fromisoformat(text.strip()))
            except ValueError:
                raise self.fault(k, f"{text!r} is not a time such as 2019-03-10T01:05:00-08:00") from None
            if (moments[k].tzinfo is None) != (moments[0].tzinfo is None):
                kinds = ("with", "without") if moments[k].tzinfo is not None else ("without", "with")
                wrong = f"mixed time zones: a time {kinds[0]} UTC offset after times {kinds[1]} one"
                raise self.fault(k, wrong)
        clock = np.array([moment.replace(tzinfo=None) for moment in moments], dtype="datetime64[us]")
        offsets = [moment.utcoffset() for moment in moments]
        known = [offset / timedelta(seconds=1) for offset in offsets if offset is not None]
        return Times(clock.astype(np.int64) / 1e6, np.array(known) if known else None)

    def place(self, row: int) -> str:
        """Where a row stands: the file and the number of its line, the header being row 1."""
        lines = (line for line, fields in _lines(self.path) if line > 1 and any(map(str.strip, fields)))
        return f"{self.path}, row {next(line for k, line in enumerate(lines) if k == row)}"

    def fault(self, row: int, wrong: str) -> ValueError:
        """The error for something wrong in a row."""
        return ValueError(f"{self.place(row)}: {wrong}")


def read_table(path: str | Path) -> Table:
    """Read a CSV file with a header; rows must have as many fields as it, blank lines are left out."""
    file = existing_file(path)
    polars = load_polars("reading CSV files")
    first, _, rest = file.read_bytes().partition(b"\n")
    try:
        header = [name.strip() for name in next(csv.reader([first.decode("utf-8-sig")]), [])]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file} is not a readable CSV file: {error}") from None
    if not rest.strip():
        raise ValueError(f"{file} holds no data rows")
    names = [str(k) for k in range(len(header))]
    try:
        frame = polars.read_csv(",".join(names).encode() + b"\n" + rest, infer_schema=False)
    except polars.exceptions.PolarsError as error:
        _check_widths(file, header)
        reason = str(error).splitlines()[0]
        raise ValueError(f"{file} is not a readable CSV file: {reason}") from None
    if frame[names[-1]].null_count():
        _check_widths(file, header)  # a row that is too short looks like one that ends with blanks
    frame = frame.filter(~polars.all_horizontal(polars.all().str.strip_chars().replace("", None).is_null()))
    if not frame.height:
        raise ValueError(f"{file} holds no data rows")
    return Table(file, header, frame)


def _check_widths(file: Path, header: list[str]) -> None:
    """Refuse a row that has not as many fields as the header."""
    for line, fields in _lines(file):
        if line > 1 and any(map(str.strip, fields)) and len(fields) != len(header):
            raise ValueError(f"{file}, row {line}: expected {len(header)} columns, got {len(fields)}")


def _lines(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Every line with its number, from 1, for finding the one to name in an error."""
    with file.open(newline="", encoding="utf-8-sig", errors="replace") as stream:
        reader = csv.reader(stream)
        for fields in reader:
            yield reader.line_num, fields
