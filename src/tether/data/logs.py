"""Logs of operation, one row a round, read in blocks of fixed size so that memory does not grow with the file."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.data.chunks import existing_file, open_text
from tether.data.frames import load_polars
from tether.data.sources import minari

Floats = NDArray[np.float64]
BLOCK_ROWS = 1 << 16
"""Rows of a block. Sums are taken block by block, so that results do not depend on how the file was read."""
BATCH_ROWS = 1 << 16
"""Rows of a file that are decoded at a time."""


@dataclass(frozen=True)
class Columns:
    """Which column of a log holds what.

    `Columns.named_in(header)` finds them by convention: `episode`, `round`, `cost`, and for the others either the
    name itself (`state`) or any number of columns that begin with it (`state_1`, `state_level`).
    """

    state: tuple[str, ...]
    """The state x before the action: what a deviation can change."""
    action: tuple[str, ...]
    """The action a that was played."""
    prior: tuple[str, ...] = ()
    """The prior's action at the same state; empty: not logged."""
    context: tuple[str, ...] = ()
    """What else the prior or the plant sees and no action changes: demand, weather, price."""
    next_state: tuple[str, ...] = ()
    """The state after the round; empty: the next row of the episode has it."""
    cost: str = "cost"
    episode: str = "episode"
    round: str = "round"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, str) and field.name in _SEVERAL:
                raise TypeError(f"{field.name} must be a list of column names, got {value!r}")
            if field.name in _SEVERAL:
                object.__setattr__(self, field.name, tuple(value))
        if not self.state or not self.action:
            raise ValueError("a log needs at least one column of state and one of action")
        for name, reference in (("next_state", "state"), ("prior", "action")):
            mine, other = getattr(self, name), getattr(self, reference)
            if mine and len(mine) != len(other):
                raise ValueError(
                    f"{name} must have as many columns as {reference} ({len(other)}: {', '.join(other)}), "
                    f"got {len(mine)}: {', '.join(mine)}"
                )
        names = self.all
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"column {twice[0]!r} is used twice; a column has one role")

    @property
    def all(self) -> tuple[str, ...]:
        """Every column that is read: episode and round first, then the numbers in the order of `Block`."""
        return (
            self.episode,
            self.round,
            *self.state,
            *self.context,
            *self.action,
            *self.prior,
            self.cost,
            *self.next_state,
        )

    @classmethod
    def named_in(cls, header: Iterable[str], place: str = "the log", **given: Any) -> Columns:
        """The columns of a log with this header; `given` ones are taken as they are.

        Example:
            >>> Columns.named_in(["episode", "round", "state_1", "state_2", "action", "cost"]).state
            ('state_1', 'state_2')
        """
        names = list(header)
        chosen: dict[str, Any] = {key: value for key, value in given.items() if value}
        for role in _SEVERAL:
            if role not in chosen:
                chosen[role] = tuple(name for name in names if name == role or name.startswith(role + "_"))
        for role in ("state", "action"):
            if not chosen[role]:
                raise ValueError(
                    f"{place} has no column {role} or {role}_...; there are {', '.join(names) or 'none'}; "
                    f"say which ones hold the {role}"
                )
        columns = cls(**chosen)
        for name in columns.all:
            if name not in names:
                raise ValueError(
                    f"{place} has no column {name!r}; there are {', '.join(names)}; say which ones to read"
                )
        return columns


_SEVERAL = ("state", "action", "prior", "context", "next_state")


class Block(NamedTuple):
    """Successive rows of a log; the last round of an episode is left out where its next state is not known."""

    row: NDArray[np.int64]
    """[n] number of the row, from 0."""
    follows: NDArray[np.bool_]
    """[n] whether the row is the round after the row before it, in the same episode."""
    state: Floats
    """[n, X]."""
    context: Floats
    """[n, W]."""
    action: Floats
    """[n, A]."""
    prior: Floats
    """[n, A], or [n, 0] if it was not logged."""
    cost: Floats
    """[n]."""
    next_state: Floats
    """[n, X]."""


class _Chunk(NamedTuple):
    """Rows as they come from a reader, of any number."""

    episode: Any
    """[n] anything that can be compared."""
    numbers: Floats
    """[n, 1 + ...] round, then the numbers in the order of `Columns.all`."""


