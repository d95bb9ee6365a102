"""Many episodes of the original environment side by side, behind one compiled guard.

The guard is the same pure functions as online (`open`, `choose`, `update` of the certificate), compiled in float64 and
batched; each environment is an original one, stepped by itself. The tests compare it with `tether.gym.Guarded`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates import Certificate
from tether.core.certificate import Box, Outcome
from tether.core.compiler import compiler_options
from tether.core.ops import FLOAT32, jax_ops
from tether.simulate.trees import as_tree
from tether_plants.plant import Plant


class Guards:
    """The steps of the protocol for many guards at once, compiled for each number of them that is met."""

    def __init__(self, certificate: Certificate, low: Any, high: Any) -> None:
        as_tree(certificate)
        self._known: Any = certificate
        self._box, self._fixed = (np.array(low), np.array(high)), None
        options = compiler_options(getattr(certificate, "long", False))
        self.features, self.choose, self.update = (
            jax.jit(jax.vmap(each), compiler_options=options)
            for each in (self._features, self._chosen, self._closed)
        )

    def start(self, count: int) -> Any:
        """States before the first round."""
        return jax.vmap(lambda zero: self._known.start(jax_ops(), zero))(jnp.zeros(count))

    def _opened(self, state: Any, observation: Any) -> Any:
        return self._known.open(state, observation, jax_ops(), FLOAT32)

    def _features(self, state: Any, observation: Any) -> Any:
        return jnp.stack(self._known.features(self._opened(state, observation), jax_ops()))

    def _chosen(self, state: Any, observation: Any, proposal: Any, prior: Any) -> Any:
        low, high = self._box
        single = low.shape == (1,)  # a number, as for the online guard
        if single:
            low, high, proposal, prior = low[0], high[0], proposal[0], prior[0]
        choice = self._known.choose(
            self._opened(state, observation), proposal, prior, Box(low, high, "l2"), jax_ops()
        )
        # Relative round-off is a plain number of the program, not one that it computes with.
        taken, self._fixed = eqx.partition(choice.taken, eqx.is_array)
        return choice.action[None] if single else choice.action, taken

    def _closed(self, state: Any, taken: Any, cost: Any, revealed: Any) -> Any:
        outcome = Outcome(cost, revealed=revealed or None, epsilon=FLOAT32)
        return self._known.update(state, eqx.combine(taken, self._fixed), outcome, jax_ops())


guards_of = lru_cache(maxsize=16)(Guards)
"""Of an equal certificate, and the box as tuples: the same, so that nothing is compiled twice."""


class Rows:
    """N original environments and their guards.

    Args:
        plant: Whose environment it is.
        certificate: What the guards know; None to play what is proposed.
        count: N.
        make: Makes other environments than the original ones, to train on.
    """

    _idle: ClassVar[dict[Any, list[Any]]] = {}
    """Environments that nobody plays with, by what made them: some take a tenth of a second to make."""

    def __init__(
        self,
        plant: Plant,
        certificate: Certificate | None,
        count: int,
        make: Callable[[], Any] | None = None,
    ) -> None:
        self.plant, self.certificate, self._make = plant, certificate, make or plant.make
        idle = self._idle.setdefault(self._make, [])
        self.envs = [idle.pop() if idle else self._make() for _ in range(count)]
        space: Any = self.envs[0].action_space
        self.low, self.high = (np.asarray(end, dtype=np.float64) for end in (space.low, space.high))
        if certificate is not None:
            self._guards = guards_of(certificate, tuple(self.low), tuple(self.high))

    def release(self) -> None:
        """Leave the environments to others; nothing can be played any more."""
        self._idle[self._make] += self.envs
        self.envs = []

    def reset(self, episodes: Sequence[int]) -> Any:
        """Begin these episodes: [N, o] observations."""
        seen = [env.reset(options={"episode": int(i)})[0] for env, i in zip(self.envs, episodes, strict=True)]
        self.observations = np.array(seen, dtype=np.float64)
        if self.certificate is not None:
            with jax.enable_x64(True):
                self._state = self._guards.start(len(self.envs))
        return self.observations

    def features(self) -> Any:
        """[N, f] what the guards remember, as a learner can use it; None without a guard."""
        if self.certificate is None:
            return None
        with jax.enable_x64(True):
            return np.asarray(self._guards.features(self._state, self.observations))

    def step(self, proposals: Any) -> dict[str, Any]:
        """Play a round of each; [N, ...] `rewards`, `costs`, `actions`, `moved` and `breached`."""
        actions = np.clip(np.asarray(proposals, dtype=np.float64), self.low, self.high)
        given, taken = actions, None
        if self.certificate is not None:
            priors = np.array([self.plant.prior(each) for each in self.observations], dtype=np.float64)
            with jax.enable_x64(True):
                actions, taken = self._guards.choose(self._state, self.observations, actions, priors)
            actions = np.asarray(actions)
        steps = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        costs = np.array([step[4]["cost"] for step in steps], dtype=np.float64)
        breached = np.zeros(len(steps), dtype=bool)
        if self.certificate is not None:
            names = self.certificate.revealed_names
            told = {name: np.array([step[4]["revealed"][name] for step in steps]) for name in names}
            with jax.enable_x64(True):
                self._state = self._guards.update(self._state, taken, costs, told)
            breached = np.asarray(self._state.breached)
        self.observations = np.array([step[0] for step in steps], dtype=np.float64)
        moved = np.any(np.abs(actions - given) > 1e-9, axis=-1)
        rewards = np.array([float(step[1]) for step in steps])
        return {"rewards": rewards, "costs": costs, "actions": actions, "moved": moved, "breached": breached}
