"""The journal: what was durable is there again; a disk that fails leaves it usable or closed; one process has it."""

from __future__ import annotations

import errno
import inspect
import random
import signal
import subprocess
import sys
import threading

import pytest

from tether.core.journal.journal import Journal, JournalFailed, JournalInUse, segments
from tether.core.journal.segment import JournalDamaged, parse
from tether.serve.fake_disk import Crash, FakeDisk, FakeFile


@pytest.fixture(autouse=True)
def watchdog():
    """A journal that waits for what never comes must fail, not hang."""

    def bark(*_):
        raise TimeoutError("the journal waits for ever")

    before = signal.signal(signal.SIGALRM, bark)
    signal.setitimer(signal.ITIMER_REAL, 20.0)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


def opened(disk, durability="power", **options):
    return Journal("j", durability, disk=disk, **options)


def begun(disk, records=3, durability="power", **options):
    journal = opened(disk, durability, **options)
    journal.begin("start")
    for i in range(records):
        journal.wait(journal.append(f"record {i}"))
    return journal


@pytest.fixture
def disk():
    return FakeDisk(random.Random(0))


@pytest.mark.parametrize("durability", ["process", "group", "power"])
def test_what_was_written_to_a_real_disk_is_there_again(tmp_path, durability):
    place = tmp_path / "a" / "journal"
    journal = Journal(place, durability, interval=0.0)
    assert journal.recovered == (None, [], 0, None)
    journal.begin("start")
    for i in range(3):
        number = journal.append(f"record {i}")
        journal.wait(number)
        assert number == journal.last == i + 1
        assert journal.lag == 0
    journal.close()
    again = Journal(place, durability)
    assert again.recovered == ("start", ["record 0", "record 1", "record 2"], 3, None)
    again.begin("after three")
    assert again.append("record 3") == 4
    again.close()
    with Journal(place) as last:
        assert last.recovered[:3] == ("after three", ["record 3"], 4)


def test_one_journal_has_one_writer(tmp_path):
    first = Journal(tmp_path / "journal")
    with pytest.raises(JournalInUse, match="one journal has one writer"):
        Journal(tmp_path / "journal")
    first.close()
    Journal(tmp_path / "journal").close()


