"""Certificates that know the system: the same promise as with Lipschitz constants, from a much larger safe set.

A `Structure` says what is known of a system. It carries *gaps*, bounds on how far the own state and the prior's are
apart (signed: above and below), and from them, for the action a at hand, bounds that hold whatever the noise does:

    totals t_n   sum_{i=h..h+n} (c_i - c+_i) <= t_n if a is played now and the prior from h+1 on; the last entry, t_K,
                 holds for every n >= K. So t_0 is the design's `now` and t_n - t_{n-1} its `later_n`.
    step         the gaps of the next round, and
    floor        c+_h >= floor, both once c_h is seen.

c+ are the costs of the prior on its own trajectory with the same draw. With S_h = sum_{i<h} ((1 + lam) floor_i - c_i)
the action is safe at round h iff, for every n from 0 to H - h,

    (*)   t_n <= S_h + (n + 1) (lam*eps + b) + (h - 1) b.

**Sound** if the structure is *consistent*: for the action played, every outcome of the noise, and every n,

    (1)  c_h - floor_h <= t_0                           what is seen is no worse than what was feared (`update` sees to
                                                        it: by (3) c_h - t_0 is a floor too, and the larger one counts);
    (2)  c_h - floor_h + t_n(next) <= t_{n+1}           `next`: the prior's action at h+1, with the gaps after the step;
         c_h - floor_h + t_K(next) <= t_K               (for n = K there is nothing beyond);
    (3)  the sums above really are bounded by t_n, floor_h <= c+_h, and the gaps after the step hold.

Proof. *The promise.* By (3) with n = 0 and S_h <= sum_{i<h} ((1 + lam) c+_i - c_i), (*) for n = 0 gives
J_h <= (1 + lam) J+_{h-1} + c+_h + lam*eps + h b <= (1 + lam) J+_h + h b as c+_h >= eps. *The prior stays safe.* At
h = 1 without gaps the prior's t_n are 0. If a was safe at h, then for the prior at h+1, by (2), (1 + lam) floor_h >=
floor_h + lam*eps and (*) with n+1,

    t_n(next) <= t_{n+1} - (c_h - floor_h) <= S_h + (n + 2) (lam*eps + b) + (h - 1) b - c_h + floor_h
              <= S_{h+1} + (n + 1) (lam*eps + b) + h b.

So there is always a safe action, and all that is needed in a round is (*). If the t_n never fall as the action moves
away from the prior's along a line, the safe set is star-shaped around it and the guard plays the prior's action plus
the largest safe share t of the way to the proposal; if they do, what it plays is still safe, because (*) is checked for
the very action that is played.

**Round-off.** The bounds speak of real numbers. What the guard is told and what it computes with is off by a relative
epsilon: that of the number type, of the observation (a float32 environment under a float64 guard) or the `resolution`
of the certificate, whichever is largest. Each round may move both sides of (*) by a few epsilon of the costs involved,
so (*) keeps a reserve: sqrt(epsilon)/16, or 4 epsilon (H + 16) if that is more, of everything that was added up and of
the structure's `scale`. What the structure concludes from a cost (`close`) is widened by 64 epsilon of the state.

Everything is written against an array namespace `xp`, as in `tether.certificates.lipschitz`. The structures of the
paper's systems are in `tether.certificates.systems`.
"""

from __future__ import annotations

import functools
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tether import _scalar, _validate
from tether.certificates.choice import Choice
from tether.contract import Contract
from tether.projection import Norm, length

SEARCH = 8
"""Evaluations in the search for the largest safe share of a proposal."""
_PLENTY = 1e30
"""Stands for infinite slack, in whose place it can be computed with."""
STAYING = 0.25
"""What an end of the search's bracket that has not moved twice counts for."""


class Exposure(NamedTuple):
    """What an action can cost more than the prior, whatever the noise does."""

    totals: tuple[Any, ...]
    """(t_0, ..., t_K), cost units."""
    ceiling: Any
    """The largest cost that this round can have; one above it contradicts the structure."""
    step: tuple[Any, ...]
    """Numbers that `Structure.close` needs of this round."""


