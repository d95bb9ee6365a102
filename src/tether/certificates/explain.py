"""Why an action is safe or not: which bound binds, in which round, and what would enlarge the safe set.

Nothing here is a rule of thumb. The bounds of (**) (`tether.certificates.structured`) are evaluated for the action as
the guard does it, once for each backup; what a change would gain is found by making it and evaluating them again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tether.certificates.explain_model import changed, leaves, reached
from tether.certificates.structured import Structured, StructuredState
from tether.core import validate
from tether.core.certificate import Action, Box, Observation
from tether.core.ops import FLOATS, NUMPY, Ops, coarsest, quietly

HALVINGS = 14
"""Of a share of the way and of lam."""
LARGEST_LAM = 1e4


@dataclass(frozen=True)
class Line:
    """One n of (**): the excesses of this round to round h + n, cost units."""

    round: int
    """h + n, counted from 1."""
    last: int
    """The same, or the horizon where the line stands for every round from there on (the tail)."""
    at_most: float
    """T_n: what these rounds can cost above (1 + lam) times the prior's, all together."""
    allowed: float
    """What is left of the promise for them, less the reserve for round-off."""
    difference: float
    """What they can cost above the prior's, all together ..."""
    credit: float
    """... and lam times what the prior is known to pay in them, which is subtracted."""

    @property
    def over(self) -> float:
        """At most 0 if this line allows the action."""
        return self.at_most - self.allowed

    @property
    def where(self) -> str:
        """In words."""
        return f"round {self.round}" if self.last == self.round else f"rounds {self.round} to {self.last}"


@dataclass(frozen=True)
class Way:
    """The action now, and a backup from the next round on."""

    backup: str
    lines: tuple[Line, ...]

    @property
    def binding(self) -> Line:
        """The line with the least room."""
        return max(self.lines, key=lambda line: line.over)

    @property
    def safe(self) -> bool:
        """Whether (**) holds."""
        return self.binding.over <= 0.0

    @property
    def missing_b(self) -> float:
        """By how much larger b would have to be from this round on for (**) to hold, cost units a round."""
        first = self.lines[0].round
        return max(0.0, *(line.over / (line.round - first + 1) for line in self.lines))


@dataclass(frozen=True)
class Gain:
    """A change, and what it does."""

    change: str
    share: float
    """Of the way that is safe with it."""
    gain: float
    """More than without it."""