@pytest.mark.slow
def test_another_process_cannot_write_it_and_one_that_died_lets_go(tmp_path):
    code = (
        f"from tether.core.journal.journal import Journal; j = Journal({str(tmp_path)!r}); "
        "print(1, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline()
        with pytest.raises(JournalInUse):
            Journal(tmp_path)
        process.kill()
        process.wait()
    Journal(tmp_path).close()


def test_a_file_in_its_place_is_named(tmp_path):
    (tmp_path / "journal").write_text("")
    with pytest.raises(NotADirectoryError, match="a journal is a folder"):
        Journal(tmp_path / "journal")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"durability": "strong"}, "durability"),
        ({"segment_bytes": 0}, "segment_bytes"),
        ({"keep": 0}, "keep"),
        ({"interval": -1.0}, "interval"),
    ],
)
def test_what_it_cannot_be_is_refused(tmp_path, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        Journal(tmp_path / "journal", **options)
    assert not (tmp_path / "journal").exists()


def test_nothing_is_appended_before_it_has_begun(disk):
    with pytest.raises(RuntimeError, match="call begin"):
        opened(disk).append("record")


def test_a_torn_end_is_cut_off_and_reported(tmp_path):
    journal = Journal(tmp_path)
    journal.begin("start")
    journal.append("whole")
    journal.close()
    file = tmp_path / "00000001.journal"
    whole = file.read_bytes()
    file.write_bytes(whole + b"TJR\n\x09")
    again = Journal(tmp_path)
    assert again.recovered.records == ["whole"]
    assert again.recovered.cut.startswith("5 bytes behind record 1 in 00000001.journal were not written")
    assert file.read_bytes() == whole
    again.close()


def test_a_damaged_journal_is_not_opened_and_not_changed(tmp_path):
    journal = Journal(tmp_path)
    journal.begin("start")
    for name in ("one", "two"):
        journal.append(name)
    journal.close()
    file = tmp_path / "00000001.journal"
    file.write_bytes(file.read_bytes().replace(b"one", b"One"))
    before = file.read_bytes()
    for _ in range(2):  # the folder is let go of
        with pytest.raises(JournalDamaged, match="record 1 is not what was written"):
            Journal(tmp_path)
    assert file.read_bytes() == before


def test_a_stranger_in_the_folder_is_named(tmp_path):
    (tmp_path / "backup.journal").write_bytes(b"")
    with pytest.raises(JournalDamaged, match=r"backup\.journal"):
        Journal(tmp_path)


def test_segments_follow_each_other_and_the_oldest_are_deleted(tmp_path):
    journal = Journal(tmp_path, segment_bytes=100, keep=3)
    journal.begin("0")
    for i in range(1, 12):
        journal.append("x" * 30)
        if journal.due:
            journal.begin(str(i))
    journal.close()
    found = list(segments(tmp_path))
    assert [each.name for each in found] == ["00000004.journal", "00000005.journal", "00000006.journal"]
    assert [(each.first, each.last, each.snapshot) for each in found] == [
        (6, 8, "6"),
        (8, 10, "8"),
        (10, 11, "10"),
    ]
    assert {each.name for each in tmp_path.iterdir()} == {each.name for each in found} | {"lock"}


def test_a_segment_that_is_missing_or_cut_in_the_middle_is_damage(tmp_path):
    journal = Journal(tmp_path)
    for i in range(3):
        journal.begin(str(i))
        journal.append("record")
    journal.close()
    middle = tmp_path / "00000002.journal"
    whole = middle.read_bytes()
    middle.write_bytes(whole[:-1])
    with pytest.raises(
        JournalDamaged, match=r"00000002.journal is damaged at byte .*, and a segment follows"
    ):
        list(segments(tmp_path))
    middle.write_bytes(whole[: -len("record") - 28])
    with pytest.raises(JournalDamaged, match="a segment is missing or cut"):
        list(segments(tmp_path))
    middle.unlink()
    with pytest.raises(JournalDamaged, match="a segment is missing or cut"):
        list(segments(tmp_path))
    with pytest.raises(FileNotFoundError, match="is no journal"):
        list(segments(tmp_path / ".."))


# A disk that fails.


def test_a_full_disk_keeps_the_record_back_until_there_is_room(disk):
    journal = begun(disk, 2)
    for space in (0, 1, 20):
        disk.space = space
        with pytest.raises(JournalFailed, match="is not written"):
            journal.append(f"with {space}")
        with pytest.raises(JournalFailed):
            journal.flush()
    disk.space = None
    journal.wait(journal.append("after"))
    disk.lose_power()
    again = opened(disk)
    assert again.recovered.records == ["record 0", "record 1", "with 0", "with 1", "with 20", "after"]
    assert again.recovered.cut is None


def test_a_record_that_was_not_written_whole_is_not_found(disk):
    journal = begun(disk, 1)
    disk.space = 10
    with pytest.raises(JournalFailed):
        journal.append("lost")
    disk.die()
    assert opened(disk).recovered == ("start", ["record 0"], 1, None)


def failing(file, name):
    def fail(*_):
        raise OSError(errno.EIO, "broken")

    setattr(file, name, fail)


def test_a_record_that_cannot_be_cut_closes_the_journal(disk):
    journal = begun(disk, 1)
    disk.space = 10
    failing(journal._file, "truncate")
    with pytest.raises(JournalFailed, match="cannot be cut"):
        journal.append("half")
    disk.space = None
    for _ in range(2):
        with pytest.raises(JournalFailed, match="open the journal j again"):
            journal.append("never")
    assert "cannot be cut" in journal.failure
    disk.die()
    assert opened(disk).recovered.records == ["record 0"]


def test_a_disk_that_does_not_say_that_it_keeps_a_record_closes_the_journal(disk):
    journal = begun(disk, 1)
    failing(journal._file, "sync")
    number = journal.append("unsure")
    with pytest.raises(JournalFailed, match="does not say that it keeps"):
        journal.wait(number)
    with pytest.raises(JournalFailed, match="open the journal"):
        journal.append("never")
    journal.close()


def test_a_group_that_cannot_be_made_durable_is_told(tmp_path):
    journal = Journal(tmp_path, "group", interval=0.0)
    journal.begin("start")
    failing(journal._file, "sync")
    number = journal.append("unsure")
    with pytest.raises(JournalFailed, match="does not say that it keeps"):
        journal.wait(number)
    journal.close()


def test_a_segment_that_cannot_be_begun_leaves_the_old_one(disk):
    journal = begun(disk, 3, segment_bytes=80)
    assert journal.due
    disk.space = 5
    with pytest.raises(JournalFailed, match="could not be begun"):
        journal.begin("new")
    assert not journal.due
    disk.space = None
    journal.wait(journal.append("goes on"))
    assert journal.due
    disk.lose_power()
    assert opened(disk).recovered.records == ["record 0", "record 1", "record 2", "goes on"]


@pytest.mark.parametrize("operation", ["rename", "sync_folder"])
def test_a_segment_that_may_be_in_its_place_closes_the_journal(disk, operation):
    """A record added to the old segment would be lost if the new one is found."""
    journal = begun(disk, 1)
    failing(disk, operation)
    with pytest.raises(JournalFailed, match="could not be put in its place"):
        journal.begin("new")
    with pytest.raises(JournalFailed, match="open the journal"):
        journal.append("never")


@pytest.mark.parametrize("crash", range(1, 26))
def test_a_crash_at_any_operation_loses_nothing_that_was_durable(crash):
    """Begin, three records, a new segment, three more: whichever operation is the last, and with or without power."""
    for seed in range(6):
        disk = FakeDisk(random.Random(seed))
        durable, sent = 0, 0
        disk.crash_in = crash
        try:
            journal = opened(disk)
            journal.begin("start")
            for i in range(6):
                if i == 3:
                    journal.begin("middle")
                sent = i + 1
                journal.wait(journal.append(f"record {i}"))
                durable = i + 1
        except Crash:
            pass
        disk.lose_power() if seed % 2 else disk.die()
        found = opened(disk).recovered
        assert durable <= found.last <= sent
        first = found.last - len(found.records)
        assert found.records == [f"record {i}" for i in range(first, found.last)]
        assert found.snapshot == {0: "start", 3: "middle"}.get(first) or found.last == 0


def test_those_who_wait_for_a_group_are_woken_together(tmp_path):
    journal = Journal(tmp_path, "group", interval=0.02)
    journal.begin("start")
    syncs = []
    real = journal._file.sync
    journal._file.sync = lambda: (syncs.append(1), real())

    def one(name):
        for i in range(3):
            journal.wait(journal.append(f"{name} {i}"))

    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10.0)
        assert not each.is_alive()
    assert journal.lag == 0
    assert len(syncs) < 12  # of 24 records
    journal.close()
    with Journal(tmp_path) as again:
        assert again.recovered.last == 24


