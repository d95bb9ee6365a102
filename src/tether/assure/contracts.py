"""Contracts as plants have them, attacked: no last round, schedules, raised while running, with a probability.

The plants are a fleet, and their constants are exact by construction. With a gap e = x - x+ to the prior's plant on the
same draws, and a deviation d = a - prior(x),

    x'   = rho x + L_f d + w           so that e' = rho e + L_f d exactly,
    cost = eps + L_c (|x - x+ - o| + |a - prior(x+) - o|)       prior(x) = L_pi x,  o: how far from ideal the prior is

where o = 0 in most plants: the prior then pays the floor, and with every deviation in the direction of the gap each
inequality of the proof is an equality. Nothing is to spare, and any slack that is given away shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tether.certificates import LipschitzCertificate, Rule
from tether.core.audit import binomial_tail, tie_share
from tether.core.contract import Contract
from tether.core.fleet import Fleet
from tether.core.noise import cut_noise
from tether.core.schedule import periodic
from tether.core.sensitivity import Sensitivity, geometric

Kind = Literal["continuing", "schedule", "raised", "probability"]
Floats = NDArray[np.float64]

RULES: tuple[Rule, ...] = ("tight", "released", "paper")
RHO, L_C, L_F, L_PI, FLOOR = 0.5, 3.0, 0.7, 0.5, 1.0
HORIZON = 24
DELTAS = (0.5, 0.1, 0.01, 0.001)
NOISE = 0.05
"""Standard deviation of the noise of the cost's slope, in `probability`."""


@dataclass(frozen=True)
class Finding:
    """What an attack came to."""

    kind: str
    contract: str
    rule: str
    plants: int
    """Episodes."""
    rounds: int
    """Of all episodes together."""
    violations: int
    """Episodes in which the promise was broken."""
    unguarded: int
    """Episodes in which the same proposals break it without a guard."""
    breaches: int
    """Episodes in which the guard said that an assumption was breached: false alarms, but in `probability`."""
    allowed: float
    """The share of the episodes that may be in violation: 0 of a certain promise."""
    nearest: float
    """The smallest margin as a share of its bound."""
    early: float
    """Mean radius in the second tenth of the rounds, action units."""
    late: float
    """Mean radius in the last tenth."""

    @property
    def kept(self) -> bool:
        """Whether nothing speaks against the promise."""
        return binomial_tail(self.violations, self.plants, self.allowed) >= 1e-3 and (
            self.allowed > 0.0 or self.breaches == 0
        )


class Plants:
    """n plants and their priors' on the same draws."""

    def __init__(self, n: int, rng: np.random.Generator, noise: float = 0.0) -> None:
        self.n, self.rng, self.noise = n, rng, noise
        self.own, self.prior = np.zeros(n), np.zeros(n)
        self.off = rng.exponential(size=n) * rng.choice([0.0, 0.0, 1.0], size=n)
        self.shake = rng.choice([0.0, 1.0, 10.0], size=n)

    def step(self, deviation: Floats) -> tuple[Floats, Floats]:
        """The costs of the round, own and the prior's; then the next states."""
        gap = self.own - self.prior
        slope = L_C * (1.0 + (self.noise * np.abs(self.rng.normal(size=self.n)) if self.noise else 0.0))
        moved = L_PI * gap + deviation
        cost = FLOOR + slope * (_distance(gap, self.off) + _distance(moved, self.off))
        prior_cost = FLOOR + slope * 2.0 * np.abs(self.off)
        drawn = self.shake * self.rng.normal(size=self.n)
        self.own = self.prior * RHO + gap * RHO + L_F * deviation + drawn
        self.prior = self.prior * RHO + drawn
        return cost, prior_cost


def _distance(moved: Floats, off: Floats) -> Floats:
    """|moved - off|, round-off of the simulation not counted."""
    found: Floats = np.maximum(np.abs(moved - off) - 1e-10 * (off == 0.0), 0.0)
    return found


