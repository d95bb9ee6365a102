"""The guard around any Gymnasium environment: `Guarded`, and `GuardedVector` for vector environments.

What the environment must have is a box of actions and a cost in every step. What you must have is a prior
that you trust and a certificate: the promise, and how much a deviation from the prior can do to the cost.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import gymnasium
import gymnasium.vector
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from tether.certificates import Certificate
from tether.core import convert
from tether.core.guard import Decision, Guard, GuardMisuse, Reason
from tether.core.monitor import Monitor
from tether.core.ops import FLOAT32
from tether.core.projection import Norm

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv, VectorWrapper
else:
    VectorEnv = gymnasium.vector.VectorEnv
    # Gymnasium 0.29 has no such class; `GuardedVector` then says so when it is made.
    VectorWrapper = getattr(gymnasium.vector, "VectorWrapper", object)

Array = NDArray[Any]
Prior = Callable[[Any], Any]
"""`prior(observation) -> action`: the trusted policy; its action may have any shape of the right size."""
Cost = str | Callable[[Any, Any, Any, Any], Any] | None
"""Where the cost is: the key in `info`, or `cost(observation, action, next_observation, info)`."""

_ABSENT: Any = object()


class Guarded(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Any environment with a box of actions, with the guard between the learner and it.

    `step(proposal)` plays the nearest safe action. The reward and the observation are those of that action,
    and `info["tether"]` tells the learner the truth: all of the `tether.Decision` (`action`, `prior_action`,
    `proposal`, `deviation`, `radius`, `margin`, `intervened`, `reason`, `round`), the `cost` that the guard
    saw, `counts` of the reasons in this episode, `breach`, the assumption breach of this episode or None, and
    `uncertified_from`, the round from which on the promise is not certified (horizon + 1 if it is throughout).

    A proposal may have any shape of the right size; what is not an action is replaced by the prior's and
    counted. Where the box has fewer digits than float64, the prior's action is rounded to them, and the
    played one towards the prior's.

    Args:
        env: The environment. An episode must end after at most the contract's horizon; see
            `gymnasium.wrappers.TimeLimit`.
        certificate: The contract and what is known of the system.
        prior: `prior(observation) -> action`. It gets the observation of `env` as it is, without appended
            memory.
        cost: Where a step reports its cost. None: the third of six values that Safety-Gymnasium's `step`
            returns, else `info["cost"]`. A string: that key of `info`. Or a function `cost(observation,
            action, next_observation, info)`.
        norm: The norm in which deviations are measured and for which the certificate's sensitivity holds.
        append_memory: Append the guard's memory to the observation, so that a learner can plan its
            deviations: the certificate's features (its `feature_names`), each as log(1 + value / unit) with its
            `feature_units`. With Lipschitz constants these are the allowance, the margin and the carried
            deviation; the unit of the first two is what a round earns, lam * eps + b, that of the third the
            deviation that this pays for in the first round (1 if nothing is earned). After the last round all
            are 0.
        monitor: What watches the assumptions, see `tether.Guard`; it gets the observation of `env` as it is. What the
            last action led to is not looked at, because no action follows.
        resolution: See `tether.Guard`; the digits of the action box count in any case.

    A certificate with `revealed_names` (`tether.certificates.Shadowing`) gets what `info["revealed"]` says of a step, a
    mapping from these names to numbers; where a step has none, nothing is revealed. The environments of this package
    have it.

    Attributes:
        guard: The `tether.Guard`; its `counts` go on over all episodes.

    Raises:
        TypeError: The actions are not a box of floating-point numbers; or, with `append_memory`, the
            observations are not a vector.

    Example:
        >>> import tether, tether.adapters.episode_env
        >>> env = gymnasium.make("tether/Carbon-v0", draws=10)
        >>> system = env.unwrapped.system
        >>> certificate = tether.LipschitzCertificate(system.contract(lam=1.0, b=1.0), system.sensitivity)
        >>> env = Guarded(env, certificate, system.prior)
        >>> observation, info = env.reset(seed=0)
        >>> observation, reward, terminated, truncated, info = env.step([0.0])  # no energy at all?
        >>> info["tether"]["reason"], bool(info["tether"]["action"] > 3.0)
        ('too far', True)
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        certificate: Certificate,
        prior: Prior,
        *,
        cost: Cost = None,
        norm: Norm = "l2",
        append_memory: bool = False,
        monitor: Monitor | None = None,
        resolution: float = FLOAT32,
    ) -> None:
        RecordConstructorArgs.__init__(
            self,
            _disable_deepcopy=True,
            certificate=certificate,
            prior=prior,
            cost=cost,
            norm=norm,
            append_memory=append_memory,
            monitor=monitor,
            resolution=resolution,
        )
        gymnasium.Wrapper.__init__(self, env)
        self._keeper = _Keeper(env.action_space, certificate, prior, norm, monitor, resolution)
        self._cost = _checked_cost(cost)
        self._append_memory = append_memory
        if append_memory:
            self.observation_space = _with_memory(env.observation_space, certificate)
        self._observation: Any = _ABSENT

    @property
    def guard(self) -> Guard:
        """The guard."""
        return self._keeper.guard

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of the environment and of the promise."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._keeper.reset()
        return self._seen(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play the safe action nearest to the proposal `action`.

        Raises:
            tether.GuardMisuse: The episode is over, or it is longer than the certificate's horizon.
            tether.PriorFailed: The prior gave no usable action; the environment was not stepped.
            ValueError: The environment was stepped but reported no cost where one was expected.
        """
        if self._observation is _ABSENT:
            raise ResetNeeded("call reset() before the first step")
        before = self._observation
        played, report = self._keeper.act(before, action)
        after, reward, six, terminated, truncated, info = _unpacked(self.env.step(played))
        cost = _read_cost(self._cost, six, before, played, after, info)
        self._keeper.observe(cost, info, after, reward, report, over=bool(terminated or truncated))
        info = {"cost": cost, **info, "tether": report}
        return self._seen(after), reward, terminated, truncated, info

    def _seen(self, observation: Any) -> Any:
        """Remember the observation for the prior, whatever the learner does to its own; append the memory."""
        self._observation = copy.deepcopy(observation)
        return self._keeper.appended(observation) if self._append_memory else observation


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
        certificate: Certificate,
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
        self._keepers = [
            _Keeper(env.single_action_space, certificate, prior, norm, monitor, resolution)
            for _ in range(env.num_envs)
        ]
        self._cost = _checked_cost(cost)
        self._mode = _autoreset_mode(env)
        self._append_memory = append_memory
        if append_memory:
            from gymnasium.vector.utils import batch_space

            self.single_observation_space = _with_memory(env.single_observation_space, certificate)
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
        space: Any = self.single_action_space
        proposals = self._batch(actions)
        # What only resets ignores its action, but it should not be handed nonsense.
        played = np.clip(np.nan_to_num(proposals), space.low, space.high).astype(space.dtype)
        reports: list[dict[str, Any] | None] = [None] * self.num_envs
        for i, keeper in enumerate(self._keepers):
            if not self._resetting[i]:
                played[i], reports[i] = keeper.act(before[i], proposals[i])

        observations, rewards, six, terminated, truncated, infos = _unpacked(self.env.step(played))
        over = np.logical_or(terminated, truncated)
        infos = dict(infos)
        seen = self._split(observations)
        for i, report in enumerate(reports):
            if report is None:
                self._keepers[i].reset()
                continue
            last = self._mode == "SameStep" and over[i]
            after, info = (infos["final_obs"][i], infos["final_info"]) if last else (seen[i], infos)
            own_cost = _ABSENT if six is _ABSENT else six[i]
            own_info = _own_info(info, i, self.num_envs)
            cost = _read_cost(self._cost, own_cost, before[i], played[i], after, own_info)
            self._keepers[i].observe(cost, own_info, after, rewards[i], report, over=bool(over[i]))
            if last:
                if self._append_memory:
                    infos["final_obs"][i] = self._keepers[i].appended(after)
                self._keepers[i].reset()
        self._resetting = np.array(over) if self._mode == "NextStep" else np.zeros_like(self._resetting)

        if "cost" not in infos and (six is not _ABSENT or callable(self._cost)):
            infos["cost"] = np.array([math.nan if report is None else report["cost"] for report in reports])
            infos["_cost"] = np.array([report is not None for report in reports])
        infos["tether"], infos["_tether"] = (
            _batched(reports),
            np.array([report is not None for report in reports]),
        )
        return self._seen(observations), rewards, terminated, truncated, infos

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


