"""Several contracts at once: one prior, m promises, each with a certificate and a memory of its own.

**Safe actions.** The certificates share a *backup*, which is carried: a policy that every one of them knows by the same
name and for which every one of them has bounds; `"prior"` always is one. An action is safe if for one of these common
backups every certificate finds it safe, each by its own proof, with that backup from the next round on.

**Sound.** *If every certificate found an action safe with the same backup, then playing the action and that backup for
the rest of the episode keeps every promise*: each certificate has proved that for its own. So in every later round
there is something safe to do: the backup that the last action was checked with. An action that is checked now takes
over, with its own backup. Before the first round the prior is carried: played from the start it keeps every promise.

The backup must be one and the same. Each certificate by itself would always find something safe to do, but if one
carried the prior and another one a recovery of its own, no action need be safe for both. A backup that only some know
is therefore not used at all. With the prior as the only common backup the prior's action is always safe, for all.

**The action.** Each certificate chooses for itself. Of what they choose the action nearest to the start (the prior's
action where it is safe, else the carried backup's) is looked at by all; if all agree it is played, else the largest
part of the way to it on which a short search finds agreement. The action that is played was checked itself, by all. For
balls around the prior's action this is the nearest action of the smallest ball, and for sets that are star-shaped
around the start it is the largest share of the way that all allow; the contract whose choice it was *binds*.

**Breaches.** If something contradicts one certificate, the prior is played from then on. The promises of the others
stay certified, as long as their own assumptions hold, if the backup that is carried then is the prior: playing it is
what keeps them. If it is another one, none is certified any more. That a common backup is the same policy to all is an
assumption too: where they would play different actions under one name, it is breached.

**Round-off** is each certificate's own: what was found safe with all of its reserve is checked again with half of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from tether.core import saved, validate
from tether.core.certificate import Action, Box, Certificate, Choice, Observation, Outcome, Weighed, Weighing
from tether.core.contract import Contract
from tether.core.ops import FLOATS, NUMPY, Flag, Number, Ops
from tether.core.projection import length

TRIES = 12
"""Actions that are looked at on the way, at most."""


class SeveralState(NamedTuple):
    """What the certificate remembers between rounds."""

    rounds: Number
    """Number of closed rounds, h - 1."""
    backup: Number
    """Which of the common backups is carried, by its place in `Several.backup_names`."""
    void: tuple[Flag, ...]
    """For each contract, whether its promise is not certified any more."""
    parts: tuple[Any, ...]
    """The state of each certificate."""
    breached: Flag
    """Whether something contradicted one of them; from then on only the prior is played."""


class Opened(NamedTuple):
    """A round before the action is known."""

    backup: Number
    """Which common backup is carried."""
    parts: tuple[Any, ...]
    """What each certificate opened."""
    breached: Flag
    """Whether only the prior is played."""


class Taken(NamedTuple):
    """What closing a round needs of the action that was played."""

    backup: Number
    """Which common backup is carried from here on."""
    void: tuple[Flag, ...]
    """For each contract, whether its promise is not certified from this round on."""
    parts: tuple[Any, ...]
    """What each certificate took."""
    breached: Flag
    """Whether something contradicted one of them in this round."""


@dataclass(frozen=True)
class Several:
    """A certificate for several contracts: an action is played only if every one of them allows it.

    Args:
        certificates: By name, or in order; each with its own contract, all with the same horizon. The costs of a round
            are given by these names or in this order.
        names: What the contracts are called, if the certificates have no names yet; by default cost_1, cost_2, ...

    Example:
        >>> from tether import Contract, Guard, LipschitzCertificate, Sensitivity, geometric
        >>> bounds = Sensitivity(immediate=1.0, carried=0.5, perturbation=geometric(0.5))
        >>> comfort = LipschitzCertificate(Contract(lam=0.5, b=1.0, horizon=24), bounds)
        >>> energy = LipschitzCertificate(Contract(lam=0.1, b=0.5, horizon=24), bounds)
        >>> guard = Guard({"comfort": comfort, "energy": energy}, prior=lambda seen: 2.0)
        >>> decision = guard.act(20.0, proposal=5.0)
        >>> round(decision.action, 4), decision.binding
        (2.5, 'energy')
        >>> guard.observe({"comfort": 0.3, "energy": 2.1})
    """

    certificates: tuple[Weighing, ...]
    names: tuple[str, ...] = ()

    tree_numbers: ClassVar[tuple[str, ...]] = ("certificates",)

    def __post_init__(self) -> None:
        given: Any = self.certificates
        names = tuple(self.names)
        if isinstance(given, Mapping):
            if names:
                raise ValueError(f"names are those of the mapping, {', '.join(given)}; got {names!r} besides")
            names, given = tuple(given), tuple(given.values())
        certificates = tuple(given)
        names = names or tuple(f"cost_{i}" for i in range(1, len(certificates) + 1))
        if len(certificates) < 1 or len(names) != len(certificates):
            raise ValueError(f"expected a certificate for each name, got {len(certificates)} for {names!r}")
        if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"each contract needs a name of its own, got {names!r}")
        for name, each in zip(names, certificates, strict=True):
            if hasattr(each, "actions"):
                raise ValueError(
                    f"the certificate {name!r} is for a finite set of actions; put that around all of them: "
                    "Switches(Several(...), actions)"
                )
            validate.parts(f"the certificate {name!r}", each, ("weigh",), "tether.core.certificate.Weighing")
        horizons = {each.contract.horizon for each in certificates}
        if len(horizons) > 1:
            raise ValueError(f"all contracts must have the same horizon, got {sorted(horizons)}")
        object.__setattr__(self, "certificates", certificates)
        object.__setattr__(self, "names", names)

    @property
    def contracts(self) -> dict[str, Contract]:
        """The promises by name, as `tether.audit` takes them."""
        return {name: each.contract for name, each in zip(self.names, self.certificates, strict=True)}

    @property
    def contract(self) -> Contract:
        """The first promise; its horizon is that of all."""
        return self.certificates[0].contract

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Those of every certificate, after the name of its contract."""
        return tuple(
            f"{name}: {feature}"
            for name, each in zip(self.names, self.certificates, strict=True)
            for feature in each.feature_names
        )

    @property
    def backup_names(self) -> tuple[str, ...]:
        """The backups that every certificate has; the first is the prior."""
        first, *others = self.certificates
        return tuple(name for name in first.backup_names if all(name in each.backup_names for each in others))

    @property
    def revealed_names(self) -> tuple[str, ...]:
        """What any of the certificates makes use of."""
        return tuple(dict.fromkeys(name for each in self.certificates for name in each.revealed_names))

    @property
    def online_ops(self) -> Ops:
        """Single numbers, if all of them compute with these."""
        return FLOATS if all(each.online_ops is FLOATS for each in self.certificates) else NUMPY

    def start(self, ops: Ops = NUMPY, zero: Number = 0.0) -> SeveralState:
        """The state before the first round."""
        parts = tuple(each.start(ops, zero) for each in self.certificates)
        void = tuple(part.breached for part in parts)
        return SeveralState(zero, zero, void, parts, _any(void, ops))

    def open(
        self, state: SeveralState, observation: Observation, ops: Ops = NUMPY, epsilon: float = 0.0
    ) -> Opened:
        """Begin a round with what is seen."""
        pairs = zip(self.certificates, state.parts, strict=True)
        parts = tuple(each.open(part, observation, ops, epsilon) for each, part in pairs)
        return Opened(state.backup, parts, state.breached)

    def choose(self, opened: Opened, proposal: Action, prior: Action, box: Box, ops: Ops = NUMPY) -> Choice:
        """See the module."""
        one = _single(ops)
        usable = ops.isfinite(proposal - prior)
        if getattr(prior, "ndim", 0) > 0:
            usable = ops.all(usable)
        pairs = zip(self.certificates, opened.parts, strict=True)
        own = [each.choose(part, proposal, prior, box, ops) for each, part in pairs]
        known = tuple(each.breached for each in own)
        breached = one.logical_or(opened.breached, _any(known, one))
        start, carried, agreed = self._start(opened, prior, box, ops)
        breached = one.logical_or(breached, one.logical_not(agreed))
        nearest, radius, binding = self._nearest(own, start, box, ops)
        way = _Way(start, ops.where(usable, nearest, start), box, ops)
        share = self._share(opened, prior, way, ops)
        share = one.where(one.logical_or(breached, one.logical_not(usable)), 0.0, share)
        action = ops.where(breached, prior, way.at(share))

        weighed = [
            self._weighed(opened, prior, action, box, ops, place, part=0.5)
            for place in range(len(self.backup_names))
        ]
        kept, backup = one.logical_and(share <= 0.0, carried), opened.backup
        for place, each in reversed(list(enumerate(weighed))):
            backup = one.where(each.left >= 0.0, 0.0 * share + place, backup)
            kept = one.logical_or(kept, each.left >= 0.0)
        backup = one.where(breached, 0.0, backup)
        taken = weighed[0].taken
        for place, each in enumerate(weighed[1:], start=1):
            taken = _either(backup == place, each.taken, taken, one)
        # Where a promise is not known to be kept by the prior, playing it is the best that is left.
        lost = one.logical_or(
            one.logical_and(breached, opened.backup > 0.0),
            one.logical_not(one.logical_or(breached, kept)),
        )
        breached = one.logical_or(breached, lost)
        void = tuple(one.logical_or(each, lost) for each in known)
        action = ops.where(breached, prior, action)
        deviation = length(action - prior, box.norm, ops)
        asked = ops.minimum(ops.maximum(ops.where(usable, proposal, action), box.low), box.high)
        moved = one.logical_and(length(action - asked, "linf", ops) > 0.0, one.logical_not(breached))
        radius = one.where(share >= 1.0, radius, deviation)
        return Choice(
            action, deviation, radius, weighed[0].margin, backup, Taken(backup, void, taken, breached), breached,
            binding=one.where(moved, binding, -1.0),
        )  # fmt: skip

    def backup_action(self, opened: Opened, prior: Action, box: Box, ops: Ops = NUMPY) -> Action:
        """What the carried backup plays in this round, as the first certificate knows it."""
        return self.certificates[0].backup_action(opened.parts[0], prior, box, ops)

    def weigh(
        self,
        opened: Opened,
        prior: Action,
        action: Action,
        box: Box,
        ops: Ops = NUMPY,
        backup: int | None = None,
        part: float = 1.0,
    ) -> Weighed:
        """The least that is left to any contract, with a common backup; the prior if none is named."""
        place = 0 if backup is None else backup
        weighed = self._weighed(opened, prior, action, box, ops, place, part)
        known = weighed.breached
        breached = _single(ops).logical_or(opened.breached, _any(known, _single(ops)))
        taken = Taken(0.0 * opened.backup + place, known, weighed.taken, breached)
        return Weighed(weighed.left, taken, weighed.margin, breached)

    def forbidding(self, opened: Opened, prior: Action, action: Action, box: Box, ops: Ops = NUMPY) -> Number:
        """The first contract that does not allow an action, with the prior from the next round on; -1 if all do."""
        one, first = _single(ops), 0.0 * opened.backup - 1.0
        for i in reversed(range(len(self.certificates))):
            left = self.certificates[i].weigh(opened.parts[i], prior, action, box, ops, 0).left
            first = one.where(left >= 0.0, first, i)
        return first

    def update(self, state: SeveralState, taken: Taken, outcome: Outcome, ops: Ops = NUMPY) -> SeveralState:
        """Close a round; the outcome has a cost for each contract, in their order."""
        parts = []
        for i, (each, part) in enumerate(zip(self.certificates, state.parts, strict=True)):
            revealed = outcome.revealed
            if revealed is not None:
                known = {name: revealed[name] for name in each.revealed_names if name in revealed}
                revealed = known or None
            own = outcome._replace(cost=outcome.cost[i], revealed=revealed)  # type: ignore[index]
            parts.append(each.update(part, taken.parts[i], own, ops))
        known_now = tuple(
            ops.logical_or(mine, part.breached) for mine, part in zip(taken.void, parts, strict=True)
        )
        breached = ops.logical_or(ops.logical_or(state.breached, taken.breached), _any(known_now, ops))
        lost = ops.logical_and(breached, taken.backup > 0.0)
        void = tuple(
            ops.logical_or(ops.logical_or(before, now), lost)
            for before, now in zip(state.void, known_now, strict=True)
        )
        return SeveralState(state.rounds + 1.0, taken.backup, void, tuple(parts), breached)

    def features(self, opened: Opened, ops: Ops = NUMPY) -> tuple[Number, ...]:
        """Those of every certificate, one after the other."""
        pairs = zip(self.certificates, opened.parts, strict=True)
        return tuple(number for each, part in pairs for number in each.features(part, ops))

    def feature_units(self) -> tuple[float, ...]:
        """Typical sizes of the features."""
        return tuple(unit for each in self.certificates for unit in each.feature_units())

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe the certificates, fit for JSON."""
        described = [each.to_dict() for each in self.certificates]
        return {"kind": "several", "names": list(self.names), "certificates": described}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Several:
        """The certificate that `to_dict` described, if its parts can be made."""
        made: Any = [saved.certificate_from_dict(each) for each in description["certificates"]]
        return cls(tuple(made), tuple(description["names"]))

    def restore(self, state: dict[str, Any], taken: list[Any] | None) -> tuple[SeveralState, Taken | None]:
        """The state and the open round that were saved as plain numbers and lists, checked."""
        count, given = len(self.certificates), SeveralState(**state)
        saved.require_rounds(given.rounds, self.contract.horizon)
        saved.require_choice("backup", given.backup, len(self.backup_names))
        saved.require_flag("breached", given.breached)
        saved.require_length("parts", given.parts, count)
        own: list[Any] = [None] * count
        if taken is not None:
            saved.require_length("taken", taken, len(Taken._fields))
            saved.require_choice("backup", taken[0], len(self.backup_names))
            saved.require_length("taken", taken[2], count)
            saved.require_flag("breached", taken[3])
            own = taken[2]
        parts = []
        for each, part, mine in zip(self.certificates, given.parts, own, strict=True):
            fields = each.start(each.online_ops, 0.0)._fields
            saved.require_length("parts", part, len(fields))
            parts.append(each.restore(dict(zip(fields, part, strict=True)), mine))
            if not given.breached and parts[-1][0].rounds != given.rounds:
                raise ValueError(f"all parts must have closed {given.rounds!r} rounds, got {part!r}")
        restored = given._replace(void=self._flags(given.void), parts=tuple(state for state, _ in parts))
        if taken is None:
            return restored, None
        return restored, Taken(taken[0], self._flags(taken[1]), tuple(mine for _, mine in parts), taken[3])

    def _flags(self, given: Any) -> tuple[bool, ...]:
        saved.require_length("void", given, len(self.certificates))
        for each in given:
            saved.require_flag("void", each)
        return tuple(given)

    def _places(self, place: int) -> list[int]:
        """What each certificate calls the common backup number `place`."""
        name = self.backup_names[place]
        return [each.backup_names.index(name) for each in self.certificates]

    def _weighed(
        self,
        opened: Opened,
        prior: Action,
        action: Action,
        box: Box,
        ops: Ops,
        place: int,
        part: float = 1.0,
    ) -> _Together:
        one = _single(ops)
        weighed = [
            each.weigh(mine, prior, action, box, ops, backup, part)
            for each, mine, backup in zip(self.certificates, opened.parts, self._places(place), strict=True)
        ]
        left, margin = weighed[0].left, weighed[0].margin
        for each in weighed[1:]:
            left, margin = one.minimum(left, each.left), one.minimum(margin, each.margin)
        known = tuple(each.breached for each in weighed)
        return _Together(left, margin, tuple(each.taken for each in weighed), known)

    def _left(self, opened: Opened, prior: Action, action: Action, box: Box, ops: Ops) -> Number:
        """What is left with the best of the common backups; minus infinity where that is not a number."""
        one = _single(ops)
        best = 0.0 * opened.backup - float("inf")
        for place in range(len(self.backup_names)):
            left = self._weighed(opened, prior, action, box, ops, place).left
            best = one.where(left > best, left, best)
        return best

    def _start(self, opened: Opened, prior: Action, box: Box, ops: Ops) -> tuple[Action, Flag, Flag]:
        """(where the search begins, whether that is what the carried backup plays, whether all agree on that)."""
        one, is_prior = _single(ops), opened.backup <= 0.0
        if len(self.backup_names) == 1:
            return prior, is_prior, True
        safe = one.logical_or(is_prior, self._left(opened, prior, prior, box, ops) >= 0.0)
        pairs = zip(self.certificates, opened.parts, strict=True)
        first, *others = [each.backup_action(part, prior, box, ops) for each, part in pairs]
        agreed: Flag = True
        off = 64.0 * ops.epsilon(first) * (1.0 + length(first, "linf", ops))
        for other in others:
            agreed = one.logical_and(agreed, length(other - first, "linf", ops) <= off)
        agreed = one.logical_or(is_prior, agreed)
        return ops.where(safe, prior, first), one.logical_or(is_prior, one.logical_not(safe)), agreed

    @staticmethod
    def _nearest(own: list[Choice], start: Action, box: Box, ops: Ops) -> tuple[Action, Number, Number]:
        """(the choice that is nearest to the start, its radius, whose it is)."""
        one = _single(ops)
        nearest, radius = own[0].action, own[0].radius
        away = length(nearest - start, box.norm, ops)
        binding = 0.0 * away
        for i, each in enumerate(own[1:], start=1):
            distance = length(each.action - start, box.norm, ops)
            nearer = distance < away
            nearest = ops.where(nearer, each.action, nearest)
            radius, binding = one.where(nearer, each.radius, radius), one.where(nearer, i, binding)
            away = one.where(nearer, distance, away)
        return nearest, radius, binding

    def _share(self, opened: Opened, prior: Action, way: _Way, ops: Ops) -> Number:
        """The largest share of the way that a short search finds safe; all of it is tried first."""
        one, zero = _single(ops), 0.0 * opened.backup
        # The share has no derivative: that of the action is that of the choice that binds.
        opened, prior, start, end = _fixed((opened, prior, way.start, way.end), ops)
        way = way._replace(start=start, end=end)

        def narrow(bracket: _Bracket) -> _Bracket:
            middle = 0.5 * (bracket.low + bracket.high)
            share = one.where(bracket.step < 0.5, 1.0, middle) + zero
            safe = self._left(opened, prior, way.at(share), way.box, ops) >= 0.0
            return _Bracket(
                one.where(safe, share, bracket.low),
                one.where(safe, bracket.high, share),
                bracket.step + 1.0,
            )

        def found(bracket: _Bracket) -> Flag:
            return bracket.low >= 1.0

        return one.loop(TRIES, narrow, _Bracket(zero, zero + 1.0, zero), found).low


class _Together(NamedTuple):
    """What all certificates make of one action."""

    left: Number
    margin: Number
    taken: tuple[Any, ...]
    breached: tuple[Flag, ...]


class _Bracket(NamedTuple):
    """Between a share that is safe and one that is not, or was not tried."""

    low: Number
    high: Number
    step: Number
    """How many were tried."""


class _Way(NamedTuple):
    """From where the search begins to what is nearest to it of all that was chosen."""

    start: Action
    end: Action
    box: Box
    ops: Ops

    def at(self, share: Number) -> Action:
        """The action at a share of the way, exact at both ends, inside the box."""
        ops = self.ops
        partway = self.start + share * (self.end - self.start)
        partway = ops.minimum(ops.maximum(partway, self.box.low), self.box.high)
        return ops.where(share >= 1.0, self.end, ops.where(share > 0.0, partway, self.start))


def combined(given: Any) -> Certificate:
    """A certificate as it is; several, in a mapping or a sequence, as one."""
    several: Any = given
    return Several(several) if isinstance(given, Mapping | list | tuple) else several


def _single(ops: Ops) -> Ops:
    """What shares, flags and costs are computed with, whatever an action is."""
    return FLOATS if ops is NUMPY else ops


def _any(flags: Sequence[Flag], ops: Ops) -> Flag:
    found = flags[0]
    for each in flags[1:]:
        found = ops.logical_or(found, each)
    return found


def _fixed(values: Any, ops: Ops) -> Any:
    """`ops.fixed` for nested tuples; plain numbers stay what they are."""
    if isinstance(values, tuple):
        entries = [_fixed(each, ops) for each in values]
        return values._make(entries) if hasattr(values, "_make") else tuple(entries)
    return ops.fixed(values) if hasattr(values, "dtype") else values


def _either(condition: Flag, if_true: Any, if_false: Any, ops: Ops) -> Any:
    """`ops.where` for nested tuples; plain numbers that are the same in both stay as they are."""
    if isinstance(if_true, tuple):
        entries = [_either(condition, *pair, ops) for pair in zip(if_true, if_false, strict=True)]
        return if_true._make(entries) if hasattr(if_true, "_make") else tuple(entries)
    if isinstance(if_true, float) and isinstance(if_false, float) and if_true == if_false:
        return if_true
    return ops.where(condition, if_true, if_false)
