"""Did the promise hold? The prior replayed on the same draws, compared round by round in float64.

A *tie* is a cost above its bound by no more than round-off. Ties exist because two programs that compute the same costs
differ in the last digits: at lam = b = 0, where the guard plays the prior, there is nothing else. What a tie may be is
told by the prior's costs of that episode up to that round and by the contract, never by the audited policy's costs, by
other episodes or by later rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from tether.core.contract import Contract
from tether.core.ops import NUMPY
from tether.core.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = 64.0
"""Units of round-off of the bound that are a tie, for costs that are floating-point numbers. The same costs, computed
by NumPy and by a compiled program, were seen to differ by up to 63 units (the systems of `tether attack`, 1 to 400
rounds: carbon in float64 and float32, cooling in float64); by two compiled programs, by up to 28. These are the largest
that were seen, not a proof: a plant that cancels more differs by more."""
EXACT = 2.0**53
"""From here on float64 leaves out whole numbers."""


@dataclass(frozen=True)
class Audit:
    """The verdict on a batch of episodes; `print` it, or save its `figure`."""

    contract: Contract
    cumulative_costs: NDArray[np.float64]
    """[N, H] J_h of the audited policy; NaN from a cost on that is not finite."""
    bounds: NDArray[np.float64]
    """[N, H] (1 + lam) J_h(prior) + h b."""
    ties: NDArray[np.float64]
    """[N, H] how far a cost may be above its bound and count as equal to it, cost units, never negative: `tie_share` of
    the bound, for the coarser type of the two costs. (Where the prior has negative costs, their sizes count.)"""
    uncertified_from: NDArray[np.integer] | None = None
    """[N] the round, counted from 1, from which on the promise was not certified, because the guard saw an assumption
    breached in it; H + 1 if it was certified in every round. None if no guard told."""
    overridden: NDArray[np.bool_] | None = None
    """[N, H] the rounds whose promise is an operator's, not the guard's (`Guard.rounds_under_override`); what is broken
    in them is in `overridden_violations`, not in `violations`. None if nobody told of any."""

    @property
    def margins(self) -> NDArray[np.float64]:
        """[N, H] bound minus cost: negative where the cost is above it, -inf from a cost on that is not finite."""
        with np.errstate(over="ignore"):
            return np.asarray(margin(self.bounds, self.cumulative_costs, np))

    @cached_property
    def _broken(self) -> NDArray[np.bool_]:
        """[N, H] where the margin is not a number, or below 0 by more than the tie."""
        return ~(self.margins >= -self.ties)

    @property
    def violations(self) -> NDArray[np.bool_]:
        """[N, H] where the promise is broken: the margin is not a number, or below 0 by more than the tie."""
        return self._broken if self.overridden is None else self._broken & ~self.overridden

    @property
    def overridden_violations(self) -> NDArray[np.bool_]:
        """[N, H] where the costs are above the bound in rounds under an override."""
        return self._broken & (False if self.overridden is None else self.overridden)

    @property
    def certified(self) -> NDArray[np.bool_]:
        """[N, H] where the promise was certified; nowhere if no guard told."""
        count, horizon = self.cumulative_costs.shape
        if self.uncertified_from is None:
            return np.zeros((count, horizon), dtype=np.bool_)
        return np.arange(1, horizon + 1) < self.uncertified_from[:, None]

    @property
    def violation_rate(self) -> float:
        """Share of the episodes in which the promise is broken in at least one round."""
        return float(np.mean(np.any(self.violations, axis=1)))

    @property
    def worst_margin(self) -> float:
        """Smallest margin over all rounds of all episodes, cost units: how near the costs came to their bounds.

        Rounds under an override do not count; infinite if there are no others. Negative if a cost was above its bound,
        which where the promise `holds` is a tie; -inf if a cost was not finite.
        """
        counted = True if self.overridden is None else ~self.overridden
        return float(np.min(self.margins, where=counted, initial=np.inf))

    @property
    def first_breach(self) -> tuple[int, int] | None:
        """(episode, round) of the first violation, the round counted from 1; None if there is none."""
        places = np.argwhere(self.violations)
        return None if len(places) == 0 else (int(places[0, 0]), int(places[0, 1]) + 1)

    @property
    def holds(self) -> bool:
        """Whether the promise held in every round of every episode."""
        return self.first_breach is None

    def __str__(self) -> str:
        count, horizon = self.cumulative_costs.shape
        contract = self.contract
        lines = [
            f"Promise: {contract}",
            f"Checked: {count} episodes of {horizon} rounds",
            f"Verdict: {'KEPT in every round' if self.holds else 'BROKEN'}",
            f"  episodes in violation   {np.any(self.violations, axis=1).sum()} of {count} ({self.violation_rate:.2%})",
            f"  worst margin            {self.worst_margin:.6g} (bound minus cost, cost units{self._tie_text()})",
            f"  mean cost at the end    {np.mean(self.cumulative_costs[:, -1]):.6g}, "
            f"bound {np.mean(self.bounds[:, -1]):.6g}",
            f"  worst cost at the end   {np.max(self.cumulative_costs[:, -1]):.6g}",
        ]
        if not contract.certain:
            lines.append(f"  against the promise     {self._probability_text()}")
        if self.uncertified_from is not None:
            lines.append(f"  certified               {self._certified_text(self.uncertified_from)}")
        if self.overridden is not None:
            lines.append(f"  under override          {self._overridden_text(self.overridden)}")
        if self.first_breach is not None:
            episode, at = self.first_breach
            lines.append(f"  first breach            episode {episode}, round {at}")
        return "\n".join(lines)

    @property
    def consistent(self) -> bool:
        """Whether the episodes in violation are no evidence against the contract's `confidence`.

        A certain promise allows none. One with probability 1 - delta allows a share delta of the episodes; more is
        evidence if so many or more, out of N independent episodes, had a probability below 0.001 at a share of delta.
        """
        count = len(self.cumulative_costs)
        broken = int(np.any(self.violations, axis=1).sum())
        return broken == 0 or binomial_tail(broken, count, 1.0 - self.contract.confidence) >= 1e-3

    def _probability_text(self) -> str:
        allowed = 1.0 - self.contract.confidence
        verdict = "no evidence against it" if self.consistent else "MORE than it allows"
        return f"{self.violation_rate:.3g} of the episodes in violation, at most {allowed:.3g} allowed: {verdict}"

    def _tie_text(self) -> str:
        return "; negative by round-off only, a tie" if self.holds and self.worst_margin < 0.0 else ""

    def _certified_text(self, uncertified_from: NDArray[np.integer]) -> str:
        """From which round on the promise is no longer certified, and whether it was broken before that."""
        count, horizon = self.cumulative_costs.shape
        stopped = uncertified_from[uncertified_from <= horizon]
        if len(stopped) == 0:
            return "in every round"
        broken = int(np.sum(np.any(self.violations & self.certified, axis=1)))
        rounds = (
            f"{np.min(stopped)}"
            if np.min(stopped) == np.max(stopped)
            else f"{np.min(stopped)} to {np.max(stopped)}"
        )
        return (
            f"not from round {rounds} on in {len(stopped)} of {count} episodes, where an assumption was breached; "
            f"violations before that in {broken}"
        )

    def _overridden_text(self, overridden: NDArray[np.bool_]) -> str:
        """How many rounds were an operator's, and in how many of them costs were above the bound."""
        episodes, rounds = int(np.sum(np.any(overridden, axis=1))), int(np.sum(overridden))
        broken = int(np.sum(self.overridden_violations))
        return f"{rounds} rounds of {episodes} episodes, not counted above; costs above the bound in {broken} of them"

    def figure(self, path: str | Path | None = None) -> Figure:
        """Cumulative cost as a share of its bound over the rounds: the median, the spread, and the worst episode.

        Args:
            path: Where to save it (.png, .svg or .pdf); None to only return it.
        """
        from tether.core.drawing import audit_figure, save

        figure = audit_figure(self)
        if path is not None:
            save(figure, path)
        return figure