def proposals(plants: Plants, styles: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """[n] how far from the prior each hostile learner proposes to go."""
    n = plants.n
    outward = np.where(plants.own >= plants.prior, 1.0, -1.0)
    strikes = rng.random(n) < 0.02
    size = np.exp(rng.normal(0.0, 3.0, size=n))
    wishes = [
        1e3 * outward,
        1e3 * rng.choice([-1.0, 1.0], size=n),
        np.where(strikes, 1e3 * outward, 0.0),
        size * rng.choice([-1.0, 1.0], size=n),
        rng.choice([1e3, 1e20, math.inf, math.nan], size=n) * outward,
    ]
    return np.choose(styles, wishes)


class Account:
    """(1 + lam) J(prior) + sum of b - J, without loss of digits, and the size of the bound."""

    def __init__(self, n: int) -> None:
        self.margin, self._lost, self.bound = np.zeros(n), np.zeros(n), np.zeros(n)
        self.nearest, self.broken = np.full(n, math.inf), np.zeros(n, dtype=bool)

    def close(self, cost: Floats, prior_cost: Floats, lam: float, b: float) -> None:
        """Add a round, and look whether the promise held."""
        for term in ((1.0 + lam) * prior_cost, np.full_like(cost, b), -cost):
            added = self.margin + term
            seen = added - self.margin
            self._lost += (self.margin - (added - seen)) + (term - seen)
            self.margin = added
        self.bound += (1.0 + lam) * prior_cost + b
        left = (self.margin + self._lost) / self.bound
        self.nearest = np.minimum(self.nearest, left)
        self.broken |= ~(left >= -tie_share(np.float64))


def certificate_of(contract: Contract, rule: Rule, loosen: float, slope: float = L_C) -> LipschitzCertificate:
    """The plants' certificate; `loosen` above 1 claims constants that are smaller by it."""
    exact = Sensitivity.from_lipschitz(slope, L_F, L_PI, geometric(RHO))
    bounds = replace(exact, immediate=exact.immediate / loosen, carried=exact.carried / loosen)
    return LipschitzCertificate(contract, bounds, rule)


def attack_once(
    kind: str,
    certificate: LipschitzCertificate,
    plants: int,
    rounds: int,
    seed: int,
    *,
    raises: dict[int, tuple[float, float]] | None = None,
    noise: float = 0.0,
    report: Callable[[int], None] = lambda _: None,
) -> Finding:
    """One episode of every plant, guarded, and the same proposals unguarded.

    Args:
        kind: What is attacked.
        certificate: Of every plant.
        plants: How many.
        rounds: Of the episode.
        seed: Of all draws.
        raises: By round, before which the contract is raised, to which (lam, b).
        noise: Standard deviation of the noise of the cost's slope, relative.
        report: Called with every round.
    """
    guarded, free = (Plants(plants, np.random.default_rng((seed, 0)), noise) for _ in range(2))
    rng = np.random.default_rng((seed, 1))
    fleet = Fleet(certificate, lambda observations: L_PI * observations[:, 0], plants, resolution=0.0)
    accounts = [Account(plants), Account(plants)]
    styles = rng.integers(5, size=plants)
    radii = np.zeros(rounds)
    for h in range(rounds):
        if raises and h in raises:
            lam, b = raises[h]
            fleet.raise_contract(lam=lam, b=b)
        promise: Any = fleet.certificate.contract
        lam, b = (_at(getattr(promise, name), h) for name in ("lam", "b"))
        wish = proposals(guarded, styles, rng)
        prior = L_PI * guarded.own
        decision = fleet.act(guarded.own[:, None], prior + wish)
        cost, prior_cost = guarded.step(decision.actions - prior)
        fleet.observe(cost)
        accounts[0].close(cost, prior_cost, lam, b)
        usable = np.where(np.isfinite(wish), np.clip(wish, -1e3, 1e3), 0.0)
        accounts[1].close(*free.step(usable), lam, b)
        radii[h] = decision.radii.mean()
        report(h + 1)
    tenth = max(rounds // 10, 1)
    return Finding(
        kind,
        str(certificate.contract),
        certificate.rule,
        plants,
        plants * rounds,
        int(accounts[0].broken.sum()),
        int(accounts[1].broken.sum()),
        int(fleet.breached.sum()),
        1.0 - certificate.contract.confidence,
        float(accounts[0].nearest.min()),
        float(radii[tenth : 2 * tenth].mean()) if rounds > tenth else float(radii.mean()),
        float(radii[-tenth:].mean()),
    )


def _at(rate: Any, h: int) -> float:
    if hasattr(rate, "values"):
        return float(rate.values[h % len(rate.values)])
    return float(rate)


def attack(
    kind: Kind,
    plants: int,
    rounds: int,
    episodes: int,
    seed: int,
    loosen: float = 1.0,
    report: Callable[[int], None] = lambda _: None,
) -> Iterator[Finding]:
    """Attack one kind of contract.

    Args:
        kind: `continuing`, `schedule`, `raised` or `probability`.
        plants: At a time.
        rounds: Of every plant without a last round.
        episodes: In all, where there is a last round (24 rounds each).
        seed: Of the draws.
        loosen: Claim constants that are smaller by this factor; above 1 the promise must break.
        report: Called with the rounds of each piece.
    """
    if kind == "continuing":
        for place, rule in enumerate(RULES):
            for contract in (
                Contract(0.5, 0.1, math.inf, FLOOR),
                Contract(0.0, 1.0, math.inf, 0.0),
                Contract(periodic([0.0, 0.2, 1.0]), periodic([0.5, 0.0]), math.inf, FLOOR),
            ):
                made = certificate_of(contract, rule, loosen)
                share = max(rounds // (3 * len(RULES)), 10)
                yield attack_once(kind, made, plants, share, seed + place, report=report)
        return
    pieces = max(episodes // plants, 1)
    found: dict[tuple[str, str], Finding] = {}
    for piece in range(pieces):
        rng = np.random.default_rng((seed, 2, piece))
        # With a probability the promise is seen to fail where the safe set is the largest: rule `tight`.
        chosen: Rule = "tight" if kind == "probability" else RULES[piece % len(RULES)]
        each = _piece(kind, plants, seed + piece, rng, chosen, loosen, piece)
        report(piece + 1)
        key = (chosen, each.contract if kind == "probability" else "")
        found[key] = each if key not in found else _together(found[key], each)
    yield from found.values()


def _piece(
    kind: str, plants: int, seed: int, rng: np.random.Generator, rule: Rule, loosen: float, piece: int
) -> Finding:
    """One batch of episodes of 24 rounds."""
    if kind == "schedule":
        lam, b = (rng.choice([0.0, 0.1, 1.0], size=HORIZON).tolist() for _ in range(2))
        contract = Contract(lam, b, HORIZON, FLOOR)
        return attack_once(kind, certificate_of(contract, rule, loosen), plants, HORIZON, seed)
    if kind == "raised":
        made = certificate_of(Contract(0.1, 0.1, HORIZON, FLOOR), rule, loosen)
        at = np.sort(rng.choice(np.arange(1, HORIZON), size=2, replace=False)).tolist()
        raises = {at[0]: (0.1, 0.5), at[1]: (1.0, 0.5)}
        return attack_once(kind, made, plants, HORIZON, seed, raises=raises)
    delta = DELTAS[piece % len(DELTAS)]
    cut = cut_noise(delta, HORIZON, scale=NOISE)
    contract = cut.signed(Contract(0.1, 0.1, HORIZON, FLOOR))
    made = certificate_of(contract, rule, loosen, slope=L_C * (1.0 + cut.high))
    return attack_once(kind, made, plants, HORIZON, seed, noise=NOISE)


def _together(first: Finding, second: Finding) -> Finding:
    """Two findings of the same kind as one."""
    sums = ("plants", "rounds", "violations", "unguarded", "breaches")
    added = {name: getattr(first, name) + getattr(second, name) for name in sums}
    return replace(
        first, **added, nearest=min(first.nearest, second.nearest), early=second.early, late=second.late
    )
