"""A pace in front of a policy that does not know the guard: how far to go from the prior's action towards its wish.

Whoever does not know the guard asks for everything at once. The guard grants what is safe, the allowance is gone in the
first rounds, and the rest of the episode is the prior's. A pace asks for a *share* of the way,

    proposal = prior + share * (wish - prior),      share = sigmoid(w_0 + w . (what is seen, what is left)),

where *what is left* are the certificate's features (slack, gaps, rounds left, ...), on a scale of ratios, and *what is
seen* is the observation: it tells when a deviation is worth more than it will be later. That is one number for each of
them and one more, tuned on episodes by `tether.pace`.

**Never a matter of soundness.** A pace only changes what is proposed. The guard behind it is the same and decides in
every round, so whatever the numbers are, a share beyond [0, 1] or one that is not a number included, the promise holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tether.core.files import complete_file
from tether.core.ops import namespace
from tether.learn.policy import VERSION, NetworkPolicy, with_features

if TYPE_CHECKING:
    from tether.core.guard import Guard

UNPACED = 80.0
"""The weight w_0 with which the share is 1 to the last digit."""


@dataclass(frozen=True, eq=False)
class PacedPolicy:
    """A policy whose wishes are followed a share of the way; see the module. `tether.pace` makes and tunes it.

    `tether.rollout` does by itself what it needs; online, `guard.act(observation, paced.propose(guard, observation))`.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> guard = tether.Guard(tether.Structured(env.contract(lam=2.0, b=2.0), env.structure), env.prior, low=0.0)
        >>> idle = lambda observation, key: 0.0
        >>> paced = PacedPolicy(idle, np.zeros(1 + 4 + 4), np.ones(4), np.zeros(4), np.ones(4), shape=())
        >>> observation = np.array([4.0, 3.0, 0.0, 0.0])  # demand 4: the prior spends 5
        >>> paced.propose(guard, observation)  # all weights are 0: half of the way
        2.5
    """

    uses_memory: ClassVar[bool] = True
    inside: ClassVar[bool] = True
    tree_numbers: ClassVar[tuple[str, ...]] = ("policy", "weights", "units", "mean", "scale")
    """See `tether.simulate.trees`."""

    policy: Any
    """What is paced: `policy(observation, key) -> action`; one of our own that reads the guard's memory may be."""
    weights: Any
    """[1 + m + o] w_0, then one for each feature of the certificate and for each entry of the observation."""
    units: Any
    """[m] typical sizes of the features."""
    mean: Any
    """[o] subtracted from the first entries of the observation; what follows, such as forecasts, is not read ..."""
    scale: Any
    """[o] ... and what they are then divided by."""
    shape: tuple[int, ...]
    """Of an action."""
    earned: tuple[float, float] = (float("nan"), float("nan"))
    """Mean reward on the episodes that it was tuned on: of the policy as it was behind this guard, and paced."""

    def share(self, seen: Any) -> Any:
        """How much of the way to go, in [0, 1].

        Args:
            seen: The observation, followed by the certificate's features.
        """
        xp = namespace(seen)
        left = seen[len(seen) - len(self.units) :] / xp.asarray(self.units)
        # Slack grows over an episode by orders of magnitude; what matters is its ratio.
        left = xp.log1p(xp.maximum(left, 0.0)) - 1.0
        shown = (seen[: len(self.mean)] - xp.asarray(self.mean)) / xp.asarray(self.scale)
        weights = xp.asarray(self.weights)
        return 0.5 + 0.5 * xp.tanh(0.5 * (weights[0] + weights[1:] @ xp.concat([left, shown])))

    def __call__(self, seen: Any, key: Any = None, reach: Callable[[Any], Any] | None = None) -> Any:
        """The proposal, [*shape].

        Args:
            seen: The observation, followed by the certificate's features.
            key: For the policy.
            reach: `reach(wish) -> (prior's action, safe action nearest to the wish)`.
        """
        if reach is None:
            raise ValueError("a paced policy asks the guard: use policy.propose(guard, observation)")
        xp = namespace(seen)
        memory = getattr(self.policy, "uses_memory", False)
        observation = seen if memory else seen[: len(seen) - len(self.units)]
        asks = (reach,) if getattr(self.policy, "inside", False) else ()
        wish = xp.asarray(self.policy(observation, key, *asks), dtype=seen.dtype)
        if wish.size != int(np.prod(self.shape)):
            raise ValueError(f"an action has shape {self.shape}, the policy returned {wish.shape}")
        wish = xp.reshape(wish, self.shape)
        prior, _ = reach(wish)
        return prior + self.share(seen) * (wish - prior)

    def propose(self, guard: Guard, observation: Any) -> Any:
        """The action to propose to `guard` in the coming round: a float, or [n].

        What the policy wishes is handed on as it is where it is no action, so that the guard says so.
        """
        if hasattr(self.policy, "propose"):
            wish = self.policy.propose(guard, observation)
        else:
            wish = self.policy(np.asarray(observation), None)
        try:
            numbers = np.asarray(wish, dtype=np.float64).reshape(self.shape)
        except (TypeError, ValueError):
            return wish
        prior, _ = guard.reach(observation, numbers)
        seen = with_features(guard, observation)
        proposal = np.asarray(prior) + self.share(seen) * (numbers - prior)
        return proposal.item() if proposal.ndim == 0 else proposal

    def save(self, path: str | Path) -> None:
        """Write the pace to a .npz file, completely or not at all; `tether.load_policy` reads it.

        A `tether.NetworkPolicy` that is paced is written with it. Any other policy is kept by whoever made it:
        `tether.load_policy(path, policy)`.
        """
        about: dict[str, Any] = {"version": VERSION}
        arrays: dict[str, Any] = {}
        if isinstance(self.policy, NetworkPolicy):
            about, arrays = self.policy.contents()
        about["pace"] = {"shape": list(self.shape), "earned": list(self.earned)}
        arrays |= {f"pace_{name}": np.asarray(getattr(self, name)) for name in NUMBERS}
        with complete_file(Path(path)) as draft, draft.open("wb") as file:
            np.savez(file, about=np.array(json.dumps(about)), **arrays)

    @classmethod
    def from_arrays(cls, policy: Any, about: dict[str, Any], arrays: Any) -> PacedPolicy:
        """The pace that `save` wrote, in front of `policy`."""
        numbers = {name: arrays[f"pace_{name}"] for name in NUMBERS}
        before, after = about["earned"]
        return cls(policy, **numbers, shape=tuple(about["shape"]), earned=(before, after))


NUMBERS = ("weights", "units", "mean", "scale")