@dataclass(frozen=True)
class Audits(Mapping[str, Audit]):
    """The verdicts on several contracts, by name; `print` it.

    Example:
        >>> contracts = {"backlog": Contract(lam=0.0, b=1.0, horizon=2), "energy": Contract(lam=1.0, b=0.0, horizon=2)}
        >>> costs, prior_costs = [[[1.0, 3.0], [1.0, 1.0]]], [[[1.0, 1.0], [1.0, 1.0]]]
        >>> verdict = audit(costs, prior_costs, contracts)
        >>> verdict.holds, verdict["backlog"].holds, verdict.first_breach
        (False, True, ('energy', 0, 1))
    """

    each: dict[str, Audit]
    """By contract."""

    def __getitem__(self, name: str) -> Audit:
        return self.each[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.each)

    def __len__(self) -> int:
        return len(self.each)

    @property
    def holds(self) -> bool:
        """Whether every promise held in every round of every episode."""
        return all(verdict.holds for verdict in self.each.values())

    @property
    def violations(self) -> NDArray[np.bool_]:
        """[N, H] where any of the promises is broken."""
        return np.asarray(np.any([verdict.violations for verdict in self.each.values()], axis=0))

    @property
    def violation_rate(self) -> float:
        """Share of the episodes in which any of the promises is broken."""
        return float(np.mean(np.any(self.violations, axis=1)))

    @property
    def worst_margin(self) -> float:
        """The smallest of the contracts' worst margins, each in its own unit of cost."""
        return min(verdict.worst_margin for verdict in self.each.values())

    @property
    def first_breach(self) -> tuple[str, int, int] | None:
        """(contract, episode, round) of the first violation of the first contract that has one; None if none has."""
        for name, verdict in self.each.items():
            if verdict.first_breach is not None:
                return (name, *verdict.first_breach)
        return None

    def __str__(self) -> str:
        parts = [f"{name}\n{verdict}" for name, verdict in self.each.items()]
        verdict = (
            "KEPT in every round" if self.holds else f"BROKEN in {self.violation_rate:.2%} of the episodes"
        )
        return "\n\n".join([*parts, f"All {len(parts)} promises: {verdict}"])


