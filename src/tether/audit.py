"""Did the promise hold? The prior replayed on the same draws, compared round by round in float64."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tether.contract import Contract
from tether.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Audit:
    """The verdict on a batch of episodes; `print` it, or save its `figure`."""

    contract: Contract
    cumulative_costs: NDArray[np.float64]
    """[N, H] J_h of the audited policy."""
    bounds: NDArray[np.float64]
    """[N, H] (1 + lam) J_h(prior) + h b."""
    round_off: float
    """Relative round-off of the costs as they came. Two compiled programs that compute the same costs can differ by
    that much, so that a cost above its bound by no more than this share of it is a tie, not a violation."""
    magnitude: float
    """The prior's largest cost in any round, which takes part in a tie too. A small cost is often the square of a
    difference of large numbers (a shortfall is demand minus charge), and its round-off is that of those numbers, not
    its own. Only the prior's costs count: an audited policy must not excuse itself by a cost that is huge elsewhere."""
    uncertified_from: NDArray[np.integer] | None = None
    """[N] the round, counted from 1, from which on the promise was not certified, because the guard saw an assumption
    breached in it; H + 1 if it was certified in every round. None if no guard told."""

    @property
    def margins(self) -> NDArray[np.float64]:
        """[N, H] bound minus cost: negative where the promise is broken."""
        return self.bounds - self.cumulative_costs

    @property
    def violations(self) -> NDArray[np.bool_]:
        """[N, H] where the promise is broken; a cost that is not a number breaks it."""
        return ~(self.margins >= -self.round_off * (self.bounds + self.magnitude))

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
        """Smallest margin over all rounds of all episodes, cost units."""
        margins = self.margins
        return float("nan") if np.isnan(margins).any() else float(np.min(margins))

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
            f"Promise: J_h <= (1 + {contract.lam:g}) J_h(prior) + {contract.b:g} h",
            f"Checked: {count} episodes of {horizon} rounds",
            f"Verdict: {'KEPT in every round' if self.holds else 'BROKEN'}",
            f"  episodes in violation   {np.any(self.violations, axis=1).sum()} of {count} ({self.violation_rate:.2%})",
            f"  worst margin            {self.worst_margin:.6g} (cost units; negative is a violation)",
            f"  mean cost at the end    {np.mean(self.cumulative_costs[:, -1]):.6g}, "
            f"bound {np.mean(self.bounds[:, -1]):.6g}",
            f"  worst cost at the end   {np.max(self.cumulative_costs[:, -1]):.6g}",
        ]
        if self.uncertified_from is not None:
            lines.append(f"  certified               {self._certified_text()}")
        if self.first_breach is not None:
            episode, at = self.first_breach
            lines.append(f"  first breach            episode {episode}, round {at}")
        return "\n".join(lines)

    def _certified_text(self) -> str:
        """From which round on the promise is no longer certified, and whether it was broken before that."""
        count, horizon = self.cumulative_costs.shape
        assert self.uncertified_from is not None
        stopped = self.uncertified_from[self.uncertified_from <= horizon]
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

    def figure(self, path: str | Path | None = None) -> Figure:
        """Cumulative cost as a share of its bound over the rounds: the median, the spread, and the worst episode.

        Args:
            path: Where to save it (.png, .svg or .pdf); None to only return it.
        """
        from tether.experiments.figures import audit_figure, save

        figure = audit_figure(self)
        if path is not None:
            save(figure, path)
        return figure


def audit(run: Run | Any, prior: Run | Any, contract: Contract, *, uncertified_from: Any = None) -> Audit:
    """Check the promise of `contract` on every round of every episode.

    Args:
        run: The policy's `Run`, or its costs [N, H].
        prior: The prior's `Run` on the same episodes, or its costs [N, H].
        contract: The promise.
        uncertified_from: [N] `Guard.uncertified_from` after each episode, where costs were collected online; that of
            the `Run` if None.

    Example:
        >>> contract = Contract(lam=0.0, b=1.0, horizon=3)
        >>> verdict = audit(run=[[2.0, 2.0, 2.0]], prior=[[1.0, 1.0, 0.5]], contract=contract)
        >>> verdict.holds, verdict.first_breach, verdict.worst_margin
        (False, (0, 3), -0.5)
    """
    costs, prior_costs = _costs("run", run, contract), _costs("prior", prior, contract)
    if costs.shape != prior_costs.shape:
        raise ValueError(
            f"run and prior must be the same episodes, got costs {costs.shape} and {prior_costs.shape}"
        )
    rounds = np.arange(1, contract.horizon + 1)
    bounds = contract.bound(np.cumsum(prior_costs, axis=1, dtype=np.float64), rounds)
    round_off = 64.0 * float(max(np.finfo(costs.dtype).eps, np.finfo(prior_costs.dtype).eps))
    magnitude = float(np.max(prior_costs, where=np.isfinite(prior_costs), initial=0.0))
    told = getattr(run, "uncertified_from", None) if uncertified_from is None else uncertified_from
    if told is not None:
        told = np.asarray(told)
        if told.shape != (len(costs),) or not np.issubdtype(told.dtype, np.integer) or np.any(told < 1):
            raise ValueError(
                f"uncertified_from must hold a round, counted from 1, for each of {len(costs)} episodes, got {told!r}"
            )
    return Audit(contract, np.cumsum(costs, axis=1, dtype=np.float64), bounds, round_off, magnitude, told)


def _costs(name: str, run: Any, contract: Contract) -> NDArray[np.floating]:
    costs = np.asarray(getattr(run, "costs", run))
    if not np.issubdtype(costs.dtype, np.floating):
        costs = costs.astype(np.float64)
    if costs.ndim != 2 or len(costs) == 0 or costs.shape[1] != contract.horizon:
        raise ValueError(
            f"{name} must hold costs [N, {contract.horizon}] with N >= 1, got shape {costs.shape}"
        )
    return costs
