"""A segment: what was cut short is told from what was changed, byte by byte and bit by bit."""

from __future__ import annotations

import zlib

import pytest

from tether.core.journal import segment
from tether.core.journal.segment import HEADER, OVERHEAD, JournalDamaged, frame, parse

RECORDS = ["first", '["second",1.5]', "third, with more in it"]


def made(records=RECORDS, first=7, known=7, snapshot='{"state":1}'):
    frames = [frame(first + i, each, known) for i, each in enumerate(records, 1)]
    return HEADER + frame(first, snapshot, first, snapshot=True) + b"".join(frames)


def starts(records=RECORDS):
    """Where each frame of `made` begins, and where the last ends."""
    place = len(HEADER)
    found = [place]
    for each in ['{"state":1}', *records]:
        place += OVERHEAD + len(each)
        found.append(place)
    return found


def test_what_was_written_is_read():
    whole = parse("a", made())
    assert whole == ("a", '{"state":1}', 7, RECORDS, len(made()), 0)
    assert whole.last == 10
    assert parse("a", made([])).records == []


def test_the_bytes_of_a_frame_are_these():
    """A journal is read by later versions: the format is fixed."""
    assert HEADER == b"tether journal 1\n"
    head = b"TJR\n\x02\0\0\0\x02\x01\0\0\0\0\0\0\x05\0\0\0\0\0\0\0"
    assert frame(258, "ab", 5) == head + zlib.crc32(head + b"ab").to_bytes(4, "little") + b"ab"
    assert frame(1, "", 1, snapshot=True)[:4] == b"TJS\n"


def test_every_cut_leaves_the_records_before_it():
    data, places = made(), starts()
    for length in range(places[1], len(data)):
        cut = parse("a", data[:length])
        whole = sum(place <= length for place in places[2:])
        assert cut.records == RECORDS[:whole]
        assert cut.end == places[1 + whole]
        assert cut.torn == length - cut.end


def test_a_segment_without_its_whole_snapshot_is_damaged():
    data = made()
    for length in range(starts()[1]):
        with pytest.raises(JournalDamaged):
            parse("a", data[:length])


def test_every_changed_bit_is_found_unless_it_is_in_the_last_record_which_is_cut():
    data, last = made(), starts()[3]
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            if place >= last:
                found = parse("a", bytes(changed))
                assert (found.records, found.end) == (RECORDS[:2], last)
            else:
                with pytest.raises(JournalDamaged, match=r"a (is damaged at byte|is no segment)"):
                    parse("a", bytes(changed))


def test_a_page_that_was_never_written_is_torn_with_all_that_follows():
    records, places = [*RECORDS, "x" * 40, "last"], starts([*RECORDS, "x" * 40, "last"])
    data = bytearray(made(records))
    data[places[4] + 30 : places[4] + 60] = bytes(30)
    found = parse("a", bytes(data))
    assert (found.records, found.end, found.torn) == (RECORDS, places[4], len(data) - places[4])


@pytest.mark.parametrize("zeros", [15, 16])
def test_so_many_zeros_are_a_hole(zeros):
    records, places = ["x" * 40, "last"], starts(["x" * 40, "last"])
    data = bytearray(made(records))
    data[places[1] + 30 : places[1] + 30 + zeros] = bytes(zeros)
    if zeros == 16:
        assert parse("a", bytes(data)).records == []
    else:
        with pytest.raises(JournalDamaged):
            parse("a", bytes(data))


def test_a_snapshot_is_no_record_and_a_record_may_be_empty():
    assert parse("a", made(["", "b", ""])).records == ["", "b", ""]
    mixed = made(["a"]) + frame(9, "b", 7, snapshot=True)
    assert parse("a", mixed).records == ["a"]


def test_a_page_that_was_known_to_be_on_the_disk_and_is_gone_is_damage():
    for known in (9, 10, 11):
        records = [*RECORDS, "x" * 40]
        data = bytearray(made(records, known=known) + frame(12, "last", known))
        place = starts(records)[4]
        data[place + 30 : place + 60] = bytes(30)
        if known < 11:
            assert parse("a", bytes(data)).records == RECORDS
        else:
            with pytest.raises(JournalDamaged, match=r"record 11 is not what was written .record 12 follows"):
                parse("a", bytes(data))


def test_zeros_behind_the_end_are_torn():
    found = parse("a", made() + bytes(100))
    assert (found.records, found.torn) == (RECORDS, 100)


@pytest.mark.parametrize("order", [(0, 2), (0, 0, 1), (1, 0, 2), (0, 1, 1, 2)])
def test_a_frame_that_is_left_out_repeated_or_moved_is_damage(order):
    places, data = starts(), made()
    frames = [data[places[i] : places[i + 1]] for i in range(1, 4)]
    with pytest.raises(JournalDamaged):
        parse("a", data[: places[1]] + b"".join(frames[i] for i in order))


def test_another_file_is_no_segment():
    for data in (b"", b"PK\x03\x04", b"tether journal 2\n" + made()[len(HEADER) :]):
        with pytest.raises(JournalDamaged, match="is no segment of a journal of this version"):
            parse("a", data)


def test_the_checksum_is_what_finds_it(monkeypatch):
    monkeypatch.setattr(segment, "_checksum", lambda head, data: 0)
    changed = made().replace(b"second", b"secxnd")
    assert parse("a", changed).records[1] == '["secxnd",1.5]'