@overload
def audit(
    run: Run | Any,
    prior: Run | Any,
    contract: Contract,
    *,
    uncertified_from: Any = None,
    overridden: Any = None,
) -> Audit: ...


@overload
def audit(
    run: Run | Any,
    prior: Run | Any,
    contract: Mapping[str, Contract],
    *,
    uncertified_from: Any = None,
    overridden: Any = None,
) -> Audits: ...


def audit(
    run: Run | Any,
    prior: Run | Any,
    contract: Contract | Mapping[str, Contract],
    *,
    uncertified_from: Any = None,
    overridden: Any = None,
) -> Audit | Audits:
    """Check the promise of `contract` on every round of every episode.

    Costs are lists or arrays of whole numbers, float32 or float64, not necessarily both of the same type. float16 and
    bfloat16 are refused: 64 units of their round-off are 6 % and 50 % of the bound, in which a violation disappears.
    Sums do not lose digits. A violation by more than `tie_share` of the bound, and 3 units of float64 that the audit's
    own arithmetic may add, is always found.

    A cost of the run that is not finite breaks the promise from its round on. One of the prior, or a bound beyond the
    range of float64, is an error: there is nothing to compare with, "kept" would be a guess, and "broken" would blame
    the policy for a fault of the replay.

    A plant may be less exact than its type: it may compute small costs as differences of large numbers. What you allow
    for that is `b`: audit with a contract whose `b` is larger by it, in units of cost a round.

    Args:
        run: The policy's `Run`, or its costs [N, H]; of several contracts [N, H, m].
        prior: The prior's `Run` on the same episodes, or its costs, likewise.
        contract: The promise; several by name (`tether.Several.contracts`) in the order of the costs.
        uncertified_from: [N] `Guard.uncertified_from` after each episode, where costs were collected online; that of
            the `Run` if None.
        overridden: [N, H] whether a round was under an override (`Guard.rounds_under_override`), where what was applied
            was collected online; that of the `Run` if None. Those rounds are audited apart from the others.

    Example:
        >>> contract = Contract(lam=0.0, b=1.0, horizon=3)
        >>> verdict = audit(run=[[2.0, 2.0, 2.0]], prior=[[1.0, 1.0, 0.5]], contract=contract)
        >>> verdict.holds, verdict.first_breach, verdict.worst_margin
        (False, (0, 3), -0.5)
    """
    if isinstance(contract, Mapping):
        if overridden is not None:
            raise ValueError("overridden is for one contract: a guard of several takes no overrides")
        return _audit_several(run, prior, contract, uncertified_from)
    costs, prior_costs = _costs("run", run, contract), _costs("prior", prior, contract)
    if costs.shape != prior_costs.shape:
        raise ValueError(
            f"run and prior must be the same episodes, got costs {costs.shape} and {prior_costs.shape}"
        )
    bounds, magnitudes = _bounds(prior_costs, contract)
    ties = max(tie_share(costs.dtype), tie_share(prior_costs.dtype)) * magnitudes
    told = getattr(run, "uncertified_from", None) if uncertified_from is None else uncertified_from
    others = getattr(run, "overridden", None) if overridden is None else overridden
    if others is not None:
        others = np.asarray(others)
        if others.shape != costs.shape or others.dtype != np.bool_:
            raise ValueError(
                f"overridden must be true or false for each of {costs.shape} rounds, got {others!r}"
            )
    return Audit(contract, _running_sums(costs), bounds, ties, _certified(told, costs), others)