@dataclass(frozen=True)
class Explanation:
    """Why an action is safe or not; `print` it."""

    round: int
    horizon: int
    action: Any
    prior: Any
    """The prior's action."""
    ways: tuple[Way, ...]
    """One for each backup; the prior's first."""
    share: float
    """How much of the way from the prior's action to this one is safe; 0 if the prior's is not."""
    gap: tuple[float, float]
    """How far the own state may be above and below the prior's, state units."""
    more_b: float
    """By how much larger b would have to be from this round on; 0 if the action is safe."""
    enough_lam: float | None
    """A lam that would be enough; None if none up to 10^4 is."""
    leaves: str
    """Of a model: which state can leave the range in which the model holds, and when; empty if none can."""
    parts: dict[str, Any]
    """Of a model: next states, gaps and slopes that the bounds of the next round come from."""
    gains: tuple[Gain, ...] = ()
    """What would enlarge the safe set, the most first; tried one by one."""

    @property
    def best(self) -> Way:
        """The backup with which the action is safe, or nearest to it."""
        return min(self.ways, key=lambda way: way.binding.over)

    @property
    def safe(self) -> bool:
        """Whether the action keeps the promise whatever happens next."""
        return self.best.safe

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, fit for JSON; what is infinite is None."""
        found = asdict(self)
        found["ways"] = [{**asdict(way), "safe": way.safe, "binding": way.binding.where} for way in self.ways]
        found |= {"safe": self.safe, "backup": self.best.backup, "binding": self.best.binding.where}
        plain: dict[str, Any] = finite(found)
        return plain

    def __str__(self) -> str:
        line, backup = self.best.binding, self.best.backup
        verdict = "is safe" if self.safe else f"is not safe, {self.share:.3g} of the way to it is"
        spent = line.where if line.round == self.round else f"rounds {self.round} to {line.last}"
        lines = [
            f"Round {self.round} of {self.horizon}: {_shown(self.action)} {verdict}; the prior plays "
            f"{_shown(self.prior)}.",
            f"What binds is {line.where}, with {backup!r} as the backup from round {self.round + 1} on: {spent} can "
            f"cost {_most(line.at_most)} (1 + lam) times the prior's, allowed are {_number(line.allowed)}.",
        ]
        if math.isfinite(line.at_most):
            lines.append(
                f"  {_number(line.difference)} above the prior's, less {_number(line.credit)}, lam times what it "
                f"pays at least."
            )
        if self.leaves:
            lines.append(f"  {self.leaves}")
        lines += [
            f"  The own state is at most {_number(self.gap[0])} above and {_number(self.gap[1])} below the prior's "
            f"now.",
            *(f"  {name}: {_shown(value)}" for name, value in self.parts.items()),
        ]
        if not self.safe and math.isfinite(line.at_most):
            lam = f"lam = {_number(self.enough_lam)}" if self.enough_lam is not None else "no lam"
            lines.append(f"Enough would be b larger by {_number(self.more_b)} from here on, or {lam}.")
        if self.gains:
            lines.append("What would enlarge the safe set (share of the way):")
            lines += [f"  {each.gain:+.3f}  {each.change}" for each in self.gains]
        return "\n".join(lines)


def explain(
    subject: Any,
    observation: Observation,
    action: Action,
    *,
    prior: Action = None,
    state: StructuredState | None = None,
    box: Box | None = None,
    epsilon: float = 0.0,
    what_if: bool = True,
) -> Explanation:
    """Which bound decides about an action, and what it would take to allow more.

    Args:
        subject: A `tether.Guard`, for the round that comes next or is open; or a `tether.Structured` certificate, such
            as `tether.compile` gives, for the first round unless a `state` is given.
        observation: What the guard is shown.
        action: Any action inside the bounds.
        prior: The prior's action; known from the guard, or from the model of a compiled certificate.
        state: What the certificate remembers.
        box: The actions that there are; those of the structure if None.
        epsilon: Relative round-off of what is seen.
        what_if: Whether to try what would enlarge the safe set. For a compiled certificate that means to compile it
            again for each change, which takes a few seconds each.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> certificate = tether.Structured(env.contract(lam=0.0, b=1.0), env.structure)
        >>> guard = tether.Guard(certificate, env.prior, low=0.0)
        >>> found = explain(guard, [4.0, 3.0, 0.0, 0.0], 4.0)  # demand 4, renewables 3; the prior plays 5
        >>> found.safe, found.best.binding.where, found.best.backup
        (False, 'round 1', 'clear')
        >>> round(found.share, 2), round(found.more_b, 2)
        (0.5, 1.16)
    """
    if hasattr(subject, "certificate"):
        guard, subject = subject, subject.certificate
        state, box = guard._state, guard._box
        prior = guard._actions.ask(guard.prior, observation).required(guard.round)
        epsilon = max(guard._epsilon, coarsest(observation))
    if not isinstance(subject, Structured):
        raise TypeError(
            f"explain needs bounds of a tether.Structured certificate, got {type(subject).__name__}"
        )
    subject.contract.require_constant("explain")
    model: Any = getattr(subject.system, "model", None)
    if prior is None and model is None:
        raise ValueError(
            "prior must be the prior's action in this round: this certificate does not know the prior"
        )
    if box is None:
        box = Box(subject.system.low, subject.system.high, "l2")
    if state is None:
        state = subject.start(subject.online_ops, 0.0)
    if prior is None:
        prior = np.clip(np.asarray(model.policy(observation)), *box[:2])
    look = _Look(subject, observation, _shaped(subject, prior), box, epsilon)
    return look.explained(state, _shaped(subject, action), what_if)


class _Look:
    """The bounds of one certificate in one round."""

    def __init__(
        self, certificate: Structured, observation: Observation, prior: Action, box: Box, epsilon: float
    ) -> None:
        self.certificate, self.observation, self.prior = certificate, observation, prior
        self.box, self.epsilon = box, epsilon
        self.plans = certificate.system.plans(box.low, box.high)
        self._compiled: Any = None

    def explained(self, state: StructuredState, action: Action, what_if: bool) -> Explanation:
        """See `explain`."""
        contract = self.certificate.contract
        ways = self.ways(state, action)
        share = self.share(state, action)
        best = min(ways, key=lambda way: way.binding.over)
        enough = contract.lam if best.safe else self._enough_lam(state, action)
        opened = self.certificate.open(state, self.observation, self.certificate.online_ops, self.epsilon)
        with quietly(self.certificate.online_ops):
            above, below = (float(each) for each in self.certificate.features(opened)[1:3])
        compiled: Any = self.certificate
        model = getattr(compiled.system, "model", None)
        parts = {} if model is None else reached(model, compiled.resolved(opened), action)
        gains = self._gains(state, action, share) if what_if and share < 1.0 else []
        return Explanation(
            round=int(state.rounds) + 1,
            horizon=contract.horizon,
            action=_listed(action),
            prior=_listed(self.prior),
            ways=tuple(ways),
            share=share,
            gap=(above, below),
            more_b=min(way.missing_b for way in ways),
            enough_lam=enough,
            leaves="" if model is None else leaves(model, parts, contract.horizon - int(state.rounds)),
            parts=parts,
            gains=tuple(sorted(gains, key=lambda each: -each.gain)),
        )

    def ways(self, state: StructuredState, action: Action, lam: float | None = None) -> list[Way]:
        """(**) for each backup, line by line, if the contract's lam were this from now on."""
        certificate = self.certificate
        contract = certificate.contract
        lam = contract.lam if lam is None else lam
        slack, found = self._bounds(state, action, lam)
        without = found if lam == 0.0 else self._bounds(state, action, 0.0)[1]
        unit = certificate._unit_round_off(max(self.epsilon, certificate.resolution, np.finfo(float).eps))
        first, left = int(state.rounds) + 1, contract.horizon - int(state.rounds)
        made = []
        for plan, (totals, ceiling), (plain, _) in zip(self.plans, found, without, strict=True):
            lines = []
            for n, (total, more) in enumerate(zip(totals[:left], plain, strict=False)):
                total, more = (each if each == each else math.inf for each in (total, more))
                reserve = unit * (ceiling + (abs(total) if math.isfinite(total) else 0.0))
                allowed = slack + (n + 1) * contract.b * (1.0 - unit) - reserve
                last = contract.horizon if 0 < n == len(totals) - 1 else first + n
                credit = more - total if math.isfinite(more) else 0.0
                lines.append(Line(first + n, last, total, allowed, more, credit))
            made.append(Way(certificate.backup_names[plan], tuple(lines)))
        return made

    def safe(self, state: StructuredState, action: Action, lam: float | None = None) -> bool:
        """Whether (**) holds for some backup."""
        return any(way.safe for way in self.ways(state, action, lam))

    def share(self, state: StructuredState, action: Action) -> float:
        """The largest share of the way from the prior's action that is safe, as bisection finds it."""

        def at(share: float) -> bool:
            way = self.prior + share * (action - self.prior) if share < 1.0 else action
            return self.safe(state, way)

        return 1.0 if at(1.0) else _largest(at)

    def _enough_lam(self, state: StructuredState, action: Action) -> float | None:
        low = float(self.certificate.contract.lam)
        if not self.safe(state, action, LARGEST_LAM):
            return None
        share = _largest(lambda each: not self.safe(state, action, low + _stretched(each)))
        return low + _stretched(share + 0.5**HALVINGS)

    def _gains(self, state: StructuredState, action: Action, share: float) -> list[Gain]:
        """What each change gains."""
        fresh = self.certificate.start(self.certificate.online_ops, 0.0)
        fresh = fresh._replace(rounds=state.rounds, account=state.account, backup=state.backup)
        known = self.share(fresh, action) if state.rounds > 0 else share
        gains = [] if state.rounds <= 0 else [Gain("the prior's state known exactly", known, known - share)]
        for change, certificate in changed(self.certificate, self.observation):
            other = _Look(certificate, self.observation, self.prior, self.box, self.epsilon)
            start = certificate.start(certificate.online_ops, 0.0)
            found = other.share(
                start._replace(**{k: getattr(fresh, k) for k in ("rounds", "account", "backup")}), action
            )
            gains.append(Gain(change, found, found - known))
        return gains

    def _bounds(
        self, state: StructuredState, action: Action, lam: float
    ) -> tuple[float, list[tuple[list[float], float]]]:
        """(slack, (totals, ceiling) for each backup)."""
        certificate = self.certificate
        if certificate.system.scalar:
            ops = FLOATS if certificate.system.entries == 0 else NUMPY
            with quietly(certificate.online_ops):
                slack, found = self._evaluate(state, self.observation, self.prior, action, lam, self.box, ops)
        else:
            slack, found = self._by_jax(state, action, lam)
        return float(slack), [([float(each) for each in totals], float(top)) for totals, top in found]

    def _evaluate(
        self, state: Any, observation: Any, prior: Any, action: Any, lam: Any, box: Box, ops: Ops
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        certificate = self.certificate
        opened = certificate.open(state, observation, ops, self.epsilon)
        one = certificate._single(ops)
        now = certificate._round(opened, prior, box, one)._replace(lam=lam)
        found = certificate._all(now, certificate._entries(action, one), self.plans, one)
        return opened.slack, [(each.totals, each.ceiling) for each in found]

    def _by_jax(self, state: Any, action: Any, lam: float) -> tuple[Any, list[tuple[Any, Any]]]:
        import jax
        import jax.numpy as jnp

        from tether.core.ops import jax_ops

        with jax.enable_x64(True):
            if self._compiled is None:
                self._compiled = jax.jit(
                    lambda state, seen, prior, action, lam, low, high: self._evaluate(
                        state, seen, prior, action, lam, Box(low, high, self.box.norm), jax_ops()
                    )
                )
            given = (state, self.observation, self.prior, action, lam, *self.box[:2])
            arrays = jax.tree.map(
                lambda leaf: jnp.asarray(leaf, dtype=bool if np.asarray(leaf).dtype == bool else float), given
            )
            if not hasattr(self.observation, "keys"):
                arrays = (arrays[0], jnp.asarray(self.observation, dtype=float), *arrays[2:])
            found: tuple[Any, list[tuple[Any, Any]]] = self._compiled(*arrays)
            return found


def _largest(holds: Callable[[float], bool]) -> float:
    """The largest share at which something holds that holds up to there, by bisection; 0 if it never does."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _stretched(share: float) -> float:
    """[0, 1] to [0, LARGEST_LAM], fine near 0."""
    return LARGEST_LAM * share**4


def _shaped(certificate: Structured, action: Any) -> Any:
    entries = certificate.system.entries
    if entries == 0:
        return validate.number("action", float(np.asarray(action).reshape(())))
    found = np.asarray(action, dtype=float)
    if found.shape != (entries,) or not np.all(np.isfinite(found)):
        raise ValueError(f"action must be {entries} finite numbers, got {action!r}")
    return found


def finite(content: Any) -> Any:
    """The same, with None for numbers that JSON does not know."""
    if isinstance(content, dict):
        return {name: finite(each) for name, each in content.items()}
    if isinstance(content, list | tuple):
        return [finite(each) for each in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _listed(action: Any) -> Any:
    return action.tolist() if isinstance(action, np.ndarray) else float(action)


def _number(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.4g}"


def _most(value: float) -> str:
    return f"{value:.4g} above" if math.isfinite(value) else "any amount above"


def _shown(value: Any) -> str:
    return f"[{', '.join(_number(each) for each in value)}]" if isinstance(value, list) else _number(value)
