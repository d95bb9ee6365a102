"""A disk in memory that fails as disks do, by the roll of a die: for `tether bench faults` and tests.

What was written is in the page cache until `sync`; a name is in the folder's pages until `sync_folder`. A process that
dies leaves both as they are, down to a write that had come half way. A loss of power leaves what was made durable, and
of the rest any pages, in any order.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field

PAGE = 64
"""Bytes that a disk writes at a time; small, so that records are torn often."""


class Crash(BaseException):
    """The process is dead; nothing catches this but the simulator."""


@dataclass
class Node:
    """What is in a file, and what of it is durable."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""


class FakeDisk:
    """See `tether.core.journal.disk.Disk`. There is one folder.

    Args:
        dice: Where chance comes from.

    Attributes:
        space: How many bytes may be written until the disk is full; None for no end.
        crash_in: After how many operations the process dies; None for never.
        operations: How many there were.
        syncs: How many of these waited for the disk.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._names: dict[str, Node] = {}
        self._durable_names: dict[str, Node] = {}
        self._renames: list[Callable[[dict[str, Node]], object]] = []
        self._dead = self._locked = False
        self.space: int | None = None
        self.crash_in: int | None = None
        self.operations = self.syncs = 0

    # What the simulator does.

    def die(self) -> None:
        """The process dies: what it wrote stays."""
        self._dead, self._locked, self.crash_in = False, False, None

    def lose_power(self) -> None:
        """The machine stops: what is durable stays, and by chance some of the rest."""
        self.die()
        names = dict(self._durable_names)
        for change in self._renames[: self._dice.randint(0, len(self._renames))]:
            change(names)
        self._names, self._durable_names, self._renames = names, dict(names), []
        for node in names.values():
            self._keep_by_chance(node)

    def _keep_by_chance(self, node: Node) -> None:
        """Of what is not durable at the end of a file, some pages; others are zeros, or beyond its end."""
        written, durable = bytes(node.content), node.durable
        if not written.startswith(durable):  # it was cut, and that was not made durable
            kept = bytearray(durable if self._dice.random() < 0.5 else written)
        else:
            length = self._dice.randint(len(durable), len(written))
            kept = bytearray(written[:length])
            for start in range(len(durable), length, PAGE):
                if self._dice.random() < 0.3:
                    end = min(start + PAGE, length)
                    kept[start:end] = bytes(end - start)
        node.content, node.durable = kept, bytes(kept)

    def flip(self) -> bool:
        """Change one bit of one file; False if there is none."""
        nodes = [node for node in self._names.values() if node.content]
        if not nodes:
            return False
        node = self._dice.choice(nodes)
        place = self._dice.randrange(len(node.content))
        node.content[place] ^= 1 << self._dice.randrange(8)
        node.durable = bytes(node.content)
        return True

    # What the journal does.

    def step(self) -> None:
        """An operation begins; the process may die here."""
        if self._dead:
            raise Crash
        self.operations += 1
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in <= 0:
                self._dead = True
                raise Crash

    def make_folder(self, path: str) -> None:
        """The one folder is there."""

    def names(self, folder: str) -> list[str]:
        """See `Disk`."""
        self.step()
        return sorted(name.removeprefix(f"{folder}/") for name in self._names)

    def read(self, path: str) -> bytes:
        """See `Disk`."""
        self.step()
        return bytes(self._names[path].content)

    def create(self, path: str) -> FakeFile:
        """See `Disk`."""
        self.step()
        node = Node()
        self._rename(lambda names: names.__setitem__(path, node))
        return FakeFile(self, node)

    def append(self, path: str) -> FakeFile:
        """See `Disk`."""
        self.step()
        return FakeFile(self, self._names[path])

    def rename(self, old: str, new: str) -> None:
        """See `Disk`."""
        self.step()

        def change(names: dict[str, Node]) -> None:
            if old in names:
                names[new] = names.pop(old)

        self._rename(change)

    def remove(self, path: str) -> None:
        """See `Disk`."""
        self.step()
        self._rename(lambda names: names.pop(path, None))

    def _rename(self, change: Callable[[dict[str, Node]], object]) -> None:
        change(self._names)
        self._renames.append(change)

    def sync_folder(self, path: str) -> None:  # noqa: ARG002
        """See `Disk`."""
        self.step()
        self._durable_names, self._renames = dict(self._names), []

    def lock(self, path: str) -> FakeDisk | None:  # noqa: ARG002
        """See `Disk`."""
        self.step()
        if self._locked:
            return None
        self._locked = True
        return self

    def release(self) -> None:
        """Let go of the lock."""
        self._locked = False

    def take(self, wanted: int) -> int:
        """How many bytes there is room for."""
        if self.space is None:
            return wanted
        taken = min(wanted, self.space)
        self.space -= taken
        return taken

    def torn(self, length: int) -> int:
        """How much of a write is done before the process dies in it, if it does."""
        return self._dice.randint(0, length)


class FakeFile:
    """See `tether.core.journal.disk.File`."""

    def __init__(self, disk: FakeDisk, node: Node) -> None:
        self._disk, self._node = disk, node

    def write(self, data: bytes | memoryview) -> int:
        """See `File`; a full disk takes a part, and then nothing."""
        try:
            self._disk.step()
        except Crash:
            self._node.content += data[: self._disk.torn(len(data))]
            raise
        taken = self._disk.take(len(data))
        if taken == 0:
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
        self._node.content += data[:taken]
        return taken

    def sync(self) -> None:
        """See `File`."""
        self._disk.step()
        self._disk.syncs += 1
        self._node.durable = bytes(self._node.content)

    def truncate(self, size: int) -> None:
        """See `File`."""
        self._disk.step()
        del self._node.content[size:]

    def close(self) -> None:
        """See `File`."""
