"""Random systems whose constants are known exactly, to see whether `tether.verify` finds them.

A system has n parts. Part i has a state x_i, an action a_i and a draw (w_i, e_i). With
tent(w) = max(0, 1 - |w - peak| / 0.15), which is 1 at one w only and 0 on most of [0, 1]:

    prior     pi_i = clip(-g x_i, -A, A)
    dynamics  x_i' = clip(k x_i + beta(w_i) a_i + e_i, -2, 2),   beta(w) = (k + rho tent(w)) / g
    cost      eps + sum_i (1/2 + tent(w_i)/2) (s [|x_i| - r]^+ + t [|a_i| - q]^+) + d (1 - tent(w_i))

with 0 < k < rho < 1, z = A/g (where the prior saturates), r = 0.6 z, q = 0.6 A, |x_i| <= 1, |e_i| <= z, and
z < 0.3. Why the constants of one part are exact:

- *cost floor* eps: every term is at least 0, and all are 0 for small x and a at the peak of w.
- *L_c* in the state is s, in the action t: slopes of hinges, reached at the peak of w only.
- *L_f* in the state is k, in the action (k + rho)/g: reached at the peak of w, where the clip at 2 is not active.
- *L_pi* is g, where the prior is not saturated: for |x| < z, a small part of the states.
- *p(n)* is rho^n. Under the prior the slope of x' in x is k - beta(w) g = -rho tent(w) for |x| < z, and k < rho
  beyond; all functions are continuous, so no gap grows by more than rho a round. Near x = 0 with e = 0 and all w at the
  peak the trajectory stays where the slope is -rho, and the gap is multiplied by rho in every round.
- *immediate* is t: the hinge is active at the prior's action and beyond it where g |x| >= q.
- *carried (n)* is (k + rho)/g (s + t g), relative to p(n) = rho^n: under the prior the cost as a function of x has
  the slope s + t g for 0.6 z < |x| < z, and at most s beyond; it is met by a gap of at most (k + rho)/g rho^n per
  unit of deviation. It is reached: with |e| <= z the trajectory can be held in that band in every round.

Parts do not see each other, so in the norm `linf` the costs' constants add up and the others are the largest of the
parts', and in the norm `l2` the costs' constants add up as squares. For p = max rho_i and carried (n) with parts of
different rho_i, the parts' contributions fade at their own rate: the sum is over (k_i + rho_i)/g_i (s_i + t_i g_i)
(rho_i / max rho)^n. In the norm `l2` state and action are seen through rotations, which that norm does not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from rich.table import Table

from tether.assure.verify import Constants, Search, Simulator, claims_of, functions, refute, replay
from tether.assure.verify.claims import select
from tether.core.ops import namespace
from tether.core.projection import Norm
from tether.core.sensitivity import Sensitivity, geometric

TENT = 0.15
ROUNDS = 2
"""How far p is followed."""
_KINDS: tuple[tuple[int, Norm], ...] = ((1, "l2"), (2, "l2"), (2, "linf"))
"""Number of parts, and norm."""


class Parts(eqx.Module):
    """The numbers of a system; each is [n], the rotations are [n, n]."""

    k: Any
    g: Any
    rho: Any
    saturation: Any
    """z"""
    state_slope: Any
    """s"""
    action_slope: Any
    """t"""
    dip: Any
    """d"""
    peak: Any
    floor: Any
    """eps, a number."""
    turn_state: Any
    turn_action: Any

    @classmethod
    def draw(cls, rng: np.random.Generator, n: int, rotated: bool) -> Parts:
        """Parameters at random."""
        rho = rng.uniform(0.4, 0.9, size=n)
        turns = [np.linalg.qr(rng.normal(size=(n, n)))[0] if rotated else np.eye(n) for _ in range(2)]
        return cls(
            k=rho * rng.uniform(0.2, 0.9, size=n),
            g=rng.uniform(0.5, 2.0, size=n),
            rho=rho,
            saturation=rng.uniform(0.1, 0.3, size=n),
            state_slope=rng.uniform(0.5, 3.0, size=n),
            action_slope=rng.uniform(0.5, 3.0, size=n),
            dip=rng.uniform(0.5, 2.0, size=n),
            peak=rng.uniform(0.2, 0.8, size=n),
            floor=np.asarray(rng.uniform(0.5, 2.0)),
            turn_state=turns[0],
            turn_action=turns[1],
        )

    def prior(self, state: Any) -> Any:
        """The trusted action, [n]."""
        xp = namespace(state)
        limit = self.g * self.saturation
        return self.turn_action @ xp.clip(-self.g * (self.turn_state.T @ state), -limit, limit)

    def step(self, state: Any, action: Any, draw: Any) -> Any:
        """The next state, [n]."""
        xp = namespace(state)
        tent, noise = self._drawn(draw, xp)
        gain = (self.k + self.rho * tent) / self.g
        x, a = self.turn_state.T @ state, self.turn_action.T @ action
        return self.turn_state @ xp.clip(self.k * x + gain * a + noise, -2.0, 2.0)

    def cost(self, state: Any, action: Any, draw: Any) -> Any:
        """A number."""
        xp = namespace(state)
        tent, _ = self._drawn(draw, xp)
        x, a = self.turn_state.T @ state, self.turn_action.T @ action
        far = xp.maximum(abs(x) - 0.6 * self.saturation, 0.0)
        hard = xp.maximum(abs(a) - 0.6 * self.g * self.saturation, 0.0)
        hinges = self.state_slope * far + self.action_slope * hard
        return self.floor + xp.sum(0.5 * (1.0 + tent) * hinges + self.dip * (1.0 - tent))

    def _drawn(self, draw: Any, xp: Any) -> tuple[Any, Any]:
        n = self.k.shape[0]
        return xp.maximum(1.0 - abs(draw[:n] - self.peak) / TENT, 0.0), draw[n:]


def exact_system(seed: int) -> tuple[Simulator, Sensitivity, Constants, dict[str, float]]:
    """The system of a seed: (system, bounds, further constants, the exact constant of each claim by its name)."""
    rng = np.random.default_rng(seed)
    # A number, or a vector in one of two norms: three kinds, a third of the systems each.
    n, norm = _KINDS[int(rng.integers(len(_KINDS)))]
    parts = Parts.draw(rng, n, rotated=norm == "l2" and n > 1)
    widest = 2.0 * np.sqrt(n) * np.max(parts.g * parts.saturation)
    noise = parts.saturation
    system = functions(
        eqx.Partial(Parts.cost, parts),
        eqx.Partial(Parts.step, parts),
        eqx.Partial(Parts.prior, parts),
        states=(-np.ones(n), np.ones(n)),
        actions=(-widest * np.ones(n), widest * np.ones(n)),
        draws=(np.concatenate([np.zeros(n), -noise]), np.concatenate([np.ones(n), noise])),
        norm=norm,
        # Without the seed: systems of one kind share what is compiled.
        name=f"random system of {n} parts in {norm}",
    )

    def together(slopes: Any) -> float:
        """Of the costs, which add up."""
        return float(np.sum(slopes) if norm == "linf" else np.sqrt(np.sum(slopes**2)))

    gain = (parts.k + parts.rho) / parts.g
    slope_under_prior = parts.state_slope + parts.action_slope * parts.g
    rho = float(parts.rho.max())
    carried = [together(gain * slope_under_prior * (parts.rho / rho) ** index) for index in range(ROUNDS)]
    truth = {
        "cost floor": float(parts.floor),
        "L_c (state)": together(parts.state_slope),
        "L_c (action)": together(parts.action_slope),
        "L_f (state)": float(parts.k.max()),
        "L_f (action)": float(gain.max()),
        "L_pi": float(parts.g.max()),
        **{f"p({index})": rho**index for index in range(1, ROUNDS + 1)},
        "immediate": together(parts.action_slope),
        **{f"carried ({index})": value for index, value in enumerate(carried)},
    }
    bounds = Sensitivity(truth["immediate"], truth["carried (0)"], geometric(rho))
    constants = Constants(
        cost_floor=truth["cost floor"],
        L_c=(truth["L_c (state)"], truth["L_c (action)"]),
        L_f=(truth["L_f (state)"], truth["L_f (action)"]),
        L_pi=truth["L_pi"],
    )
    return system, bounds, constants, truth


def check_search(
    systems: int,
    seed: int,
    search: Search,
    report: Callable[[int, dict[str, Any]], None] = lambda _done, _study: None,
    claims: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Let the search loose on claims at the exact constants, and on claims that are too small by a tenth.

    Args:
        systems: How many; their seeds are 0, 1, ...
        seed: Of the search.
        search: How hard.
        report: Called after each system with their number so far and what would be returned by then.
        claims: Names of the claims to look at; all without it.

    Returns:
        For each claim how often it was refuted at the exact constant (`refuted_at_truth`, which must be 0), at nine
        tenths of it (`refuted_at_90`; the cost floor at ten ninths), and how often the largest ratio is within 5 % of
        the exact constant (`within_5`); `shares` are the largest ratios as shares of the exact constants.
    """
    found = []
    for index in range(systems):
        found.append(check_system(index, seed, search, claims))
        report(index + 1, gathered(found))
    return gathered(found)