def read_blocks(
    logs: Any,
    columns: Mapping[str, Any] | None = None,
    block_rows: int = BLOCK_ROWS,
    batch_rows: int = BATCH_ROWS,
    progress: Callable[[int], None] | None = None,
) -> tuple[Columns, Iterator[Block]]:
    """The columns of a log, and its rows in blocks.

    Args:
        logs: A CSV (plain or gzip) or Parquet file, a Minari data set (`minari:ID`), or a mapping of column names to
            arrays (a DataFrame is one).
        columns: Roles and names that convention does not find: {"state": ["level"], "cost": "eur"}.
        block_rows: Rows of a block.
        batch_rows: Rows of a file that are decoded at a time.
        progress: Called with the rows read so far.
    """
    given = dict(columns or {})
    chunks: Iterator[_Chunk]
    unknown = set(given) - {field.name for field in fields(Columns)}
    if unknown:
        roles = ", ".join(field.name for field in fields(Columns))
        raise ValueError(f"columns has the role {sorted(unknown)[0]!r}; roles are {roles}")
    if minari.is_minari(logs):
        dataset = minari.opened(logs)
        found = minari.roles(dataset, given.get("context", ()), given.get("state", ()))
        place = str(logs)
        names = Columns.named_in(
            minari.header(dataset), place, **found | {k: v for k, v in given.items() if v}
        )
        chunks = map(_Chunk._make, minari.rows(dataset, names.all))
    elif isinstance(logs, str | Path):
        file = existing_file(logs)
        if file.suffix == ".parquet":
            header = _parquet_header(file)
            names = Columns.named_in(header, str(file), **given)
            chunks = _parquet_chunks(file, names, batch_rows)
        else:
            header = _csv_header(file)
            names = Columns.named_in(header, str(file), **given)
            chunks = _csv_chunks(file, names, header, batch_rows)
        place = str(file)
    elif hasattr(logs, "keys") and hasattr(logs, "__getitem__"):
        names = Columns.named_in([str(name) for name in logs.keys()], **given)  # noqa: SIM118
        chunks = _array_chunks(logs, names)
        place = "the log"
    else:
        raise TypeError(
            f"logs must be a .csv or .parquet file or a mapping of columns to arrays, got {type(logs).__name__}"
        )
    return names, _blocks(chunks, names, place, block_rows, progress)


def _blocks(
    chunks: Iterator[_Chunk],
    columns: Columns,
    place: str,
    block_rows: int,
    progress: Callable[[int], None] | None,
) -> Iterator[Block]:
    """Chunks of any size as blocks of one size; the last row of each waits until the one after it is known."""
    waiting: list[tuple[NDArray[np.int64], NDArray[np.bool_], Floats]] = []
    held = read = 0
    last: _Chunk | None = None
    for chunk in chunks:
        count = len(chunk.numbers)
        if not count:
            continue
        follows = np.empty(count, dtype=np.bool_)
        rounds = chunk.numbers[:, 0]
        follows[1:] = np.asarray(chunk.episode[1:] == chunk.episode[:-1]) & (rounds[1:] == rounds[:-1] + 1.0)
        follows[0] = last is not None and bool(
            last.episode[0] == chunk.episode[0] and rounds[0] == last.numbers[0, 0] + 1.0
        )
        last = _Chunk(chunk.episode[-1:], chunk.numbers[-1:])
        waiting.append((read + np.arange(count), follows, chunk.numbers))
        read += count
        held += count
        if progress is not None:
            progress(read)
        while held > block_rows:
            block, rest = _cut(waiting, block_rows)
            yield _block(block, rest, columns)
            waiting, held = [rest], len(rest[0])
    if not read:
        raise ValueError(f"{place} holds no data rows")
    block = _cut(waiting, held)[0]
    yield _block(block, None, columns)


def _cut(waiting: list[Any], rows: int) -> tuple[Any, Any]:
    joined = tuple(np.concatenate([part[k] for part in waiting]) for k in range(3))
    return tuple(each[:rows] for each in joined), tuple(each[rows:] for each in joined)


def _block(rows: Any, after: Any, columns: Columns) -> Block:
    number, follows, values = rows
    sizes = [1, len(columns.state), len(columns.context), len(columns.action), len(columns.prior), 1]
    _, state, context, action, prior, cost, next_state = np.split(values, np.cumsum(sizes), axis=1)
    if columns.next_state:
        return Block(number, follows, state, context, action, prior, cost[:, 0], next_state)
    next_state = np.full_like(state, np.nan)
    next_state[:-1] = np.where(follows[1:, None], state[1:], np.nan)
    if after is not None and after[1][0]:
        next_state[-1] = after[2][0, 1 : 1 + len(columns.state)]
    known = np.isfinite(next_state[:, 0])
    # A left-out row is the last of its episode, so that no row follows it.
    kept = (number, follows, state, context, action, prior, cost[:, 0], next_state)
    return Block(*(each[known] for each in kept))


def _array_chunks(logs: Any, columns: Columns) -> Iterator[_Chunk]:
    arrays = {name: np.asarray(logs[name]) for name in columns.all}
    length = arrays[columns.episode].shape[:1]
    for name, array in arrays.items():
        if array.ndim != 1 or array.shape != length:
            raise ValueError(
                f"column {name!r} must have shape {length}, as {columns.episode!r} has, got {array.shape}"
            )
    numbers = np.empty((*length, len(columns.all) - 1))
    for k, name in enumerate(columns.all[1:]):
        try:
            numbers[:, k] = arrays[name]
        except (TypeError, ValueError):
            raise ValueError(f"column {name!r} must hold numbers, got {arrays[name].dtype}") from None
        bad = np.flatnonzero(~np.isfinite(numbers[:, k]))
        if bad.size:
            raise ValueError(
                f"column {name!r} must be finite; in row {bad[0]} it is {numbers[bad[0], k]}"
                " (rows count from 0); leave out what was not measured"
            )
    yield _Chunk(arrays[columns.episode], numbers)


