"""A journal, read: whether it is whole, whether every decision comes out again, and all of it as a table.

Both kinds are read, that of a service and that of a single guard. Nothing is changed, and the writer may be at work.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tether.core.certificate import Certificate
from tether.core.guard import Guard
from tether.core.journal import diary, text
from tether.core.journal.journal import Differs, segments
from tether.core.journal.segment import Segment
from tether.core.monitor import Monitor
from tether.serve import records
from tether.serve.book import Book
from tether.serve.plant import Plant, ServedGuard


class Summary(NamedTuple):
    """What is in a journal."""

    segments: int
    first: int
    """The number of the first record that is kept."""
    last: int
    """The number of the last record."""
    size: int
    """Bytes of the segments."""
    torn: int
    """Bytes behind the last record that were not written to their end; the next start cuts them off."""
    kind: str
    """"service" or "guard"."""


def verify(path: str | Path) -> Summary:
    """Read every byte of a journal.

    Raises:
        JournalDamaged: It is not what was written; the message says where.
        FileNotFoundError: There is none.
    """
    found = list(segments(path))
    kind = "guard" if _is_guard(found[0]) else "service"
    size = sum(each.end for each in found)
    return Summary(len(found), found[0].first + 1, found[-1].last, size, found[-1].torn, kind)


def replay(path: str | Path, plants: Mapping[str, Plant] | None = None) -> int:
    """Do everything again that the journal has, and compare every answer bit for bit; returns how many there were.

    Each segment must also lead to the state with which the next one begins.

    Args:
        path: The folder.
        plants: Of a service, where they cannot be made from the journal: by name, with their monitors and
            certificates. Of a single guard, one plant.

    Raises:
        Differs: An answer or a state is another one now; the message says which and how.
        JournalDamaged: The journal is not what was written.
        ValueError: A plant cannot be made from the journal; give it.
    """
    done = 0
    for segment, following in itertools.pairwise([*segments(path), None]):
        assert segment is not None
        state = (_replay_guard if _is_guard(segment) else _replay_service)(segment, plants)
        done += len(segment.records)
        if following is not None and state != following.snapshot:
            raise Differs(
                f"after record {segment.last} the state is not the one with which {following.name} begins: "
                f"{_difference(state, following.snapshot)}"
            )
    return done


def _replay_service(segment: Segment, plants: Mapping[str, Plant] | None) -> str:
    """The state after a segment."""
    saved = text.loads(segment.snapshot)["plants"]
    book = Book({name: _plant(name, each, plants) for name, each in saved.items()})
    book.restore(segment.snapshot)
    records.replay(book, segment.records, segment.first + 1)
    return book.snapshot()


def _plant(name: str, saved: dict[str, Any], given: Mapping[str, Plant] | None) -> Plant:
    if given is not None and name in given:
        return given[name]
    try:
        return Plant.from_dict(saved["plant"], saved["limits"])
    except ValueError as error:
        raise ValueError(
            f"plant {name!r} cannot be made from the journal: {error}; give it with --plants"
        ) from error


def _replay_guard(segment: Segment, plants: Mapping[str, Plant] | None) -> str:
    """The state after a segment."""
    certificate: Certificate | None = None
    monitor: Monitor | None = None
    for plant in (plants or {}).values():
        certificate, monitor = plant.certificate, plant.monitor
    saved = text.loads(segment.snapshot)["guard"]
    guard: Guard = ServedGuard.from_state_dict(saved, _no_prior, certificate, monitor=monitor)
    diary.replay(guard, segment.records, segment.first + 1)
    return diary.snapshot(guard)


def _no_prior(_: Any) -> Any:
    raise AssertionError("the prior is not asked again")


def _is_guard(segment: Segment) -> bool:
    return "guard" in text.loads(segment.snapshot)


def _difference(first: str, second: str) -> str:
    """Where two texts differ."""
    place = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
    around = slice(max(place - 60, 0), place + 60)
    return f"... {first[around]} ... instead of ... {second[around]} ..."


def rows(path: str | Path) -> Iterator[dict[str, Any]]:
    """Every record as a row: numbers as numbers, what may have any shape as JSON."""
    for segment in segments(path):
        row: Callable[[str], dict[str, Any]] = _guard_row if _is_guard(segment) else _service_row
        for number, payload in enumerate(segment.records, segment.first + 1):
            yield dict.fromkeys(COLUMNS) | {"number": number} | row(payload)


COLUMNS: dict[str, str] = {
    "number": "int",
    "time": "float",
    "kind": "text",
    "plant": "text",
    "episode": "text",
    "round": "int",
    "observation": "text",
    "proposal": "text",
    "prior_action": "numbers",
    "action": "numbers",
    "applied": "numbers",
    "cost": "float",
    "reward": "float",
    "reason": "text",
    "intervened": "flag",
    "deviation": "float",
    "radius": "float",
    "margin": "float",
    "backup": "text",
    "binding": "text",
    "account": "int",
    "breach": "text",
    "who": "text",
    "why": "text",
}
"""The columns of the table, and what is in them; "numbers" is a list, of one number where an action is one."""


def _service_row(payload: str) -> dict[str, Any]:
    record = records.read(payload)
    row: dict[str, Any] = {
        "time": record.time,
        "kind": record.kind,
        "plant": record.plant,
        "episode": record.episode,
        "round": record.round,
    }
    if record.kind == "act":
        names = ("action", "prior_action", "reason", "intervened", "deviation", "radius", "margin", "backup")
        row |= dict(zip((*names, "policy", "account", "breach"), record.reply[3:], strict=True))
        row |= {"observation": text.dumps(record.sent[0]), "proposal": text.dumps(record.sent[1])}
        del row["policy"]
    elif record.kind in ("observe", "report"):
        sent = dict(zip(("cost", "revealed", "applied", "reward"), record.sent, strict=False))
        row |= {name: sent.get(name) for name in ("cost", "applied", "reward")}
        row |= {"account": record.reply[3], "breach": record.reply[7]}
    elif record.kind != "reset":
        row |= dict(zip(("who", "why"), record.sent, strict=True))
    return _typed(row)


def _guard_row(payload: str) -> dict[str, Any]:
    kind, time, reply, _, (given, named) = text.loads(payload)
    row: dict[str, Any] = {"kind": kind, "time": time}
    if kind == "act":
        row |= {"observation": text.dumps(given[0]), "proposal": text.dumps(given[1])}
        if isinstance(reply, list):
            names = (
                "round",
                "action",
                "prior_action",
                "deviation",
                "radius",
                "margin",
                "intervened",
                "reason",
            )
            row |= dict(zip((*names, "backup", "binding"), reply, strict=True))
    elif kind == "observe":
        sent = dict(zip(("cost", "revealed"), given, strict=False)) | named
        row |= {name: sent.get(name) for name in ("cost", "applied", "reward")} | {
            "why": sent.get("override")
        }
    elif kind == "report":
        row |= dict(zip(("round", "cost"), given, strict=False)) | named
    return _typed(row)


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    """Plain numbers of the types that the columns have; what is none is left out."""
    for name, value in row.items():
        kind = COLUMNS[name]
        plain = value.tolist() if hasattr(value, "tolist") else value
        if kind == "numbers" and plain is not None:
            row[name] = [float(each) for each in (plain if isinstance(plain, list) else [plain])]
        elif kind == "float":
            row[name] = float(plain) if isinstance(plain, float | int) else None
        else:
            row[name] = plain
    return row


def export(path: str | Path, target: str | Path) -> int:
    """Write a journal as a Parquet file, a row a record; returns how many."""
    import polars as pl

    types = {
        "int": pl.Int64,
        "float": pl.Float64,
        "text": pl.String,
        "flag": pl.Boolean,
        "numbers": pl.List(pl.Float64),
    }
    frame = pl.DataFrame(list(rows(path)), schema={name: types[kind] for name, kind in COLUMNS.items()})
    frame.write_parquet(target)
    return len(frame)
