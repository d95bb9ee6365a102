"""The guard around any Gymnasium environment: `Guarded`; `tether.adapters.guarded_vector` is for vector environments.

What the environment must have is a box of actions and a cost in every step. What you must have is a prior
that you trust and a certificate: the promise, and how much a deviation from the prior can do to the cost.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs

from tether.adapters.keeper import (
    ABSENT,
    Cost,
    Prior,
    checked_cost,
    read_cost,
    unpacked,
    with_memory,
)
from tether.adapters.switch_keeper import keeper_of
from tether.certificates import Certificate
from tether.core.guard import Guard
from tether.core.monitor import Monitor
from tether.core.ops import FLOAT32
from tether.core.projection import Norm
from tether.core.several import combined


class Guarded(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Any environment with a box of actions, or switches, with the guard between the learner and it.

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
            `gymnasium.wrappers.TimeLimit`. With `horizon=math.inf` it may go on for ever: the guard ends none.
        certificate: The contract and what is known of the system; several in a mapping from names or a list. For
            `Discrete` and `MultiDiscrete` actions a `tether.Switches`, with as many actions.
        prior: `prior(observation) -> action`. It gets the observation of `env` as it is, without appended
            memory.
        cost: Where a step reports its cost. None: the third of six values that Safety-Gymnasium's `step`
            returns, else `info["cost"]`. A string: that key of `info`. Or a function `cost(observation,
            action, next_observation, info)`. With several contracts it is a mapping from their names, or a vector.
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
        TypeError: The actions are neither a box of floating-point numbers nor those of a `tether.Switches`; or, with
            `append_memory`, the observations are not a vector.

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
        certificate: Certificate | Mapping[str, Any] | list[Any],
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
        certificate = combined(certificate)
        self._keeper = keeper_of(env.action_space, certificate, prior, norm, monitor, resolution)
        self._cost = checked_cost(cost)
        self._append_memory = append_memory
        if append_memory:
            self.observation_space = with_memory(env.observation_space, certificate)
        self._observation: Any = ABSENT

    @property
    def guard(self) -> Guard:
        """The online guard behind this wrapper, with its counts and its breach."""
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
        if self._observation is ABSENT:
            raise ResetNeeded("call reset() before the first step")
        before = self._observation
        played, report = self._keeper.act(before, action)
        after, reward, six, terminated, truncated, info = unpacked(self.env.step(played))
        cost = read_cost(self._cost, six, before, played, after, info)
        self._keeper.observe(cost, info, after, reward, report, over=bool(terminated or truncated))
        info = {"cost": cost, **info, "tether": report}
        return self._seen(after), reward, terminated, truncated, info

    def action_masks(self) -> Any:
        """Which of the finite actions are safe in the coming round, as sb3-contrib's MaskablePPO asks for it: [n] bool.

        For several switches MaskablePPO wants a mask for each, [n_1 + ... + n_d], and combines what they allow as it
        likes. So these are masks all of whose combinations are safe (`tether.core.finite.product_inside`): grown from
        the prior's action until nothing can be added. They may leave out safe combinations; `step` takes those too.
        The prior is asked for it once more than `step` does.
        """
        if self._observation is ABSENT:
            raise ResetNeeded("call reset() before the first mask")
        return self._keeper.masks(self._observation)

    def _seen(self, observation: Any) -> Any:
        """Remember the observation for the prior, whatever the learner does to its own; append the memory."""
        self._observation = copy.deepcopy(observation)
        return self._keeper.appended(observation) if self._append_memory else observation
