"""Original environments side by side as Stable-Baselines3 trains on them, and the audit of every training episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env import VecEnv

import tether
from tether.certificates import Certificate
from tether_plants.plant import Plant
from tether_plants.rows import Rows


class Training(VecEnv):
    """Episodes drawn from those to train on; observations are scaled, and followed by the guards' features."""

    def __init__(
        self,
        plant: Plant,
        certificate: Certificate | None,
        episodes: Sequence[int],
        count: int,
        seed: int,
        make: Callable[[], Any] | None = None,
    ) -> None:
        self._rows, self._plant = Rows(plant, certificate, count, make), plant
        self._episodes, self._rng = np.asarray(episodes), np.random.default_rng(seed)
        self._units = None if certificate is None else np.array(certificate.feature_units())
        self.played: list[int] = []
        self.costs: list[Any] = []
        self._mean, self._spread = self._usual()
        size = len(self._mean) + (0 if self._units is None else len(self._units))
        actions = gymnasium.spaces.Box(-1.0, 1.0, self._rows.low.shape, dtype=np.float32)
        super().__init__(count, gymnasium.spaces.Box(-np.inf, np.inf, (size,), dtype=np.float32), actions)

    def _usual(self) -> tuple[Any, Any]:
        """Mean and spread of what the prior sees in a few training episodes."""
        env, seen = self._rows.envs[0], []
        for episode in self._episodes[:8]:
            observation, _ = env.reset(options={"episode": int(episode)})
            for _ in range(self._plant.contract.horizon):
                seen.append(observation)
                observation = env.step(self._plant.prior(observation))[0]
        return np.mean(seen, axis=0), np.std(seen, axis=0) + 1e-3

    def scaled(self, observations: Any, features: Any) -> Any:
        """[N, o + f] as the network sees it."""
        seen = (observations - self._mean) / self._spread
        if features is not None:
            seen = np.concatenate([seen, np.log1p(np.maximum(features, 0.0) / self._units)], axis=1)
        return np.clip(seen, -20.0, 20.0).astype(np.float32)

    def proposals(self, actions: Any) -> Any:
        """[N, n] of what the network says, -1 to 1."""
        low, high = self._rows.low, self._rows.high
        return low + (np.clip(actions, -1.0, 1.0) + 1.0) / 2.0 * (high - low)

    def reset(self) -> Any:
        """Begin other episodes."""
        drawn = self._rng.choice(self._episodes, self.num_envs)
        self.played += drawn.tolist()
        self._now: list[Any] = []
        return self.scaled(self._rows.reset(drawn), self._rows.features())

    def step_async(self, actions: Any) -> None:
        """Remember what is to be played."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Play a round of each."""
        step = self._rows.step(self.proposals(self._actions))
        self._now.append(step["costs"])
        over = len(self._now) == self._plant.contract.horizon
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if over:
            self.costs += list(np.array(self._now).T)
            seen = self.reset()
            for info, last in zip(infos, seen, strict=True):
                info["terminal_observation"] = last
        else:
            seen = self.scaled(self._rows.observations, self._rows.features())
        return seen, step["rewards"].astype(np.float32), np.full(self.num_envs, over), infos

    def told(self) -> dict[str, Any]:
        """How many of the training episodes broke the promise, the prior replayed on each; ends it."""
        episodes = self.played[: len(self.costs)]
        again = {episode: self._prior_costs(episode) for episode in dict.fromkeys(episodes)}
        self._rows.release()
        costs = np.array([again[episode] for episode in episodes])
        verdict = tether.audit(np.array(self.costs), costs, self._plant.contract)
        return {"episodes": len(episodes), "violation_rate": verdict.violation_rate}

    def _prior_costs(self, episode: int) -> list[float]:
        """[H] of this episode."""
        env, costs = self._rows.envs[0], []
        observation, _ = env.reset(options={"episode": episode})
        for _ in range(self._plant.contract.horizon):
            observation, _, _, _, info = env.step(self._plant.prior(observation))
            costs.append(info["cost"])
        return costs

    def close(self) -> None:
        """Nothing to close."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ARG002
        """The same for all."""
        return [getattr(self._rows.envs[0], attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Nothing can be set."""
        raise NotImplementedError(attr_name)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Nothing can be called."""
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ARG002
        """None is."""
        return [False] * self.num_envs