def test_who_waits_for_a_group_when_it_is_closed_is_not_told_that_all_is_well(tmp_path):
    journal = Journal(tmp_path, "group", interval=0.0)
    journal.begin("start")
    journal.append("record")
    journal.close()
    with pytest.raises(JournalFailed, match="is closed"):
        journal.wait(5)


# What it leaves behind, and what it does not do twice.


def test_nothing_is_written_after_it_was_closed(disk):
    journal = begun(disk, 1)
    journal.close()
    for late in (journal.flush, journal.sync, lambda: journal.begin("late")):
        with pytest.raises(JournalFailed, match="the journal j is closed"):
            late()
    assert opened(disk).recovered.records == ["record 0"]


def test_closing_it_writes_what_was_pending_and_makes_it_durable(disk):
    journal = begun(disk, 1, "process")
    disk.space = 5
    with pytest.raises(JournalFailed):
        journal.append("late")
    assert journal.lag == 1
    disk.space = None
    journal.close()
    disk.lose_power()
    assert opened(disk).recovered.records == ["record 0", "late"]


def test_closing_it_twice_does_not_take_the_folder_from_another(disk):
    journal = begun(disk, 1)
    journal.close()
    other = opened(disk)
    journal.close()
    with pytest.raises(JournalInUse):
        opened(disk)
    other.close()


def test_the_disk_is_asked_no_more_often_than_needed(disk):
    journal = begun(disk, 0)
    before = disk.syncs
    first, second = journal.append("one"), journal.append("two")
    assert journal.lag == 2
    journal.wait(second)
    journal.wait(first)
    journal.sync()
    assert (disk.syncs - before, journal.lag) == (1, 0)
    relaxed = begun(FakeDisk(random.Random(0)), 0, "process")
    before = relaxed._disk.syncs
    relaxed.wait(relaxed.append("one"))
    assert (relaxed._disk.syncs, relaxed.lag) == (before, 0)


