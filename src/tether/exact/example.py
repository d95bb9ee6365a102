"""A small example for the exact algorithm: a backlog of deferrable work, and eight ways for a round to turn out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from tether.certificates import LipschitzCertificate, Rule
from tether.core import validate
from tether.core.contract import Contract
from tether.core.sensitivity import Sensitivity, geometric
from tether.exact.mixture import MixtureSystem


@dataclass(frozen=True)
class BacklogMixture:
    """Schedule deferrable work: which share of it to do now, and which to keep for the sun.

    Work x waits, demand mu_h arrives, renewables C_h are free, and the energy a is spent:

        left         w_h(x, a) = [x + mu_h - e a]^+                          work that has to wait
        next state   f_m(x, a) = min(X, kept_m w_h(x, a) + new_m)            m = 1..8, drawn each round
        cost         c_h(x, a) = 1 + w_h(x, a)                               floor 1
        reward       r_h(x, a) = price * min(e a, x + mu_h) - ([a - C_h]^+)^2
        prior        a = share (x + mu_h) / e                                does most of it at once

    Of the work that waits a share kept_m is still wanted a round later, the rest has gone elsewhere, and new_m is work
    that nobody foresaw. A policy that knew how patient the users are, and how much more is to come, would know how much
    to keep for the sun; the prior hardly waits, and the guard bounds how much more may wait than under the prior.

    theta mixes three kinds of hours: quiet with impatient users, quiet with patient ones, and busy.

    Proof of the sensitivity, for every state, action and draw. Minimum and positive part change by no more than their
    argument does, so:

    - immediate: c_h changes by at most e per unit of action.
    - carried: a unit of action changes f_m by at most e max_m kept_m. Under the prior w_h = (1 - share)(x + mu_h), so
      that c_h changes by 1 - share per unit of x. The product is `carried`.
    - rho: under the prior f_m changes by at most rho = (1 - share) max_m kept_m per unit of x; so p(n) = rho^n.

    The prior is at most share (X + max mu) / e, and the box of actions ends there.

    Example:
        >>> example = BacklogMixture()
        >>> example.sensitivity.immediate, round(example.sensitivity.carried, 3)
        (0.8, 0.24)
    """

    demand: tuple[float, ...] = (2.0, 2.0, 1.5, 1.0, 1.0, 0.5)
    """mu_h, work a round; its length is the horizon."""
    renewables: tuple[float, ...] = (0.0, 0.0, 0.0, 0.5, 6.0, 6.0)
    """C_h, energy a round."""
    capacity: float = 5.0
    """X, the most work that can wait."""
    efficiency: float = 0.8
    """e, planned work a unit of energy."""
    share: float = 0.7
    """Share of the work that the prior plans to do at once."""
    price: float = 3.0
    """Reward a unit of work."""
    kept: tuple[float, ...] = (0.1, 0.4, 0.7, 1.0)
    """Shares of the waiting work that can still be wanted a round later."""
    new: tuple[float, ...] = (0.0, 1.0)
    """Unforeseen work that can arrive."""
    initial: tuple[float, ...] = (0.0, 0.5, 1.0)
    """Work left over from the day before, x_1: each of them equally likely."""

    def __post_init__(self) -> None:
        if len(self.demand) != len(self.renewables):
            counts = f"{len(self.demand)} and {len(self.renewables)}"
            raise ValueError(f"demand and renewables must have one value a round each, got {counts}")
        for name in ("capacity", "efficiency", "price"):
            validate.number(name, getattr(self, name), above=0.0)
        if not 0.0 < self.share < 1.0 or not all(0.0 <= kept <= 1.0 for kept in self.kept):
            raise ValueError(
                f"share must be between 0 and 1 and kept within 0 to 1, got {self.share!r} and {self.kept!r}"
            )

    @property
    def theta(self) -> Any:
        """[3] what nature draws with in the experiments."""
        return np.array([0.6, 0.2, 0.2])

    @property
    def sensitivity(self) -> Sensitivity:
        """The constants that are proved above."""
        return Sensitivity(
            immediate=self.efficiency,
            carried=(1.0 - self.share) * self.efficiency * max(self.kept),
            perturbation=geometric((1.0 - self.share) * max(self.kept)),
        )

    def certificate(self, lam: float, b: float, rule: Rule = "tight") -> LipschitzCertificate:
        """The guard's certificate for the contract (lam, b)."""
        return LipschitzCertificate(
            Contract(lam, b, len(self.demand), cost_floor=1.0), self.sensitivity, rule
        )

    @property
    def system(self) -> MixtureSystem:
        """The system: one object for equal parameters, so that what is compiled for it is compiled once."""
        return _make_system(self)


@cache
def _make_system(example: BacklogMixture) -> MixtureSystem:
    demand, renewables = np.asarray(example.demand), np.asarray(example.renewables)

    def waiting(at: Any, x: Any) -> Any:
        return x + jnp.asarray(demand)[at - 1]

    def left(at: Any, x: Any, a: Any) -> Any:
        return jnp.maximum(waiting(at, x) - example.efficiency * a, 0.0)

    def transition(kept: float, new: float) -> Any:
        return lambda at, x, a: jnp.minimum(example.capacity, kept * left(at, x, a) + new)

    def cost(at: Any, x: Any, a: Any) -> Any:
        return 1.0 + left(at, x, a)

    def reward(at: Any, x: Any, a: Any) -> Any:
        done = jnp.minimum(example.efficiency * a, waiting(at, x))
        return example.price * done - jnp.maximum(a - jnp.asarray(renewables)[at - 1], 0.0) ** 2

    def prior(at: Any, x: Any) -> Any:
        return example.share * waiting(at, x) / example.efficiency

    impatient, quiet = _fading(len(example.kept), 3.0), _fading(len(example.new), 9.0)
    patient, busy = impatient[::-1], quiet[::-1]
    kinds = [(impatient, quiet), (patient, quiet), ((impatient + patient) / 2.0, busy)]
    columns = [np.outer(users, arrivals).ravel() for users, arrivals in kinds]
    return MixtureSystem(
        horizon=len(example.demand),
        states=(0.0, example.capacity),
        actions=(0.0, example.share * (example.capacity + max(example.demand)) / example.efficiency),
        initial=example.initial,
        transitions=tuple(transition(kept, new) for kept in example.kept for new in example.new),
        reward=reward,
        cost=cost,
        prior=prior,
        mixture=np.stack(columns, axis=1),
    )


def _fading(count: int, ratio: float) -> Any:
    """A distribution over `count` levels, each `ratio` times less likely than the one before."""
    weights = ratio ** -np.arange(count)
    return weights / weights.sum()