class Structure(ABC):
    """What is known of a system; an implementation is a frozen dataclass of plain numbers.

    It must be consistent as the module says; `tests/certificates/test_structured.py` searches for counterexamples.
    """

    kind: ClassVar[str]
    """Its name in `to_dict`."""
    entries: ClassVar[int] = 0
    """How many numbers an action is; 0 if it is a number, not a vector."""
    scalar: ClassVar[bool] = True
    """Whether all gaps, and all that is read, are single numbers; if some are arrays, the online guard uses NumPy."""

    @property
    @abstractmethod
    def low(self) -> Any:
        """Lowest action for which the bounds hold, a number or [n]."""

    @property
    @abstractmethod
    def high(self) -> Any:
        """Highest action for which the bounds hold, a number or [n]."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """A cost of the size that round-off in the system's own arithmetic is proportional to, cost units."""

    @abstractmethod
    def start(self, zero: Any) -> tuple[Any, ...]:
        """The gaps before the first round, where both trajectories begin in the same state."""

    @abstractmethod
    def read(self, observation: Any) -> tuple[Any, ...]:
        """The numbers of an observation [o] that the bounds need."""

    @abstractmethod
    def admits(self, seen: tuple[Any, ...], xp: Any) -> Any:
        """Whether what was read is within the ranges for which the bounds hold."""

    def agrees(self, seen: tuple[Any, ...], prior: Any, epsilon: Any, xp: Any) -> Any:  # noqa: ARG002
        """Whether `prior` is, up to round-off, the action of the prior that the bounds are about; True if unknown."""
        return True

    @abstractmethod
    def apart(self, seen: tuple[Any, ...], prior_seen: tuple[Any, ...], xp: Any) -> tuple[Any, ...]:
        """The gaps, as `refine` gives them, if what the prior would see on its own trajectory were known."""

    @abstractmethod
    def refine(self, gaps: tuple[Any, ...], seen: tuple[Any, ...], epsilon: Any, xp: Any) -> tuple[Any, ...]:
        """The gaps that `start` or `close` left, with what seeing the state adds; `epsilon`: its round-off."""

    @abstractmethod
    def exposure(
        self, gaps: tuple[Any, ...], seen: tuple[Any, ...], prior: Any, action: Any, xp: Any
    ) -> Exposure:
        """The bounds for `action`, where the prior would play `prior`; for a vector, lists of n numbers if `scalar`."""

    @abstractmethod
    def close(self, step: tuple[Any, ...], cost: Any, epsilon: Any, xp: Any) -> tuple[Any, tuple[Any, ...]]:
        """(floor, gaps of the next round) once the cost is seen; `epsilon` is the relative round-off of both."""

    @abstractmethod
    def felt(self, gaps: tuple[Any, ...], xp: Any) -> tuple[Any, Any]:
        """The gaps as two numbers that a learner can use: own state above and below the prior's, state units."""

    def unfelt(self, above: Any, below: Any) -> tuple[Any, ...]:
        """The gaps that are `felt` as these two numbers, if they can be told from them; `PlanningPolicy` needs it."""
        raise NotImplementedError(
            f"the gaps of {type(self).__name__} cannot be told from {above!r}, {below!r}"
        )


class StructuredState(NamedTuple):
    """What the certificate remembers between rounds; of fixed size."""

    rounds: Any
    """Number of closed rounds, h - 1."""
    surplus: Any
    """S_h, cost units."""
    gaps: tuple[Any, ...]
    """The structure's gaps, state units."""
    magnitude: Any
    """Sum of the absolute values added up so far, cost units: what round-off is proportional to."""
    breached: Any
    """Whether something contradicted the contract or the structure; from then on only the prior is safe."""


class Opened(NamedTuple):
    """A round in which the observation is known and the action is not."""

    seen: tuple[Any, ...]
    """What the structure read."""
    gaps: tuple[Any, ...]
    """The refined gaps."""
    slack: Any
    """S_h + (h - 1) b, rounded inward, cost units."""
    earned: Any
    """lam*eps + b, cost units a round."""
    remaining: Any
    """Rounds left, this one included."""
    breached: Any
    """Whether only the prior is safe."""
    epsilon: Any
    """Relative round-off of what is seen and computed in this round."""


