"""A model's functions of flat vectors, which is what intervals are computed of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from tether.certificates.cells import rounded
from tether.certificates.intervals import Array, Interval
from tether.certificates.model import Model


@dataclass(frozen=True, eq=False)
class Flat:
    """A model whose states, contexts, actions and draws are vectors, [n], [nz], [m] and [p]."""

    model: Model

    def _shaped(self, which: int, values: Array) -> Array:
        return jnp.reshape(values, self.model.shapes[which])

    def read(self, observation: Any) -> tuple[Array, Array]:
        """(x, z) of an observation."""
        if self.model.read is not None:
            x, z = self.model.read(observation)
        else:
            flat = jnp.reshape(jnp.asarray(observation), (-1,))
            n = self.model.sizes[0]
            x, z = flat[:n], flat[n:]
        x, z = jnp.reshape(jnp.asarray(x), (-1,)), jnp.reshape(jnp.asarray(z), (-1,))
        if (x.size, z.size) != self.model.sizes[:2]:
            raise ValueError(
                f"an observation must give {self.model.sizes[0]} entries of the state and {self.model.sizes[1]} of the "
                f"context, got {x.size} and {z.size}"
            )
        return x, z

    def played(self, x: Array, z: Array, a: Array, w: Array) -> list[Array]:
        """Cost [1] and next state [n]."""
        given = [self._shaped(i, each) for i, each in enumerate((x, z, a, w))]
        if self.model.play is not None:
            cost, after = self.model.play(*given)
        else:
            cost, after = self.model.cost(*given), self.model.step(*given)
        return [jnp.reshape(cost, (1,)).astype(x.dtype), jnp.reshape(after, (-1,)).astype(x.dtype)]

    def policy(self, plan: int, x: Array, z: Array) -> Array:
        """[m] what the prior (0) or a backup plays, a backup within the range of actions."""
        policy = (self.model.prior, *self.model.backups.values())[plan]
        action = jnp.reshape(policy(self._shaped(0, x), self._shaped(1, z)), (-1,)).astype(x.dtype)
        if plan == 0:
            return action
        low, high = (jnp.asarray(end, x.dtype) for end in self.model.box("action"))
        return jnp.minimum(jnp.maximum(action, low), high)

    def closed_loop(self, plan: int, x: Array, z: Array, w: Array) -> list[Array]:
        """The same where the prior (0) or a backup plays."""
        return self.played(x, z, self.policy(plan, x, z), w)

    def box(self, name: str, dtype: Any) -> Interval:
        """A range of the model, rounded outward."""
        low, high = self.model.box(name)
        return Interval(rounded(low, dtype, -1.0), rounded(high, dtype, 1.0))

    def contexts(self, place: Array, dtype: Any) -> Interval:
        """The range of the context in the round after `place` rounds: what both forecast and model allow."""
        if self.model.band is None:
            return self.box("context", dtype)
        least, most = self.model.box("context")
        first, last = (np.reshape(end, (len(end), -1)) for end in self.model.band)
        low = rounded(np.maximum(first, least), dtype, -1.0)
        high = rounded(np.minimum(last, most), dtype, 1.0)
        at = jnp.clip(jnp.asarray(place, int), 0, low.shape[0] - 1)
        return Interval(low[at], high[at])
