r"""One segment of a journal, as bytes: a header, a snapshot, and the records that came after it.

    header      b"tether journal 1\n"
    frame       mark (4 bytes)  length (4)  number (8)  known (8)  checksum (4)  payload (length bytes, UTF-8)

Numbers are little-endian. The first frame is the snapshot: the state after the record of its number. Each of the next
is a record, numbered on from there; when it was written, the records up to `known` were known to be on the disk. The
checksum is the CRC-32 of everything before it and the payload, so that a frame that was shifted, repeated or left out
is noticed as well as one that was changed.

**Torn or damaged.** A process that dies leaves bytes at the end that are no frame. A loss of power may leave holes,
since a disk writes in an order of its own: zeros, and good frames behind them. Both are *torn*: what is bad is cut off
with all that follows. But if a good frame behind a bad one knows that the bad one was on the disk, or if the bad one is
no hole, something has changed what was written. That is *damage*, and nothing after it can be believed.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

HEADER = b"tether journal 1\n"
_SNAPSHOT, _RECORD = b"TJS\n", b"TJR\n"
_FRAME = struct.Struct("<4sIQQ")
_CHECKSUM = struct.Struct("<I")
_HOLE = bytes(16)
"""Not in a record: text has no zeros, and its numbers fewer."""
OVERHEAD = _FRAME.size + _CHECKSUM.size


class JournalDamaged(ValueError):
    """What was written is not what is there; the message says where, and nothing is gone on with."""


class Segment(NamedTuple):
    """What a segment holds."""

    name: str
    snapshot: str
    """The state with which it begins."""
    first: int
    """The number of the last record before it."""
    records: list[str]
    """What happened then, numbered from `first` + 1."""
    end: int
    """How many bytes of it are good."""
    torn: int
    """How many bytes behind these are the beginning of something that was not written to its end."""

    @property
    def last(self) -> int:
        """The number of its last record."""
        return self.first + len(self.records)


def frame(number: int, payload: str, known: int, *, snapshot: bool = False) -> bytes:
    """A record, or a snapshot, as bytes; those up to `known` are on the disk."""
    data = payload.encode()
    head = _FRAME.pack(_SNAPSHOT if snapshot else _RECORD, len(data), number, known)
    return b"".join((head, _CHECKSUM.pack(_checksum(head, data)), data))


def _checksum(head: bytes, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(head))


def parse(name: str, data: bytes) -> Segment:
    """What a segment of this name holds.

    Raises:
        JournalDamaged: A frame is bad, and it is not the torn end.
    """
    if not data.startswith(HEADER):
        raise JournalDamaged(
            f"{name} is no segment of a journal of this version: it begins with {data[: len(HEADER)]!r}, not {HEADER!r}"
        )
    place = len(HEADER)
    found = _frame_at(data, place, _SNAPSHOT)
    if found is None:
        raise JournalDamaged(f"{name} is damaged at byte {place}: the snapshot is not what was written")
    first, snapshot, place = found.number, found.payload, found.end
    records: list[str] = []
    while place < len(data):
        expected = first + len(records) + 1
        found = _frame_at(data, place, _RECORD)
        if found is None or found.number != expected:
            _require_torn(name, data, place, expected)
            break
        records.append(found.payload)
        place = found.end
    return Segment(name, snapshot, first, records, place, len(data) - place)


class _Frame(NamedTuple):
    number: int
    known: int
    payload: str
    end: int


def _frame_at(data: bytes, place: int, mark: bytes) -> _Frame | None:
    """The frame that begins here; None if there is no good one."""
    begin = place + OVERHEAD
    if begin > len(data) or not data.startswith(mark, place):
        return None
    head = data[place : place + _FRAME.size]
    _, length, number, known = _FRAME.unpack(head)
    payload = data[begin : begin + length]
    (checksum,) = _CHECKSUM.unpack_from(data, place + _FRAME.size)
    if _checksum(head, payload) != checksum:
        return None
    return _Frame(number, known, payload.decode(), begin + length)


def _require_torn(name: str, data: bytes, place: int, expected: int) -> None:
    """A good frame may follow a bad one only if the bad one is a hole, and was not known to be on the disk."""
    behind = data.find(_RECORD, place)
    while behind >= 0:
        found = _frame_at(data, behind, _RECORD)
        if found is not None and (found.known >= expected or _HOLE not in data[place:behind]):
            raise JournalDamaged(
                f"{name} is damaged at byte {place}: record {expected} is not what was written (record {found.number} "
                f"follows at byte {behind}). Nothing was changed. Restore the folder from a copy, or move it away and "
                "let the prior play the open episodes to their end"
            )
        behind = data.find(_RECORD, behind + 1)
