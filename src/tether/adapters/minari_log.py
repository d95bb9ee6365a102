"""Guarded episodes as a Minari data set: what was played, what was proposed, and what it cost."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np

from tether.core.extras import missing
from tether.data.sources.minari import NAMES


class MinariLog(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps every episode that is played, to `save` it as a Minari data set.

    Put it around a `tether.gym.Guarded`. The actions of the data set are those that were *played*, since an offline
    learner must know what led to the reward. Of each round `infos` has the `cost`, the `prior_action`, and of a guarded
    one the `proposal`, whether it was `intervened`, the `radius` and the `margin`; of tether's own environments also
    what was `revealed`, so that `--data minari:ID` can train on it and `tether estimate minari:ID` read it. An
    episode that is cut short by a `reset` is kept as truncated.

    Example:
        >>> import tether, tether.adapters.episode_env
        >>> from tether.adapters.guarded import Guarded
        >>> env = gymnasium.make("tether/Carbon-v0", draws=10)
        >>> plant = env.unwrapped.system
        >>> certificate = tether.LipschitzCertificate(plant.contract(lam=1.0, b=1.0), plant.sensitivity)
        >>> log = MinariLog(Guarded(env, certificate, env.unwrapped.prior))
        >>> observation, info = log.reset(seed=0)
        >>> observation, *_, info = log.step([0.0])
        >>> played = log.episodes[0]["actions"][0]
        >>> bool(played == info["tether"]["action"])
        True
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.episodes: list[dict[str, Any]] = []
        """Of each episode `observations`, `actions`, `rewards`, `terminations`, `truncations` and `infos`, as lists."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin another episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._end()
        empty: dict[str, Any] = {name: [] for name in ("actions", "rewards", "terminations", "truncations")}
        self.episodes.append({"observations": [_copied(observation)], **empty, "infos": {}})
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play a round, and keep it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        episode, told = self.episodes[-1], info.get("tether", {})
        played = told.get("action", action)
        shape = self.env.action_space.shape or ()
        episode["actions"].append(np.asarray(played, dtype=self.env.action_space.dtype).reshape(shape))
        episode["observations"].append(_copied(observation))
        episode["rewards"].append(float(reward))
        episode["terminations"].append(bool(terminated))
        episode["truncations"].append(bool(truncated))
        _add(episode["infos"], _numbers(info, told, action))
        return observation, reward, terminated, truncated, info

    def save(self, dataset: str, **about: Any) -> Any:
        """Write all episodes as the Minari data set `dataset`, such as `carbon/guarded-v0`; Minari's own object.

        Args:
            dataset: An id that is not there yet; `MINARI_DATASETS_PATH` says where.
            about: What `minari.create_dataset_from_buffers` takes: algorithm_name, author, description, ...
        """
        try:
            import minari
            from minari.data_collector.episode_buffer import EpisodeBuffer
        except ModuleNotFoundError as error:
            raise missing("MinariLog.save", error) from None
        self._end()
        if not self.episodes:
            raise ValueError("no episode was played; there is nothing to save")
        buffers = [EpisodeBuffer(id=i, **episode) for i, episode in enumerate(self.episodes)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of everything in `about` that is not given
            made = minari.create_dataset_from_buffers(
                dataset,
                buffers,
                action_space=self.env.action_space,
                observation_space=self.env.observation_space,
                **about,
            )
        system = getattr(self.unwrapped, "system", None)
        if system is not None:
            made.storage.update_metadata({NAMES: [*system.observation_names, *system.context]})
        return made

    def _end(self) -> None:
        """What was cut short is truncated; an episode without a round is none."""
        if self.episodes and not self.episodes[-1]["rewards"]:
            self.episodes.pop()
        elif self.episodes and not self.episodes[-1]["terminations"][-1]:
            self.episodes[-1]["truncations"][-1] = True


def _numbers(info: dict[str, Any], told: Any, proposal: Any) -> dict[str, Any]:
    """What can be kept of a step: numbers that every step has."""
    kept: dict[str, Any] = {}
    for name in ("cost", "revealed"):
        if name in info:
            kept[name] = info[name]
    prior = told.get("prior_action", info.get("prior_action"))
    if prior is not None:
        kept["prior_action"] = np.ravel(np.asarray(prior, dtype=np.float64))
    if told:
        kept["proposal"] = np.ravel(np.asarray(proposal, dtype=np.float64))
        kept |= {name: float(told[name]) for name in ("radius", "margin", "intervened")}
    return kept


def _add(lists: dict[str, Any], values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, dict):
            _add(lists.setdefault(name, {}), value)
        else:
            lists.setdefault(name, []).append(value)


def _copied(observation: Any) -> Any:
    return np.array(observation)
