"""One car's stay as a model that `tether.compile` takes: a round now, and the rest of the stay as another one.

A stay ends at the time that the driver named. Nothing in it is random, so what one round does to the energy that is
missing then is bounded from these two rounds alone. The garage's promise is a sum over its cars, so its bounds are sums
of theirs: what `Shadowed` computes with the battery's flow, `Stays` takes from the compiled bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import tether
from tether.certificates.structure import Round
from tether_plants.evcharging.structure import FULL, HOURS, Shadowed, flow

MOST, BENT = 100.0, 0.2 * FULL
"""kWh that a car can miss; and below which a battery at full power takes less and less."""
LOW, HIGH = np.array([0.0, 0.0]), np.array([MOST, 24.0])
ROUND = np.array([0.0, 1.0])


def charged(x: Any, z: Any) -> Any:
    """KWh missing after this round (z = 0) or the rest of the stay (z = 1) at 32 A; x: kWh missing, hours of rest."""
    hours = (1.0 - z) * HOURS + z * x[1]
    between = jnp.minimum(jnp.clip(x[0] - BENT, 0.0, MOST) / FULL - hours, 0.0)
    bent = BENT * jnp.maximum(jnp.exp(5.0 * between) - jnp.exp(-5.0 * hours), 0.0)
    return (
        jnp.minimum(x[0], BENT) * jnp.exp(-5.0 * hours) + bent + jnp.maximum(x[0] - BENT - FULL * hours, 0.0)
    )


STAY = tether.Model(
    step=lambda x, _z, a, _w: jnp.stack([a, x[1]]),  # an action is what is missing after it
    cost=lambda _x, z, a, _w: z * a,  # which costs at the end of the stay
    prior=charged,
    state=(LOW, HIGH), action=(0.0, MOST), context=(0.0, 1.0), band=(ROUND, ROUND),
)  # fmt: skip


@cache
def stay() -> Any:
    """What follows from the model; lam and b are the garage's."""
    return tether.compile(STAY, tether.Contract(lam=0.0, b=0.0, horizon=2, cost_floor=0.0)).system


@dataclass(frozen=True)
class Stays(Shadowed):
    """`Shadowed` with the compiled bounds of each car's stay in place of the flow."""

    kind: ClassVar[str] = "stays"

    def __post_init__(self) -> None:
        stay()  # now, not when a program that uses it is being traced

    def searching(self) -> Any:
        """As the compiled bounds."""
        return stay().searching()

    def excesses(self, now: Round, power: Any, ops: Any) -> Any:
        """See `Shadowed.excesses`."""
        missing, left, _ = now.seen
        rest = HOURS * ops.clip(left - 1.0, 0.0, 24.0 / HOURS)

        def of_car(own: Any, prior: Any, rest: Any, after: Any) -> Any:
            zero = 0.0 * own
            seen, prior_seen = ((jnp.stack([each, rest]), zero[None]) for each in (own, prior))
            gaps = stay().gaps_between(seen, prior_seen, ops)
            car = Round(gaps, seen, charged(seen[0], zero), now.lam, now.cost_floor, 0.0, MOST)
            return stay().bounds(car, after, 0, ops).totals[-1]

        after = flow(missing, power, HOURS, ops)
        return jax.vmap(of_car)(*(jnp.asarray(each) for each in (missing, now.gaps[0], rest, after)))


@dataclass(frozen=True)
class Compiled(tether.Structured):
    """A certificate with compiled bounds in it."""

    long: ClassVar[bool] = True
    """See `tether.certificates.compiled.Compiled`."""
