"""A guard as plain numbers, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tether.core import convert, saved, validate
from tether.core.actions import bound_from_json, bound_to_json
from tether.core.certificate import Action, Certificate, Observation
from tether.core.monitor import Monitor
from tether.core.raising import promises_to_json

if TYPE_CHECKING:
    from tether.core.guard import Guard

STATE_VERSION = 5


def describe(guard: Guard) -> dict[str, Any]:
    """What `Guard.state_dict` gives."""
    numbers = {name: convert.plain_lists(value) for name, value in guard._state._asdict().items()}
    actions, watch = guard._actions, guard._watch
    return {
        "version": STATE_VERSION,
        "certificate": guard.given_certificate.to_dict(),
        **promises_to_json(guard.given_certificate, guard._promised),
        "low": bound_to_json(actions.low),
        "high": bound_to_json(actions.high),
        "norm": guard.norm,
        "resolution": guard.resolution,
        "actuator": [None if each is None else np.asarray(each).tolist() for each in guard._actuator.given],
        "epsilon": guard._epsilon,
        "shape": actions.shape,
        "state": numbers,
        "taken": convert.plain_lists(guard._taken),
        "decided": convert.plain_lists(guard._decided),
        "overrides": guard._overrides.to_json(),
        "pending": guard._pending.to_json(),
        "breach": None if guard.breach is None else convert.to_json(asdict(guard.breach)),
        "monitored": guard.monitor is not None,
        "watched": convert.to_json(watch.memory),
        "played": convert.to_json(convert.from_json(watch.played)),
        "missed": watch.missed,
        "counts": {str(reason): count for reason, count in guard.counts.items()},
    }


def made(
    kind: type[Guard],
    given: dict[str, Any],
    prior: Callable[[Observation], Action],
    certificate: Certificate | None,
    monitor: Monitor | None,
) -> Guard:
    """The guard that `describe` described; see `Guard.from_state_dict`."""
    if not isinstance(given, dict) or given.get("version") != STATE_VERSION:
        came = given.get("version") if isinstance(given, dict) else type(given).__name__
        raise ValueError(f"expected a guard state of version {STATE_VERSION}, got {came!r}")
    if given.get("monitored") and monitor is None:
        raise ValueError(
            "this guard has a monitor, which is not saved with it; give from_state_dict(..., monitor=...)"
        )
    try:
        if certificate is None:
            certificate = saved.certificate_from_dict(given["certificate"])
        elif not saved.describes(given["certificate"], certificate):
            raise ValueError(f"the guard was saved with another certificate: {given['certificate']!r}")
        low = bound_from_json(given["low"], -math.inf)
        high = bound_from_json(given["high"], math.inf)
        guard = kind(
            certificate,
            prior,
            low,
            high,
            given["norm"],
            monitor,
            resolution=given["resolution"],
            **dict(zip(("tolerance", "quantum", "levels"), given["actuator"], strict=True)),
            most_pending=given["pending"]["most"],
        )
        _restore(guard, given)
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"the guard state is incomplete or damaged: {error!r}") from error
    return guard


def _restore(guard: Guard, given: dict[str, Any]) -> None:
    guard._restore_promises(given.get("contracts"))
    guard._epsilon = validate.number("epsilon", given["epsilon"], minimum=guard.resolution)
    # A round that the certificate could not open has nothing to restore.
    taken = given["taken"] or None
    guard._state, guard._taken = guard.certificate.restore(given["state"], taken)
    if given["taken"] is not None:
        guard._taken = () if taken is None else guard._taken
        if guard.round > guard.horizon:
            raise ValueError(f"taken must be null after the last of {guard.horizon} rounds")
    guard._actions.shape = saved.shape(given["shape"], guard._actions.shape)
    guard._decided = None if given["decided"] is None else guard._actions.decided(given["decided"])
    if guard._taken is not None and (guard._decided is None or not guard._actions.inside(guard._decided)):
        raise ValueError(f"decided must be the action of the open round, got {given['decided']!r}")
    guard._overrides.restore(
        given["overrides"], bool(getattr(guard._state, "overridden", False)), guard.round
    )
    owed = getattr(guard.certificate, "restored_owed", None)
    guard._pending.restore(given["pending"], owed, guard.round)
    guard.breach = saved.breach(given["breach"], bool(guard._state.breached), guard.round)
    if given["monitored"]:
        guard._watch.memory = convert.from_json(given["watched"])
        guard._watch.played = convert.from_json(given["played"])
    saved.require_flag("missed", given["missed"])
    guard._watch.missed = given["missed"]
    guard.counts = saved.counts(given["counts"])