def policy_from_sb3(
    model: Any, *, deterministic: bool = True, shape: tuple[int, ...] | None = None
) -> Callable[[Any], Any]:
    """A Stable-Baselines3 model, or anything with its `predict`, as a function from observation to proposal.

    Args:
        model: For example `PPO.load("model.zip")`. If it was trained on appended memory, or behind a wrapper
            that rescales actions or normalises observations, that has to be done around the function too.
        deterministic: Whether to take the mean action instead of a sampled one.
        shape: Shape to give the proposal, () for a number; None to leave it as the model gives it.
            `tether.Guard` takes a vector only in the shape of its prior's actions; `Guarded` takes any.

    Example:
        >>> class Model:
        ...     def predict(self, observation, deterministic=False):
        ...         return np.array([observation.sum()]), None
        >>> propose = policy_from_sb3(Model(), shape=())
        >>> float(propose([1.0, 2.0]))
        3.0
    """
    if not callable(getattr(model, "predict", None)):
        raise TypeError(f"model must have predict(observation, deterministic=...), got {model!r}")

    def propose(observation: Any) -> Any:
        given = observation if isinstance(observation, Mapping) else np.asarray(observation)
        action, _ = model.predict(given, deterministic=deterministic)
        return action if shape is None else np.reshape(action, shape)

    return propose


