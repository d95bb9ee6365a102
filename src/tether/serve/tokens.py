"""Who may do what: bearer tokens with roles, from a file that is read again when it changes.

It holds the SHA-256 of each token, not the token:

    [[token]]
    name = "plc-7"                # who it is, in the journal and in the metrics
    role = "control"              # control, operator or reader
    sha256 = "9f86d081884c..."    # of the token, 64 hexadecimal digits; `tether token plc-7` makes both
    plants = ["hall"]             # optional: to act on these plants only
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import time
import tomllib
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

log = logging.getLogger("tether.serve")
EVERY = 1.0
"""Seconds between two looks at the file."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


class Role(StrEnum):
    """What the holder of a token may do; everybody may read."""

    CONTROL = "control"
    """A control loop: act, observe, reset."""
    OPERATOR = "operator"
    """A person: prior now, resume, end of episode."""
    READER = "reader"
    """A dashboard or Prometheus: look."""


class Holder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the file."""

    name: str
    role: Role
    sha256: str
    plants: tuple[str, ...] | None = None
    """None for every plant."""

    def may(self, roles: frozenset[Role], plant: str | None) -> bool:
        """Whether one of these roles is held, for this plant; None stands for all of them."""
        return self.role in roles and (self.plants is None or plant in self.plants)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: tuple[Holder, ...] = ()


def digest(token: str) -> str:
    """What the file holds of a token: its SHA-256. A token has 256 random bits, so no salt and no slow hash is needed.

    Example:
        >>> digest("test")[:12]
        '9f86d081884c'
    """
    return hashlib.sha256(token.encode()).hexdigest()


def new_token(name: str, role: Role, plants: tuple[str, ...] | None = None) -> tuple[str, str]:
    """A fresh token, and the entry of the file that lets it in."""
    _require_name(name)
    token = secrets.token_urlsafe(32)
    entry = f'[[token]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{digest(token)}"\n'
    return token, entry if plants is None else entry + f"plants = {msgspec.json.encode(plants).decode()}\n"


def read_tokens(path: Path) -> tuple[Holder, ...]:
    """The entries of a file, checked.

    Raises:
        ValueError: It is no such file; the message names it.
    """
    try:
        holders = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File).token
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"{path} is not a file of tokens: {error}") from error
    for holder in holders:
        _require_name(holder.name)
        if not _DIGEST.fullmatch(holder.sha256):
            raise ValueError(
                f"{path}: sha256 of {holder.name} must be 64 lower-case hexadecimal digits, got {holder.sha256!r}"
            )
    for field in ("name", "sha256"):
        values = [getattr(holder, field) for holder in holders]
        if len(set(values)) != len(values):
            raise ValueError(f"{path}: two tokens have the same {field}")
    if not holders:
        raise ValueError(f"{path} has no token; `tether token NAME --role control` makes one")
    return holders


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"a token's name must be 1 to 64 letters, digits or ._@-, got {name!r}")


class Tokens:
    """The holders of a file, as it is now.

    A file that has become unreadable does not lock a plant's control loop out: the last good one counts on, which is
    logged and is `stale` until the file is good again.

    Args:
        path: Of the file; it must be good at the start.
        clock: Seconds, for tests.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.stale = False
        self._clock = clock
        self._seen = _signature(path)
        self._holders = _by_digest(read_tokens(path))
        self._next = clock() + EVERY

    def holder(self, authorization: str | None) -> Holder | None:
        """Who sends this header `Authorization: Bearer TOKEN`; None if it is nobody known."""
        self._look()
        scheme, _, token = (authorization or "").partition(" ")
        given = digest(token.strip()).encode()
        found = None
        for (
            known,
            holder,
        ) in self._holders:  # all of them, so that the time says nothing of where it was found
            if hmac.compare_digest(given, known):
                found = holder
        return found if scheme.lower() == "bearer" else None

    def _look(self) -> None:
        """Read the file again if it has changed, at most once in `EVERY` seconds."""
        if self._clock() < self._next:
            return
        self._next = self._clock() + EVERY
        seen = _signature(self.path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._holders, self.stale = _by_digest(read_tokens(self.path)), False
            log.info("%s was read again: %d tokens", self.path, len(self._holders))
        except ValueError as error:
            self.stale = True
            log.error("the tokens stay as they were: %s", error)


class Everybody:
    """Instead of tokens, for a service on this machine only: whoever calls may do everything."""

    stale = False

    def holder(self, authorization: str | None) -> Holder | None:  # noqa: ARG002
        """Anybody."""
        return _ANYBODY


class _Anybody(Holder, frozen=True):
    def may(self, roles: frozenset[Role], plant: str | None) -> bool:  # noqa: ARG002
        """Everything."""
        return True


_ANYBODY = _Anybody("anybody", Role.OPERATOR, "")


def _by_digest(holders: tuple[Holder, ...]) -> list[tuple[bytes, Holder]]:
    return [(holder.sha256.encode(), holder) for holder in holders]


def _signature(path: Path) -> Any:
    """What changes when the file does; None if it is not there."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino
