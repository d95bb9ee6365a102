"""The writer of a journal, and how it is opened again.

A journal is a folder of segments (`segment.py`), 00000001.journal and so on; each begins with a snapshot, so that only
the newest is needed to go on. A new one is written beside its place, made durable and then moved into it: a segment is
there with its whole snapshot or not at all.

**Failing.** A record that could not be written whole (a full disk) is taken back from the file and kept; it is written
before anything else as soon as that works, and until then `JournalFailed` is raised. Where the disk could not say that
it keeps what it took, or the file cannot be cut, the journal stays closed until it is opened again: what it then finds
is written once more, into a new segment.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from tether.core import validate
from tether.core.journal.disk import Disk, File, RealDisk
from tether.core.journal.segment import HEADER, JournalDamaged, Segment, frame, parse

Durability = Literal["process", "group", "power"]
_SUFFIX, _DRAFT, _LOCK = ".journal", ".draft", "lock"


class JournalFailed(OSError):
    """A record could not be made durable; nothing that depends on it may be answered."""


class JournalInUse(OSError):
    """Another process writes this journal."""


class Differs(ValueError):
    """What a journal says was decided is not what comes of the same requests now."""


class Recovered(NamedTuple):
    """What was found when a journal was opened."""

    snapshot: str | None
    """The state with which the newest segment begins; None if there is no segment."""
    records: list[str]
    """What happened since."""
    last: int
    """The number of the last record."""
    cut: str | None
    """What was cut off as torn; None if the journal ended with a whole record."""


class Journal:
    """An append-only journal in a folder, which this process takes until `close`.

    Open it, bring back what `recovered` says, call `begin` with a snapshot of that, and then `append` and `wait`.

    Args:
        path: The folder; made if it is not there.
        durability: What `wait` waits for. `"process"`: the operating system has the record, so that it survives the
            death of the process. `"group"`: the disk has it, in company: records of a few milliseconds are made durable
            together. `"power"`: the disk has it, at once.
        segment_bytes: When a segment is so long, `due` says so.
        keep: How many segments are kept; None for all.
        interval: For how long records are gathered in mode `"group"`, seconds.
        disk: Where files are.

    Attributes:
        recovered: What was found.
        last: The number of the last record.
    """

    def __init__(
        self,
        path: str | Path,
        durability: Durability = "process",
        *,
        segment_bytes: int = 16 * 2**20,
        keep: int | None = 64,
        interval: float = 0.002,
        disk: Disk | None = None,
    ) -> None:
        validate.choice("durability", durability, get_args(Durability))
        self.path, self.durability = str(path), durability
        self._segment_bytes = validate.count("segment_bytes", segment_bytes)
        self._keep = None if keep is None else validate.count("keep", keep)
        self._interval = validate.number("interval", interval, minimum=0.0)
        self._disk: Disk = RealDisk() if disk is None else disk
        self._file: File | None = None
        self._failure: str | None = None
        self._pending: list[bytes] = []
        self._size = self._due_at = 0
        self._closed = False
        self._writing, self._syncing = threading.RLock(), threading.Lock()
        self._changed = threading.Condition()
        self._flusher: threading.Thread | None = None
        self._disk.make_folder(self.path)
        self._lock = self._disk.lock(self._place(_LOCK))
        if self._lock is None:
            raise JournalInUse(f"another process writes the journal {self.path}; one journal has one writer")
        try:
            self.recovered = self._recover()
        except BaseException:
            self._lock.release()
            raise
        self.last = self._flushed = self._synced = self.recovered.last

    def _place(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _recover(self) -> Recovered:
        names = segment_names(self._disk, self.path)
        self._ordinal = int(names[-1].removesuffix(_SUFFIX)) if names else 0
        if not names:
            return Recovered(None, [], 0, None)
        segment = parse(names[-1], self._disk.read(self._place(names[-1])))
        cut = None
        if segment.torn:
            cut = (
                f"{segment.torn} bytes behind record {segment.last} in {segment.name} were not written to their end "
                "and are cut off"
            )
            file = self._disk.append(self._place(segment.name))
            try:
                file.truncate(segment.end)
                file.sync()
            finally:
                file.close()
        return Recovered(segment.snapshot, segment.records, segment.last, cut)

    # Writing.

    def begin(self, snapshot: str) -> None:
        """Begin a segment with this state, which must be that after the last record.

        Raises:
            JournalFailed: It could not be written; the segment before it goes on, if there is one.
        """
        with self._writing:
            self.flush()
            self.sync()
            data = HEADER + frame(self.last, snapshot, self.last, snapshot=True)
            file = self._draft(data)
            name = f"{self._ordinal + 1:08d}{_SUFFIX}"
            try:
                self._disk.rename(self._place(_DRAFT), self._place(name))
                self._disk.sync_folder(self.path)
            except OSError as error:
                # It may be there already, and would be what is gone on with: nothing may be added to the old one.
                raise self._fail(f"the segment {name} could not be put in its place: {error}") from error
            with self._syncing:
                old, self._file = self._file, file
            if old is not None:
                old.close()
            self._ordinal += 1
            self._size = len(data)
            self._due_at = self._size + self._segment_bytes
            self._forget()
            if self.durability == "group" and self._flusher is None:
                self._flusher = threading.Thread(target=self._gather, name="tether journal", daemon=True)
                self._flusher.start()

    def _draft(self, data: bytes) -> File:
        """The new segment beside its place, durable."""
        file = None
        try:
            file = self._disk.create(self._place(_DRAFT))
            _write_all(file, data)
            file.sync()
            return file
        except OSError as error:
            self._due_at = self._size + self._segment_bytes // 8  # the old one goes on for a while
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
            with contextlib.suppress(OSError):
                self._disk.remove(self._place(_DRAFT))
            raise JournalFailed(f"a segment of {self.path} could not be begun: {error}") from error

    def _forget(self) -> None:
        """Delete the segments that are no longer kept."""
        names = segment_names(self._disk, self.path)
        for name in names[: -self._keep] if self._keep is not None else []:
            with contextlib.suppress(OSError):  # it is tried again with the next segment
                self._disk.remove(self._place(name))

    def append(self, payload: str) -> int:
        """Write a record; returns its number, for `wait`.

        Raises:
            JournalFailed: It is not in the file; it will be before any other, as soon as that can be written.
        """
        with self._writing:
            if self._file is None:
                raise RuntimeError("call begin(snapshot) before the first append")
            self.last += 1
            self._pending.append(frame(self.last, payload, self._synced))
            self.flush()
            return self.last

    def flush(self) -> None:
        """Write what could not be written before, if there is anything.

        Raises:
            JournalFailed: It still cannot be.
        """
        self._require_working()
        file = self._file
        if not self._pending or file is None:
            return
        with self._writing:
            data = b"".join(self._pending)
            try:
                _write_all(file, data)
            except OSError as error:
                try:
                    file.truncate(self._size)
                except OSError as worse:
                    raise self._fail(f"a record was not written whole, and cannot be cut: {worse}") from error
                raise JournalFailed(f"record {self.last} of {self.path} is not written: {error}") from error
            self._size += len(data)
            self._pending.clear()
            self._flushed = self.last
        if self.durability == "group":
            with self._changed:
                self._changed.notify_all()

    def wait(self, number: int) -> None:
        """Return when the record of this number, which was appended, is as durable as was chosen.

        Raises:
            JournalFailed: It is not known to be.
        """
        if self.durability == "process":
            return
        if self._flusher is None:
            self.sync()
            return
        with self._changed:
            self._changed.wait_for(
                lambda: self._synced >= number or self._failure is not None or self._closed
            )
        if self._synced < number:
            self._require_working()

    def sync(self) -> None:
        """Make everything that was written durable."""
        with self._syncing:
            self._require_working()
            flushed = self._flushed
            if self._file is None or self._synced >= flushed:
                return
            try:
                self._file.sync()
            except OSError as error:
                raise self._fail(f"the disk does not say that it keeps what it took: {error}") from error
            self._synced = flushed

    def _gather(self) -> None:
        """Make records durable together, as the only one to do so (mode "group")."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._flushed > self._synced)
                if self._closed:
                    return
            time.sleep(self._interval)
            try:
                self.sync()
            except JournalFailed:
                return  # whoever waits has been told
            with self._changed:
                self._changed.notify_all()

    # State.

    @property
    def due(self) -> bool:
        """Whether the segment is long enough for a new one to begin."""
        return self._size >= self._due_at

    @property
    def lag(self) -> int:
        """How many records are not durable yet; in mode "process", not with the operating system."""
        done = self._flushed if self.durability == "process" else self._synced
        return self.last - done

    @property
    def failure(self) -> str | None:
        """Why nothing can be written until the journal is opened again; None if all is well."""
        return self._failure

    @property
    def segments(self) -> int:
        """The number of the segment that is written."""
        return self._ordinal

    def close(self) -> None:
        """Write what can be written, and let go of the folder."""
        with contextlib.suppress(JournalFailed):
            self.flush()
            self.sync()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._flusher is not None:
            self._flusher.join()
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _require_working(self) -> None:
        if self._closed:
            raise JournalFailed(f"the journal {self.path} is closed")
        if self._failure is not None:
            raise JournalFailed(f"{self._failure}; open the journal {self.path} again once the disk is well")

    def _fail(self, failure: str) -> JournalFailed:
        """From here on nothing is written."""
        self._failure = failure
        with self._changed:
            self._changed.notify_all()
        return JournalFailed(failure)