def _csv_header(file: Path) -> list[str]:
    try:
        with open_text(file) as stream:
            line = stream.readline(1 << 20).decode("utf-8-sig")
    except (UnicodeDecodeError, EOFError, OSError) as error:
        raise ValueError(f"{file} is not a readable CSV file: {error}") from None
    if "\x00" in line:
        raise ValueError(
            f"{file} is not a CSV file: its first line holds zero bytes (Parquet ends in .parquet)"
        )
    return [name.strip() for name in next(csv.reader([line]), [])]


def _csv_chunks(file: Path, columns: Columns, header: list[str], batch_rows: int) -> Iterator[_Chunk]:
    polars = load_polars("reading log files")

    def refuse(reason: str) -> ValueError:
        return _malformed(file, columns, header, reason)

    # Columns are called by their place, since the names in the file may be written with blanks or quotes, or twice.
    chosen = {header.index(name): name for name in columns.all}
    types = {str(k): _type(polars, columns, chosen.get(k, columns.episode)) for k in range(len(header))}
    rows = polars.scan_csv(file, has_header=False, skip_rows=1, schema=types, raise_if_empty=False)
    rows = rows.select(polars.col(str(k)).alias(name) for k, name in chosen.items())
    for frame in _batches(polars, rows, batch_rows, file, refuse):
        yield _checked(frame, columns, refuse)


def _parquet_header(file: Path) -> list[str]:
    polars = load_polars("reading log files")
    try:
        return list(polars.read_parquet_schema(file))
    except (polars.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{file} is not a readable Parquet file: {str(error).splitlines()[0]}") from None


def _parquet_chunks(file: Path, columns: Columns, batch_rows: int) -> Iterator[_Chunk]:
    polars = load_polars("reading log files")
    types = {name: _type(polars, columns, name) for name in columns.all}
    rows = polars.scan_parquet(file).select(columns.all).cast(types)
    start = 0
    for frame in _batches(polars, rows, batch_rows, file, lambda reason: ValueError(f"{file}: {reason}")):

        def refuse(reason: str, frame: Any = frame, start: int = start) -> ValueError:
            for name in columns.all:
                bad = np.flatnonzero(~_sound(frame[name]))
                if bad.size:
                    return ValueError(
                        f"{file}, row {start + bad[0] + 1}: {name} is {frame[name][int(bad[0])]}, not a number"
                    )
            return ValueError(f"{file}: {reason}")

        yield _checked(frame, columns, refuse)
        start += frame.height


def _type(polars: Any, columns: Columns, name: str) -> Any:
    return polars.String if name == columns.episode else polars.Float64


def _batches(
    polars: Any, rows: Any, batch_rows: int, file: Path, refuse: Callable[[str], ValueError]
) -> Iterator[Any]:
    """The rows of a lazy frame in their order, `batch_rows` at a time."""
    try:
        yield from rows.collect_batches(chunk_size=batch_rows, maintain_order=True)
    except polars.exceptions.PolarsError as error:
        raise refuse(str(error).splitlines()[0]) from None
    except OSError as error:
        raise ValueError(f"{file} is not a complete file: {error}") from None


def _sound(series: Any) -> NDArray[np.bool_]:
    known = series.is_not_null()
    if series.dtype.is_float():
        known &= series.is_finite().fill_null(False)
    return np.asarray(known.to_numpy(), dtype=np.bool_)


def _checked(frame: Any, columns: Columns, refuse: Callable[[str], ValueError]) -> _Chunk:
    """The rows of a frame, if every value is there and finite."""
    numbers = np.empty((frame.height, len(columns.all) - 1))
    for k, name in enumerate(columns.all[1:]):
        numbers[:, k] = frame[name].to_numpy()
    if frame[columns.episode].null_count() or not np.isfinite(numbers).all():
        raise refuse("a value is missing or not finite")
    return _Chunk(frame[columns.episode].rechunk(), numbers)


def _malformed(file: Path, columns: Columns, header: list[str], reason: str) -> ValueError:
    """The error that names the first malformed row of a CSV file; the header is row 1."""
    places = [(header.index(name), name) for name in columns.all]
    with open_text(file) as stream:
        lines = (line.decode("utf-8", "replace") for line in stream)
        for row, cells in enumerate(csv.reader(lines), start=1):
            if row == 1:
                continue
            if not cells:
                return ValueError(f"{file}, row {row}: the line is blank; a log has a row for each round")
            if len(cells) != len(header):
                return ValueError(f"{file}, row {row}: expected {len(header)} columns, got {len(cells)}")
            for place, name in places:
                if name == columns.episode and cells[place]:
                    continue
                if not _is_number(cells[place]):
                    return ValueError(f"{file}, row {row}: {name} is {cells[place]!r}, not a finite number")
    return ValueError(f"{file}: {reason}")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