class Checked(NamedTuple):
    """What the search came to on one claim about one system."""

    claim: str
    refuted_at_truth: bool
    refuted_at_90: bool
    share: float
    """The largest ratio as a share of the exact constant."""


def check_system(index: int, seed: int, search: Search, claims: Sequence[str] | None = None) -> list[Checked]:
    """Let the search loose on one system; see `check_search`."""
    system, bounds, constants, truth = exact_system(index)
    made = claims_of(system, bounds, constants, ROUNDS)
    exact = [
        replace(claim, claimed=-truth[claim.name] if claim.lower else truth[claim.name])
        for claim in (made if claims is None else select(made, claims))
    ]
    found = []
    for claim, finding in zip(exact, refute(system, exact, search, seed).findings, strict=True):
        assert claim.claimed is not None
        share = truth[claim.name] / finding.largest if claim.lower else finding.largest / truth[claim.name]
        bolder = replace(claim, claimed=claim.claimed / 0.9 if claim.lower else claim.claimed * 0.9)
        refuted = finding.verdict == "refuted"
        found.append(Checked(claim.name, refuted, replay(bolder, finding.point)[1], share))
    return found


def gathered(systems: Sequence[Sequence[Checked]]) -> dict[str, Any]:
    """What `check_search` returns, from what was found on each system."""
    rows: dict[str, dict[str, Any]] = {}
    for each in (each for found in systems for each in found):
        row = rows.setdefault(
            each.claim, {"refuted_at_truth": 0, "refuted_at_90": 0, "within_5": 0, "shares": []}
        )
        row["refuted_at_truth"] += each.refuted_at_truth
        row["refuted_at_90"] += each.refuted_at_90
        row["within_5"] += each.share >= 0.95
        row["shares"].append(each.share)
    return {"systems": len(systems), "claims": [{"claim": name} | row for name, row in rows.items()]}


def study_table(study: dict[str, Any]) -> Table:
    """What `check_search` returned, a row a claim."""
    table = Table(
        "claim",
        "refuted at the exact constant",
        "refuted at 90 % of it",
        "within 5 % of it",
        "worst share found",
        title=f"{study['systems']} random systems with exactly known constants",
    )
    for row in study["claims"]:
        counts = [str(row[name]) for name in ("refuted_at_truth", "refuted_at_90", "within_5")]
        table.add_row(row["claim"], *counts, f"{min(row['shares']):.4f}")
    return table