class _Keeper:
    """One guard at one environment: shapes, number types and the report."""

    def __init__(
        self,
        space: Any,
        certificate: Certificate,
        prior: Prior,
        norm: Norm,
        monitor: Monitor | None,
        resolution: float,
    ) -> None:
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            raise TypeError(
                "the guard moves actions by real amounts, so the action space must be a gymnasium.spaces.Box "
                f"of floating-point numbers, got {space}"
            )
        if not callable(prior):
            raise TypeError(f"prior must be callable as prior(observation) -> action, got {prior!r}")
        self._space, self._prior = space, prior
        low, high = (bound.ravel().astype(np.float64) for bound in (space.low, space.high))
        # What is played is rounded to the box's digits.
        coarsest = max(resolution, float(np.finfo(space.dtype).eps))
        self.guard = Guard(certificate, self._ask_prior, low, high, norm, monitor, resolution=coarsest)
        self.reset()

    def reset(self) -> None:
        self.guard.reset()
        self._over = False
        self._counts = dict.fromkeys(map(str, Reason), 0)

    def act(self, observation: Any, proposal: Any) -> tuple[Array, dict[str, Any]]:
        """The action to play, in the shape and type of the space, and the report up to now."""
        if self._over:
            raise GuardMisuse("the episode is over; call reset() before the next step")
        horizon = self.guard.horizon
        if self.guard.round > horizon:
            raise GuardMisuse(
                f"the environment did not end the episode after the {horizon} rounds of the certificate's "
                f"contract, and nothing is promised for round {horizon + 1}; end it there with "
                f"gymnasium.wrappers.TimeLimit(env, {horizon}), or make a contract with a longer horizon"
            )
        decision = self.guard.act(observation, self._flat(proposal))
        action = self._playable(decision)
        report = decision._asdict() | {
            "action": action.copy(),
            "prior_action": self._shaped(decision.prior_action),
            "proposal": convert.copied(proposal),
            "reason": str(decision.reason),
        }
        self._counts[report["reason"]] += 1
        return action, report

    def observe(
        self,
        cost: Any,
        info: Mapping[str, Any],
        after: Any,
        reward: Any,
        report: dict[str, Any],
        over: bool,
    ) -> None:
        """Close the round with what the step gave, and complete its report."""
        self._over = over
        names = self.guard.certificate.revealed_names
        revealed = info.get("revealed") if names else None
        if isinstance(revealed, Mapping):
            revealed = {name: revealed[name] for name in names if name in revealed}
        self.guard.observe(cost, revealed, next_observation=after, reward=reward)
        report["cost"] = convert.as_number(cost)
        report["counts"] = dict(self._counts)
        breach = self.guard.breach
        report["breach"] = None if breach is None else asdict(breach)
        report["uncertified_from"] = self.guard.uncertified_from

    def appended(self, observation: Any) -> Any:
        """The observation with the guard's memory, scaled as `Guarded` says."""
        features = np.zeros_like(self._units)
        if self.guard.round <= self.guard.horizon:
            features = np.array(self.guard.features(observation))
        # A margin may be below 0 by round-off.
        memory = np.log1p(np.maximum(features, 0.0) / self._units)
        return np.concatenate([observation, memory.astype(np.asarray(observation).dtype)])

    @cached_property
    def _units(self) -> Array:
        """What `appended` scales by."""
        return np.array(self.guard.certificate.feature_units())

    def _ask_prior(self, observation: Any) -> Any:
        answer = self._prior(observation)
        array = convert.as_array(answer)
        if array.size != self._space.low.size:
            return answer
        return array.astype(self._space.dtype).astype(np.float64).ravel()

    def _flat(self, proposal: Any) -> Any:
        """The proposal as [n] if it has n numbers; else as it is, which the guard counts as invalid."""
        try:
            array = convert.as_array(proposal)
        except Exception:  # whatever a stranger's object does when it is asked for numbers
            return None
        return array.ravel() if array.size == self._space.low.size else array

    def _playable(self, decision: Decision) -> Array:
        """The decision's action as the space has it, rounded towards the prior's action."""
        exact, prior = np.asarray(decision.action), np.asarray(decision.prior_action)
        action = exact.astype(self._space.dtype)
        farther = np.abs(action.astype(np.float64) - prior) > np.abs(exact - prior)
        action = np.where(farther, np.nextafter(action, prior.astype(self._space.dtype)), action)
        return action.reshape(self._space.shape)

    def _shaped(self, action: Any) -> Array:
        return np.array(action, dtype=self._space.dtype).reshape(self._space.shape)