class Taken(NamedTuple):
    """What closing a round needs of the action that was played."""

    now: Any
    """t_0, cost units."""
    ceiling: Any
    """See `Exposure`."""
    step: tuple[Any, ...]
    """See `Exposure`."""
    breached: Any
    """Whether the observation or the prior's action was not what the structure covers."""
    epsilon: Any
    """See `Opened`."""


@dataclass(frozen=True)
class Structured:
    """Safe sets from a contract and a `Structure`.

    Args:
        contract: The promise.
        system: What is known of the system, such as `tether.envs.Carbon().structure`.
        resolution: Relative round-off of the observations, actions and costs at the plant, if it is larger than that of
            the numbers that the guard is given: 1.2e-7 for a plant in float32 whose numbers come as float64.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> certificate = Structured(env.contract(lam=2.0, b=2.0), env.structure)
        >>> guard = tether.Guard(certificate, env.prior, low=0.0)
        >>> decision = guard.act([4.0, 3.0, 0.0, 0.0], proposal=0.0)  # demand 4, renewables 3, no backlog
        >>> decision.prior_action, round(decision.action, 3)  # with the Lipschitz constants 4.871
        (5.0, 3.333)
    """

    contract: Contract
    system: Structure
    resolution: float = field(default=0.0, kw_only=True)

    feature_names: ClassVar[tuple[str, ...]] = ("slack", "gap above", "gap below", "rounds left")

    def __post_init__(self) -> None:
        if not isinstance(self.contract, Contract):
            raise TypeError(f"contract must be a tether.Contract, got {self.contract!r}")
        if not isinstance(self.system, Structure):
            raise TypeError(f"system must be a tether.certificates.Structure, got {self.system!r}")
        _validate.number("resolution", self.resolution, minimum=0.0)

    @property
    def scalar(self) -> bool:
        """Whether the state is single numbers."""
        return self.system.scalar

    def start(self, xp: Any = np, zero: Any = 0.0) -> StructuredState:  # noqa: ARG002
        """The state before the first round; `zero` carries the number type that later states have."""
        magnitude = zero + self.contract.earned + self.system.scale
        return StructuredState(zero, zero, self.system.start(zero), magnitude, zero > 0.0)

    def open(self, state: Any, observation: Any, xp: Any = np) -> Opened:
        """Begin a round with what is seen, [o] as the system's environment gives it."""
        seen = self.system.read(observation)
        epsilon = max(self.resolution, *(round_off(number) for number in (state.surplus, *seen)))
        if xp is _scalar:
            seen = tuple(float(each) for each in seen)
        # What is at the edge of its range may have been rounded to beyond it.
        inward = tuple(each * (1.0 - epsilon) for each in seen)
        breached = xp.logical_or(state.breached, xp.logical_not(self.system.admits(inward, xp)))
        gaps = self.system.refine(state.gaps, seen, epsilon, xp)
        contract = self.contract
        unit = self._unit_round_off(epsilon, xp)
        slack = state.surplus + state.rounds * contract.b * (1.0 - unit) - unit * state.magnitude
        remaining = contract.horizon - state.rounds
        return Opened(seen, gaps, slack, contract.earned, remaining, breached, epsilon)

    def features(self, opened: Any, xp: Any = np) -> tuple[Any, ...]:
        """The state as a learner can use it, in a round that was opened: (slack, gap above, gap below, rounds left).

        The slack is the right-hand side of (*) for n = 0, cost units: what this round may cost more than the prior.
        """
        slack = opened.slack + opened.earned
        return slack, *self.system.felt(opened.gaps, xp), opened.remaining

    def resume(self, features: Any) -> StructuredState:
        """A state in which the coming round has these `features`, for a plan that goes on from them.

        Round-off is counted from here on, since the slack was rounded inward before.
        """
        slack, above, below, remaining = features
        rounds = self.contract.horizon - remaining
        zero = 0.0 * slack
        surplus = slack - self.contract.earned - rounds * self.contract.b
        return StructuredState(rounds, surplus, self.system.unfelt(above, below), zero, zero > 0.0)

    def feature_units(self) -> tuple[float, ...]:
        """Typical sizes of the features."""
        return (self.contract.earned if self.contract.earned > 0.0 else 1.0), 1.0, 1.0, 1.0

    def choose(
        self, opened: Any, proposal: Any, prior: Any, low: Any, high: Any, norm: Norm, xp: Any = np
    ) -> Choice:
        """The action farthest on the way from the prior's to the proposal that is safe.

        Args:
            opened: What `open` gave.
            proposal: [n] or a scalar; where it is not finite the prior is played.
            prior: The prior's action, inside the box.
            low: Lower bounds of the action.
            high: Upper bounds of the action.
            norm: Of the deviation.
            xp: Array namespace to compute in.
        """
        usable = xp.isfinite(proposal - prior)
        if self.system.entries > 0:
            usable = xp.all(usable)
        wish = xp.where(usable, proposal, prior)
        wish = xp.minimum(xp.maximum(wish, low), high)
        wish = xp.minimum(xp.maximum(wish, self.system.low), self.system.high)

        # A share and a cost are single numbers, whatever an action is.
        one = _scalar if self.system.entries and self.system.scalar and not _is_jax(xp) else xp

        def point(prior: Any, wish: Any, share: Any) -> Any:
            if isinstance(prior, list):
                return [point(*pair, share) for pair in zip(prior, wish, strict=True)]
            partway = prior + share * (wish - prior)
            return one.where(share >= 1.0, wish, one.where(share > 0.0, partway, prior))

        def excesses(inputs: tuple[Opened, Any, Any], share: Any) -> list[Any]:
            opened, prior, wish = inputs
            exposure = self._exposure(opened, prior, point(prior, wish, share), one)
            return [one.maximum(-slack, -_PLENTY) for slack in self._slacks(opened, exposure, one)]

        inputs = (opened, self._entries(prior), self._entries(wish))
        known = self.system.agrees(opened.seen, inputs[1], opened.epsilon, one)
        breached = one.logical_or(opened.breached, one.logical_not(known))
        share = one.where(breached, 0.0, largest_share(excesses, inputs, one))
        entries = point(*inputs[1:], share)
        slacks, taken = self.take(opened._replace(breached=breached), inputs[1], entries, one)
        action = xp.stack(entries) if isinstance(entries, list) else entries
        deviation = length(action - prior, norm, xp)
        return Choice(action, deviation, deviation, slacks[0], taken, breached)

    def take(self, opened: Any, prior: Any, action: Any, xp: Any = np) -> tuple[list[Any], Taken]:
        """What (*) leaves for each n if `action` is played, and what `update` needs then.

        The action is safe iff nothing of what is left is negative, cost units; it is infinite beyond the horizon. A
        plan may ask this of any action; only `choose` sees to it that an action is safe.
        """
        exposure = self._exposure(opened, prior, action, xp)
        taken = Taken(exposure.totals[0], exposure.ceiling, exposure.step, opened.breached, opened.epsilon)
        return self._slacks(opened, exposure, xp), taken

    def accepts(self, cost: Any, xp: Any = np) -> Any:
        """Whether a cost is one that the contract allows at all: finite and not below the floor."""
        return xp.logical_and(xp.isfinite(cost), cost >= self.contract.cost_floor)

    def update(self, state: Any, taken: Any, cost: Any, xp: Any = np) -> StructuredState:
        """Close a round in which an action was `taken` and `cost` was seen."""
        return self._closed(state, taken, cost, 0.0, xp)

    def _closed(self, state: Any, taken: Any, cost: Any, paid: Any, xp: Any) -> StructuredState:
        """See `update`; `paid` is a lower bound on what the prior paid, known from elsewhere."""
        contract = self.contract
        unit = self._unit_round_off(taken.epsilon, xp)
        possible = cost <= taken.ceiling * (1.0 + 100.0 * unit) + 100.0 * unit
        accepted = xp.logical_and(self.accepts(cost, xp), possible)
        cost = xp.where(accepted, cost, contract.cost_floor)
        floor, gaps = self.system.close(taken.step, cost, taken.epsilon, xp)
        floor = xp.maximum(xp.maximum(floor, cost - taken.now), xp.maximum(paid, contract.cost_floor))
        surplus = state.surplus + (1.0 + contract.lam) * floor - cost
        magnitude = state.magnitude + (2.0 + contract.lam) * cost + contract.earned + abs(taken.now)
        breached = xp.logical_or(xp.logical_or(state.breached, taken.breached), xp.logical_not(accepted))
        return StructuredState(state.rounds + 1.0, surplus, gaps, magnitude, breached)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe the certificate exactly, fit for JSON."""
        system: Any = self.system
        return {
            "kind": "structured",
            "contract": asdict(self.contract),
            "system": {"kind": system.kind, **asdict(system)},
            "resolution": self.resolution,
        }

    def restore(self, state: dict[str, Any], taken: Any) -> tuple[StructuredState, Taken | None]:
        """The state and the open round that were saved as plain numbers and lists."""
        restored = StructuredState(**{**state, "gaps": _numbers(state["gaps"])})
        if taken is None:
            return restored, None
        now, ceiling, step, breached, epsilon = taken
        return restored, Taken(now, ceiling, _numbers(step), breached, epsilon)

    def _entries(self, action: Any) -> Any:
        """A vector as a list of single numbers, if that is how the system is described.

        A compiler then sees numbers only, and does not work out a vector again for each of its entries.
        """
        if not self.system.scalar or self.system.entries == 0:
            return action
        return action.tolist() if isinstance(action, np.ndarray) else list(action)

    def _exposure(self, opened: Opened, prior: Any, action: Any, xp: Any) -> Exposure:
        return self.system.exposure(opened.gaps, opened.seen, prior, action, xp)

    def _slacks(self, opened: Opened, exposure: Exposure, xp: Any) -> list[Any]:
        """What (*) leaves for each n, cost units, rounded inward; infinite for rounds beyond the horizon."""
        unit = self._unit_round_off(opened.epsilon, xp)
        earned = opened.earned * (1.0 - unit)
        base = opened.slack - unit * exposure.ceiling
        return [
            xp.where(n < opened.remaining, base + (n + 1) * earned - total - unit * abs(total), math.inf)
            for n, total in enumerate(exposure.totals)
        ]

    def _unit_round_off(self, epsilon: Any, xp: Any) -> Any:
        """How far off a sum of costs may be, relative to the magnitudes in it, by floating-point arithmetic."""
        return xp.maximum(4.0 * epsilon * (self.contract.horizon + 16.0), epsilon**0.5 / 16.0)


def largest_share(excesses: Callable[[Any, Any], list[Any]], inputs: Any, xp: Any) -> Any:
    """A share t of [0, 1] with excesses(inputs, t) <= 0, as large as a short search finds; 0 if there is none.

    Regula falsi for each excess, of which the most careful counts: where they are convex no step goes too far. What is
    returned was checked itself, so it is safe however the excesses behave; where they grow with t the search comes
    near the largest t, mostly within round-off. In JAX the derivative is that of the boundary: excess(inputs, t) = 0
    for the largest excess gives dt = -d excess / (slope in t).
    """
    fixed = _frozen(inputs, xp)

    def largest(values: list[Any]) -> Any:
        return functools.reduce(xp.maximum, values)

    at_low, at_high = excesses(fixed, 0.0), excesses(fixed, 1.0)
    whole, none = largest(at_high) <= 0.0, largest(at_low) >= 0.0
    if isinstance(at_low[0], float) and (whole or none):
        return 1.0 if whole else 0.0
    # Aiming a little inside, so that round-off does not decide whether the last point counts.
    aim = 64.0 * round_off(at_low[0]) * (1.0 + abs(at_low[0]))

    def inward(values: list[Any]) -> list[Any]:
        return [xp.minimum(value + aim, 0.0) for value in values]

    def narrow(_: int, bracket: tuple[Any, ...]) -> tuple[Any, ...]:
        low, high, values_low, values_high, side = bracket
        share = functools.reduce(
            xp.minimum,
            [
                xp.where(above > 0.0, below / xp.where(above > 0.0, below - above, 1.0), 1.0)
                for below, above in zip(values_low, values_high, strict=True)
            ],
        )
        middle = low + (high - low) * share
        values = excesses(fixed, middle)
        safe = largest(values) <= 0.0
        # An end that stays where it is for a second time counts less, so that the other one is not stuck.
        stay_low, stay_high = (xp.where(sign * side > 0.0, STAYING, 1.0) for sign in (-1.0, 1.0))
        return (
            xp.where(safe, middle, low),
            xp.where(safe, high, middle),
            [
                xp.where(safe, *pair)
                for pair in zip(inward(values), scaled(values_low, stay_low), strict=True)
            ],
            [xp.where(safe, *pair) for pair in zip(scaled(values_high, stay_high), values, strict=True)],
            xp.where(safe, 1.0, -1.0),
        )

    def scaled(values: list[Any], factor: Any) -> list[Any]:
        return [factor * value for value in values]

    zero = xp.where(whole, 0.0, 0.0)
    values_low = [xp.where(none, -1.0, value) for value in inward(at_low)]
    bracket = (zero, zero + 1.0, values_low, [xp.where(whole, 1.0, value) for value in at_high], zero)
    if _is_jax(xp):
        import jax

        if round_off(at_low[0]) > 1e-12 or isinstance(inputs[-1], list):
            # Trainings compute in float32: what they differentiate, and a vector, compile far faster with a loop.
            bracket = jax.lax.fori_loop(0, SEARCH, narrow, bracket)
        else:
            # Large rollouts compute in float64: written out they are several times faster. The barriers keep the
            # compiler from working out a step anew in all that follow, which would take it minutes.
            for i in range(SEARCH):
                bracket = jax.lax.optimization_barrier(narrow(i, bracket))  # type: ignore[no-untyped-call]
    else:
        for i in range(SEARCH):
            bracket = narrow(i, bracket)
            if isinstance(zero, float) and largest(bracket[2]) == 0.0:
                break
    low = bracket[0]
    inside = xp.logical_not(xp.logical_or(whole, none))
    if _is_jax(xp):
        low = _on_boundary(lambda inputs, share: largest(excesses(inputs, share)), inputs, low, inside, xp)
    return xp.where(whole, 1.0, xp.where(inside, low, 0.0))


def _on_boundary(excess: Callable[[Any, Any], Any], inputs: Any, share: Any, inside: Any, xp: Any) -> Any:
    """The share, with the derivative of the boundary in `inputs`."""
    import jax

    @jax.custom_jvp
    def unchanged(inputs: Any, share: Any, inside: Any) -> Any:  # noqa: ARG001
        return share

    @unchanged.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
        inputs, share, inside = primals
        short = 1e-3 * share
        value, change = jax.jvp(lambda inputs: excess(inputs, share), (inputs,), (tangents[0],))
        slope = value - excess(inputs, share - short)
        usable = xp.logical_and(inside, xp.logical_and(slope > 0.0, short > 0.0))
        return share, -change * xp.where(usable, short, 0.0) / xp.where(usable, slope, 1.0)

    return unchanged(inputs, share, inside)


def _numbers(saved: Any) -> tuple[Any, ...]:
    """Saved gaps: numbers stay what they are, lists become arrays."""
    return tuple(np.array(each) if isinstance(each, list) else each for each in saved)


def _is_jax(xp: Any) -> bool:
    return bool(xp.__name__ == "jax.numpy")


def _frozen(values: Any, xp: Any) -> Any:
    """The values as constants of a derivative."""
    if not _is_jax(xp):
        return values
    import jax

    return jax.lax.stop_gradient(values)


def round_off(number: Any) -> float:
    """The relative round-off of a number's type; one that is not known counts as float32."""
    dtype = getattr(number, "dtype", None)
    if dtype is None or getattr(dtype, "kind", None) in ("i", "u", "b"):
        return sys.float_info.epsilon
    return float(np.finfo(dtype if isinstance(dtype, np.dtype) else np.float32).eps)