def _write_all(file: File, data: bytes) -> None:
    left = memoryview(data)
    while left:
        taken = file.write(left)
        if taken <= 0:
            raise OSError(errno.ENOSPC, "the disk took nothing")
        left = left[taken:]


def segment_names(disk: Disk, path: str) -> list[str]:
    """The segments in a folder, from the oldest to the newest."""
    found = [name for name in disk.names(path) if name.endswith(_SUFFIX)]
    for name in found:
        if len(name) != 8 + len(_SUFFIX) or not name.removesuffix(_SUFFIX).isdecimal():
            raise JournalDamaged(f"{name} in {path} is not called as a segment of a journal is")
    return found


def segments(path: str | Path) -> Iterator[Segment]:
    """Every segment of a journal, from the oldest to the newest, to be looked at; nothing is changed or taken.

    Raises:
        JournalDamaged: A segment is not what was written, or one is missing.
        FileNotFoundError: There is no journal.
    """
    disk, place = RealDisk(), str(path)
    names = segment_names(disk, place)
    if not names:
        raise FileNotFoundError(f"{place} is no journal: there is no segment in it")
    before: Segment | None = None
    for name in names:
        segment = parse(name, disk.read(f"{place}/{name}"))
        if segment.torn and name != names[-1]:
            raise JournalDamaged(f"{name} is damaged at byte {segment.end}, and a segment follows it")
        if before is not None and (before.last != segment.first or int(name[:8]) != int(before.name[:8]) + 1):
            raise JournalDamaged(
                f"{before.name} ends with record {before.last}, but {name} begins after record {segment.first}: "
                "a segment is missing or cut"
            )
        before = segment
        yield segment