def _with_memory(space: Any, certificate: Certificate) -> spaces.Box:
    if (
        not isinstance(space, spaces.Box)
        or len(space.shape) != 1
        or not np.issubdtype(space.dtype, np.floating)
    ):
        raise TypeError(
            "append_memory needs observations that are a vector of floating-point numbers, a Box [o]; "
            "wrap the environment in gymnasium.wrappers.FlattenObservation first. "
            f"The observation space is {space}"
        )
    count = len(certificate.feature_names)
    low = np.concatenate([space.low, np.zeros(count)]).astype(space.dtype)
    high = np.concatenate([space.high, np.full(count, np.inf)]).astype(space.dtype)
    return spaces.Box(low, high, dtype=space.dtype.type)


def _checked_cost(cost: Any) -> Cost:
    if cost is None or isinstance(cost, str) or callable(cost):
        return cost  # type: ignore[no-any-return]
    raise TypeError(
        "cost must be None, a key of info, or callable as cost(observation, action, next_observation, info), "
        f"got {cost!r}"
    )


def _unpacked(result: Any) -> tuple[Any, Any, Any, Any, Any, Any]:
    """(observation, reward, cost, terminated, truncated, info) of a step of five or six values."""
    if len(result) == 6:
        return tuple(result)
    if len(result) == 5:
        observation, reward, terminated, truncated, info = result
        return observation, reward, _ABSENT, terminated, truncated, info
    raise ValueError(
        "step must return (observation, reward, terminated, truncated, info), or Safety-Gymnasium's "
        "(observation, reward, cost, terminated, truncated, info); "
        f"the environment returned {len(result)} values"
    )


def _read_cost(source: Cost, six: Any, before: Any, action: Any, after: Any, info: Any) -> Any:
    """The cost of a step in the type in which it came, which says how exact it is; of an array of one, the number."""
    if callable(source):
        cost = source(before, action, after, info)
    elif source is None and six is not _ABSENT:
        cost = six
    else:
        key = "cost" if source is None else source
        if key not in info:
            names = ", ".join(map(repr, info)) or "nothing"
            raise ValueError(
                f"the environment's step reported no cost: expected info[{key!r}], but info has {names}; "
                "give cost=<the key in info> or cost=<a function of (observation, action, next_observation, info)>"
            )
        cost = info[key]
    return cost.reshape(())[()] if isinstance(cost, np.ndarray) and cost.size == 1 else cost


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