def _certified(told: Any, costs: NDArray[Any]) -> NDArray[Any] | None:
    """The round of each episode from which on nothing is certified, checked; None if nobody said."""
    if told is None:
        return None
    rounds = np.asarray(told)
    if rounds.dtype.kind == "f" and np.all(rounds == np.floor(rounds)):
        # Without a last round an episode that is certified throughout says infinity.
        rounds = np.minimum(rounds, costs.shape[1] + 1).astype(np.int64)
    if rounds.shape != (len(costs),) or not np.issubdtype(rounds.dtype, np.integer) or np.any(rounds < 1):
        raise ValueError(
            f"uncertified_from must hold a round, counted from 1, for each of {len(costs)} episodes, got {rounds!r}"
        )
    return rounds


def binomial_tail(least: int, count: int, share: float) -> float:
    """The probability of `least` or more of `count` independent cases, each with probability `share`."""
    if share <= 0.0 or least <= 0:
        return float(least <= 0)
    if share >= 1.0:
        return float(least <= count)
    log_odds, total = math.log(share) - math.log1p(-share), 0.0
    term = count * math.log1p(-share)  # logarithm of the probability of none
    for broken in range(count + 1):
        if broken >= least:
            total += math.exp(term)
            if math.exp(term) < 1e-18 * total:
                break
        term += math.log(max(count - broken, 1)) - math.log(broken + 1) + log_odds
    return min(total, 1.0)


def _audit_several(run: Any, prior: Any, contracts: Mapping[str, Contract], uncertified_from: Any) -> Audits:
    """One audit for each contract."""
    costs, prior_costs = (np.asarray(getattr(given, "costs", given)) for given in (run, prior))
    for name, given in (("run", costs), ("prior", prior_costs)):
        if given.ndim != 3 or given.shape[2] != len(contracts):
            raise ValueError(
                f"{name} must hold costs [N, H, {len(contracts)}] for {', '.join(contracts)}, got shape {given.shape}"
            )
    told = getattr(run, "uncertified_from", None) if uncertified_from is None else uncertified_from
    told = None if told is None else np.broadcast_to(np.asarray(told).T, (len(contracts), len(costs)))
    return Audits(
        {
            name: audit(
                costs[..., i],
                prior_costs[..., i],
                contract,
                uncertified_from=None if told is None else told[i],
            )
            for i, (name, contract) in enumerate(contracts.items())
        }
    )


def tie_share(dtype: Any) -> float:
    """The share of a bound by which a cost may exceed it and count as equal, for costs that came in this type.

    `UNITS` units of round-off for floating-point numbers: 1.4e-14 for float64, 7.6e-6 for float32. Whole numbers have
    none; left is that of the bound itself, 2 units of float64 (lam and b are rounded, multiplied and added).
    """
    own = float(np.finfo(np.float64).eps)
    kind = np.dtype(dtype)
    return 2.0 * own if kind.kind in "iu" else UNITS * max(float(np.finfo(kind).eps), own)


def margin(bounds: Any, costs: Any, xp: Any) -> Any:
    """Bound minus cumulative cost; -inf where the cost is not finite, which no bound allows."""
    return xp.where(xp.isfinite(costs), bounds - costs, -xp.inf)