def test_files_are_closed_and_drafts_removed(disk):
    journal = begun(disk, 1)
    closed = []
    for name in ("first", "second"):
        journal._file.close = lambda name=name: closed.append(name)
        if name == "first":
            journal.begin("next")
    assert (closed, journal.segments) == (["first"], 2)
    real = disk.create

    def watched(path):
        file = real(path)
        file.close = lambda: closed.append("draft")
        return file

    disk.create, disk.space = watched, 5
    with pytest.raises(JournalFailed):
        journal.begin("full")
    assert closed == ["first", "draft"]
    assert disk.names("j") == ["00000001.journal", "00000002.journal"]
    journal.close()
    assert closed == ["first", "draft", "second"]


def test_it_goes_on_behind_the_newest_segment(disk):
    journal = begun(disk, 1, keep=None)
    journal.begin("two")
    journal.close()
    again = opened(disk)
    assert again.recovered.snapshot == "two"
    again.begin("three")
    assert disk.names("j")[-1] == "00000003.journal"


def test_what_is_left_of_an_old_segment_is_durable_and_whole(disk):
    journal = begun(disk, 1, "process")
    disk.space = 5
    with pytest.raises(JournalFailed):
        journal.append("kept back")
    disk.space = None
    journal.begin("two")
    old, new = (parse(name, disk._names[f"j/{name}"].durable) for name in disk.names("j"))
    assert (old.records, old.last, new.first) == (["record 0", "kept back"], 2, 2)


def test_what_is_left_of_a_torn_segment_is_durable_and_its_file_closed(disk, monkeypatch):
    begun(disk, 1)
    disk.die()
    node = disk._names["j/00000001.journal"]
    node.content += b"torn"
    node.durable = bytes(node.content)
    closed = []
    monkeypatch.setattr(FakeFile, "close", lambda file: closed.append(file))
    assert opened(disk).recovered.cut.startswith("4 bytes")
    assert node.durable == bytes(node.content)
    assert parse("a", node.durable).torn == 0
    assert len(closed) == 1


def test_its_sizes_are_these():
    parameters = inspect.signature(Journal).parameters
    assert parameters["segment_bytes"].default == 16_777_216
    assert (parameters["keep"].default, parameters["interval"].default) == (64, 0.002)


def test_every_segment_can_be_kept(disk):
    journal = begun(disk, 1, keep=None)
    for name in "abcd":
        journal.begin(name)
    assert len(disk.names("j")) == journal.segments == 5


def test_a_group_has_one_flusher_that_ends_with_it(tmp_path):
    journal = Journal(tmp_path, "group", interval=0.0)
    journal.begin("one")
    flusher = journal._flusher
    journal.begin("two")
    assert journal._flusher is flusher
    assert flusher.daemon
    journal.close()
    assert not flusher.is_alive()


def test_a_disk_that_takes_a_byte_at_a_time_will_do_and_one_that_takes_none_will_not(disk):
    journal = begun(disk, 0)
    real = journal._file.write
    journal._file.write = lambda data: real(data[:1])
    journal.wait(journal.append("slowly"))
    journal._file.write = lambda data: 0
    with pytest.raises(JournalFailed, match="the disk took nothing"):
        journal.append("never")
    disk.die()
    assert opened(disk).recovered.records == ["slowly"]


@pytest.mark.parametrize("name", ["1.journal", "abcdefgh.journal", "000000001.journal"])
def test_a_segment_is_called_by_eight_digits(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(JournalDamaged, match="is not called as a segment of a journal is"):
        Journal(tmp_path)


def test_the_last_segment_may_end_torn_and_none_may_be_missing(tmp_path):
    with Journal(tmp_path) as journal:
        for name in "abc":
            journal.begin(name)
        journal.append("record")
    last = tmp_path / "00000003.journal"
    last.write_bytes(last.read_bytes()[:-1])
    assert [each.torn > 0 for each in segments(tmp_path)] == [False, False, True]
    (tmp_path / "00000002.journal").unlink()
    with pytest.raises(JournalDamaged, match="a segment is missing"):
        list(segments(tmp_path))
