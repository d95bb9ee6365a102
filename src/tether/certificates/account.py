"""What a structured certificate remembers, from round to round and within one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tether.certificates.structure import Numbers
from tether.core import saved
from tether.core.certificate import Action
from tether.core.contract import Contract
from tether.core.ops import Flag, Number


class StructuredState(NamedTuple):
    """What the certificate remembers between rounds; of fixed size."""

    rounds: Number
    """Number of closed rounds, h - 1."""
    account: Number
    """A_h, cost units."""
    gaps: Numbers
    """The structure's gaps, state units."""
    magnitude: Number
    """Sum of the absolute values added up so far, cost units: what round-off is proportional to."""
    backup: Number
    """Number of the backup that is carried; 0 is the prior."""
    breached: Flag
    """Whether something contradicted the contract or the structure; from then on only the prior is played."""
    overridden: Flag = False
    """Whether something was applied that was not safe, and nothing that was played since is known to be."""
    clipped: Number = 0.0
    """Sum of what the h b took off the account, cost units."""


class Opened(NamedTuple):
    """A round in which the observation is known and the action is not."""

    seen: Numbers
    """What the structure read."""
    gaps: Numbers
    """The refined gaps."""
    slack: Number
    """(h - 1) b - A_h, rounded inward, cost units."""
    b: Number
    """Of the contract, cost units a round; here, because a derivative may be taken of everything that is in here."""
    remaining: Number
    """Rounds left, this one included."""
    backup: Number
    """Number of the backup that is carried."""
    breached: Flag
    """Whether only the prior is played."""
    epsilon: float
    """Relative round-off of what is seen and computed in this round."""
    overridden: Flag = False
    """Whether the backup that is carried is not known to be safe, because of an override."""


class Taken(NamedTuple):
    """What closing a round needs of the action that was played."""

    now: Number
    """T_0, cost units."""
    ceiling: Number
    """See `Bounds`."""
    step: Numbers
    """See `Bounds`."""
    backup: Number
    """Number of the backup that is carried from here on."""
    breached: Flag
    """Whether the observation or the prior's action was not what the structure covers."""
    epsilon: float
    """See `Opened`."""
    seen: Numbers = ()
    """What the structure read, for the case that something else is applied."""
    prior: Action = 0.0
    """What the prior would have played, for the same."""
    overridden: Flag = False
    """Whether what is played is not known to be safe, because of an override."""


class Owed(NamedTuple):
    """What settling a round needs whose cost came late."""

    now: Number
    """T_0, which was counted, cost units."""
    ceiling: Number
    """See `Bounds`."""
    step: Numbers
    """See `Bounds`."""
    epsilon: float
    """See `Opened`."""
    clipped: Number
    """Of the state before the round."""


def require_state(state: StructuredState, contract: Contract, magnitude: float, backups: int) -> None:
    """Refuse a state to which no episode can have led; `magnitude` is what it begins with."""
    saved.require_numbers("account", state.account)
    saved.require_flag("overridden", state.overridden)
    if state.account > state.rounds * contract.b and not state.overridden:
        raise ValueError(
            f"account must be at most b for each of {state.rounds:g} rounds, got {state.account!r}"
        )
    saved.require_numbers("magnitude", state.magnitude, minimum=magnitude)
    saved.require_numbers("clipped", state.clipped, minimum=0.0)
    saved.require_choice("backup", state.backup, backups)
    saved.require_flag("breached", state.breached)


def restored_taken(taken: list[Any], backups: int) -> Taken:
    """An open round that was saved as plain numbers and lists, checked, but for its `step`, which is as it came."""
    saved.require_length("taken", taken, len(Taken._fields))
    opened = Taken(*taken)
    saved.require_numbers("taken", [opened.now, opened.ceiling, opened.epsilon], shape=(3,))
    saved.require_choice("backup", opened.backup, backups)
    for name in ("breached", "overridden"):
        saved.require_flag(name, getattr(opened, name))
    for each in (*opened.seen, opened.prior):
        saved.require_numbers("seen and prior", each, shape=np.shape(each)[:1])
    return opened._replace(seen=saved_numbers(opened.seen), prior=saved.numbers(opened.prior))


def restored_owed(given: list[Any]) -> Owed:
    """What a round owes that was saved as plain numbers and lists, checked, but for its `step`, which is as it came."""
    saved.require_length("owed", given, len(Owed._fields))
    owed = Owed(*given)
    saved.require_numbers("owed", [owed.now, owed.ceiling, owed.epsilon, owed.clipped], shape=(4,))
    return owed


def saved_numbers(entries: Any) -> tuple[Any, ...]:
    """Saved gaps, steps and what was seen: numbers stay what they are, lists become arrays."""
    return tuple(saved.numbers(each) for each in entries)