def _costs(name: str, run: Any, contract: Contract) -> NDArray[Any]:
    """[N, H] the costs in the type in which they came, or why they cannot be audited."""
    given = getattr(run, "costs", run)
    rounds = "H" if contract.continuing else contract.horizon
    expected = f"{name} must hold costs [N, {rounds}] with N >= 1"
    try:
        costs = np.asarray(given)
    except ValueError as error:
        raise ValueError(f"{expected}, the same number of rounds in each episode: {error}") from error
    if costs.dtype.kind not in "iuf" or costs.dtype == np.float16:
        raise TypeError(
            f"{expected}, whole numbers, float32 or float64, got {costs.dtype}. Hand over the costs as the plant "
            "computes them: digits that were rounded away do not come back by a conversion"
        )
    fits = costs.ndim == 2 and (costs.shape[1] > 0 if contract.continuing else costs.shape[1] == rounds)
    if not fits or len(costs) == 0:
        raise ValueError(f"{expected}, got shape {costs.shape}")
    if costs.dtype.kind in "iu":
        _check_exact(name, costs)
    return costs


def _check_exact(name: str, costs: NDArray[np.integer]) -> None:
    """Refuse whole numbers whose sums float64 does not hold exactly."""
    sizes = np.abs(costs.astype(np.float64))
    if np.max(sizes) * costs.shape[1] < EXACT:
        return
    inexact = np.cumsum(sizes, axis=1) >= EXACT
    if np.any(inexact):
        raise ValueError(
            f"{name} adds up to 2**53 or more {_place(inexact)}, from where on float64 leaves out whole numbers: use "
            "a larger unit of cost, or hand the costs over as float64 if their last digits do not matter"
        )


def _bounds(prior_costs: NDArray[Any], contract: Contract) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[N, H] (1 + lam) J_h(prior) + h b, and the same of the absolute costs: the size of the numbers in it."""
    unknown = ~np.isfinite(prior_costs)
    if np.any(unknown):
        raise ValueError(
            f"prior must hold finite costs, got {prior_costs[unknown][0]} {_place(unknown)}: without what the prior "
            "costs there is nothing to compare with; mend the replay, or leave the episode out of both"
        )
    rounds: Any = np.arange(1, prior_costs.shape[1] + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        if contract.scheduled:
            weighed = (1.0 + contract.lam_at(rounds - 1, NUMPY)) * prior_costs.astype(np.float64)
            bounds = _running_sums(weighed) + contract.b_until(rounds, NUMPY)
        else:
            bounds = contract.bound(_running_sums(prior_costs), rounds)
        magnitudes = bounds
        if np.min(prior_costs) < 0:
            magnitudes = contract.bounds(np.abs(prior_costs.astype(np.float64)))
    beyond = ~np.isfinite(magnitudes)
    if np.any(beyond):
        raise ValueError(
            f"the bound of {contract} is beyond the range of float64 "
            f"{_place(beyond)}: use a larger unit of cost, or smaller lam and b"
        )
    return bounds, magnitudes


def _running_sums(costs: NDArray[Any]) -> NDArray[np.float64]:
    """[N, H] the sums of rounds 1..h, exact but for the last rounding; NaN from a cost on that is not finite.

    What each addition rounds off is collected (Knuth's two-sum) and added at the end, as a plain sum would forget every
    small cost that comes after a large one.
    """
    count, horizon = costs.shape
    sums = np.empty((count, horizon))
    together = 4096  # episodes at a time: their sums of a round stay in the processor's cache
    with np.errstate(over="ignore", invalid="ignore"):
        for first in range(0, count, together):
            by_round = np.array(costs[first : first + together].T, dtype=np.float64, order="C")  # a copy
            total, lost = np.zeros_like(by_round[0]), np.zeros_like(by_round[0])
            for cost in by_round:
                added = total + cost
                seen = added - total
                lost += (total - (added - seen)) + (cost - seen)
                total = added
                np.add(total, lost, out=cost)
            sums[first : first + together] = by_round.T
    return sums


def _place(found: NDArray[np.bool_]) -> str:
    """The first place of [N, H], in words."""
    episode, at = np.argwhere(found)[0]
    return f"in episode {episode}, round {at + 1}"
