"""The guard around a Gymnasium vector environment: one for each of its sub-environments."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import gymnasium.vector
import numpy as np
from gymnasium.error import ResetNeeded

from tether.adapters.keeper import (
    ABSENT,
    Array,
    Cost,
    Prior,
    checked_cost,
    read_cost,
    unpacked,
    with_memory,
)
from tether.adapters.switch_keeper import keeper_of
from tether.certificates import Certificate
from tether.core import convert
from tether.core.guard import Guard
from tether.core.monitor import Monitor
from tether.core.ops import FLOAT32
from tether.core.projection import Norm
from tether.core.several import combined

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv, VectorWrapper
else:
    VectorEnv = gymnasium.vector.VectorEnv
    # Gymnasium 0.29 has no such class; `GuardedVector` then says so when it is made.
    VectorWrapper = getattr(gymnasium.vector, "VectorWrapper", object)


class GuardedVector(VectorWrapper):
    """A vector environment with one guard for each of its sub-environments; needs gymnasium >= 1.0.

    Like `Guarded`, with everything batched: `infos["tether"]` has an array of n entries for each name, and
    `infos["_tether"]` says which sub-environments played a round. All of Gymnasium's autoreset modes are
    followed:

    - next step: in the step after its last round a sub-environment only resets. The guard does not act then,
      the proposal is ignored, and `_tether` is False.
    - same step: the last round and the reset share a step. `infos["tether"]` is about the last round; with
      `append_memory`, `infos["final_obs"]` has the memory too.
    - disabled: reset with `options={"reset_mask": mask}`, and those guards begin a new episode.

    Args:
        env: The vector environment. Where it is made of single ones, `SyncVectorEnv([lambda: Guarded(...),
            ...])` serves as well; this class also takes those that are vectors by nature.
        certificate: See `Guarded`; each sub-environment has a promise of its own.
        prior: See `Guarded`; it is asked for one sub-environment at a time.
        cost: See `Guarded`; the arguments of a function are those of one sub-environment.
        norm: See `Guarded`.
        append_memory: See `Guarded`.
        monitor: See `Guarded`; one serves all, as it has no state of its own.
        resolution: See `Guarded`.

    Attributes:
        guards: One `tether.Guard` for each sub-environment.

    Example:
        >>> import tether, tether.adapters.episode_env
        >>> envs = gymnasium.make_vec("tether/Carbon-v0", num_envs=3, draws=10)
        >>> system = tether.envs.Carbon()
        >>> certificate = tether.LipschitzCertificate(system.contract(lam=1.0, b=1.0), system.sensitivity)
        >>> envs = GuardedVector(envs, certificate, system.prior)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations, rewards, terminated, truncated, infos = envs.step(np.zeros((3, 1)))
        >>> infos["tether"]["intervened"].tolist()
        [True, True, True]
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        certificate: Certificate | Mapping[str, Any] | list[Any],
        prior: Prior,
        *,
        cost: Cost = None,
        norm: Norm = "l2",
        append_memory: bool = False,
        monitor: Monitor | None = None,
        resolution: float = FLOAT32,
    ) -> None:
        if not hasattr(gymnasium.vector, "VectorWrapper"):
            raise ImportError(
                f"GuardedVector needs gymnasium >= 1.0, this is {gymnasium.__version__}; guard the "
                "sub-environments instead: SyncVectorEnv([lambda: Guarded(env, ...), ...])"
            )
        super().__init__(env)
        certificate = combined(certificate)
        self._keepers = [
            keeper_of(env.single_action_space, certificate, prior, norm, monitor, resolution)
            for _ in range(env.num_envs)
        ]
        self._cost = checked_cost(cost)
        self._mode = _autoreset_mode(env)
        self._append_memory = append_memory
        if append_memory:
            from gymnasium.vector.utils import batch_space

            self.single_observation_space = with_memory(env.single_observation_space, certificate)
            self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._observations: list[Any] = []
        self._resetting = np.zeros(env.num_envs, dtype=np.bool_)

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The guards, one for each sub-environment."""
        return tuple(keeper.guard for keeper in self._keepers)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every sub-environment, or in those of `options={"reset_mask": mask}`."""
        mask = np.ones(self.num_envs, dtype=np.bool_)
        if options is not None and "reset_mask" in options:
            mask = np.array(options["reset_mask"])
        observations, infos = self.env.reset(seed=seed, options=options)
        for keeper, chosen in zip(self._keepers, mask, strict=True):
            if chosen:
                keeper.reset()
        self._resetting &= ~mask
        return self._seen(observations), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Play in each sub-environment the safe action nearest to its proposal; errors as in `Guarded`."""
        if not self._observations:
            raise ResetNeeded("call reset() before the first step")
        before = self._observations
        proposals = self._batch(actions)
        # What only resets ignores its action, but it should not be handed nonsense.
        played = self._keepers[0].harmless(proposals)
        reports: list[dict[str, Any] | None] = [None] * self.num_envs
        for i, keeper in enumerate(self._keepers):
            if not self._resetting[i]:
                played[i], reports[i] = keeper.act(before[i], proposals[i])

        observations, rewards, six, terminated, truncated, infos = unpacked(self.env.step(played))
        over = np.logical_or(terminated, truncated)
        infos = dict(infos)
        seen = self._split(observations)
        for i, report in enumerate(reports):
            if report is None:
                self._keepers[i].reset()
                continue
            last = self._mode == "SameStep" and over[i]
            after, info = (infos["final_obs"][i], infos["final_info"]) if last else (seen[i], infos)
            own_cost = ABSENT if six is ABSENT else six[i]
            own_info = _own_info(info, i, self.num_envs)
            cost = read_cost(self._cost, own_cost, before[i], played[i], after, own_info)
            self._keepers[i].observe(cost, own_info, after, rewards[i], report, over=bool(over[i]))
            if last:
                if self._append_memory:
                    infos["final_obs"][i] = self._keepers[i].appended(after)
                self._keepers[i].reset()
        self._resetting = np.array(over) if self._mode == "NextStep" else np.zeros_like(self._resetting)

        if "cost" not in infos and (six is not ABSENT or callable(self._cost)):
            costs = [math.nan if report is None else report["cost"] for report in reports]
            plain = all(isinstance(each, float) for each in costs)
            infos["cost"] = np.array(costs, dtype=float if plain else object)
            infos["_cost"] = np.array([report is not None for report in reports])
        infos["tether"], infos["_tether"] = (
            _batched(reports),
            np.array([report is not None for report in reports]),
        )
        return self._seen(observations), rewards, terminated, truncated, infos

    def action_masks(self) -> Array:
        """[num_envs, ...] those of each sub-environment; see `Guarded.action_masks`."""
        if not self._observations:
            raise ResetNeeded("call reset() before the first mask")
        pairs = zip(self._keepers, self._observations, strict=True)
        return np.stack([keeper.masks(observation) for keeper, observation in pairs])

    def _batch(self, actions: Any) -> Array:
        """The proposals as [n, ...] in float64, a copy."""
        shape = (self.num_envs, *(self.single_action_space.shape or ()))
        batch: Array = convert.as_array(actions)
        if batch.size != math.prod(shape):
            raise ValueError(
                f"the actions of {self.num_envs} sub-environments must have shape {shape}, got {batch.shape}"
            )
        return batch.reshape(shape)

    def _split(self, observations: Any) -> list[Any]:
        from gymnasium.vector.utils import iterate

        return list(iterate(self.env.observation_space, observations))

    def _seen(self, observations: Any) -> Any:
        self._observations = copy.deepcopy(self._split(observations))
        if not self._append_memory:
            return observations
        pairs = zip(self._keepers, self._observations, strict=True)
        return np.stack([keeper.appended(observation) for keeper, observation in pairs])


def _autoreset_mode(env: Any) -> str:
    """How finished sub-environments are reset: `"NextStep"`, `"SameStep"` or `"Disabled"`."""
    # Gymnasium 1.0 has only the first way and does not name it.
    default = None if hasattr(gymnasium.vector, "AutoresetMode") else "NextStep"
    mode = env.metadata.get("autoreset_mode", default)
    mode = getattr(mode, "value", mode)
    if mode not in ("NextStep", "SameStep", "Disabled"):
        raise ValueError(
            "GuardedVector must know when a sub-environment resets: expected env.metadata['autoreset_mode'] "
            f"to be a gymnasium.vector.AutoresetMode, got {mode!r}; set it to what the environment does"
        )
    return str(mode)


def _own_info(infos: Mapping[str, Any], i: int, count: int) -> dict[str, Any]:
    """What the batched `infos` say of sub-environment i."""
    own: dict[str, Any] = {}
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if key.startswith("_") or (mask is not None and not mask[i]):
            continue
        if isinstance(values, Mapping):
            own[key] = _own_info(values, i, count)
        elif isinstance(values, np.ndarray | list | tuple) and len(values) == count:
            own[key] = values[i]
        else:
            own[key] = values
    return own


def _batched(reports: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Reports as one array for each name; 0, False or None where a sub-environment has none."""
    some = next((report for report in reports if report is not None), None)
    if some is None:
        return {}
    batch: dict[str, Any] = {}
    for name, example in some.items():
        if isinstance(example, np.ndarray):
            array = np.zeros((len(reports), *example.shape), example.dtype)
        elif isinstance(example, bool | int | float):
            array = np.zeros(len(reports), type(example))
        else:
            array = np.full(len(reports), None, dtype=object)
        for i, report in enumerate(reports):
            if report is not None:
                array[i] = report[name]
        batch[name] = array
    return batch
