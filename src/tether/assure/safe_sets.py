"""What a guard allows in each round of an episode: the picture behind a certificate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from tether.assure.hostile import Greedy
from tether.certificates import Certificate, LipschitzCertificate
from tether.core.contract import Contract
from tether.core.guard import Guard
from tether.data.episodes import Episodes
from tether.simulate.eager import eager
from tether.systems.base import Env

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class SafeSets(NamedTuple):
    """One episode of a learner behind a guard, [H] each or [H, n] where actions are vectors, action units."""

    name: str
    low: NDArray[np.float64]
    """The lowest safe action; of a vector how far down each entry may go while the others are the prior's."""
    high: NDArray[np.float64]
    """The highest safe action, likewise, at most that of `Env.action_range`."""
    prior: NDArray[np.float64]
    wish: NDArray[np.float64]
    """What the learner proposed."""
    played: NDArray[np.float64]
    costs: NDArray[np.float64]
    """[H] of what was played, cost units."""
    prior_costs: NDArray[np.float64]
    """[H] of the prior on the same draws."""
    contract: Contract

    @property
    def bounds(self) -> NDArray[np.float64]:
        """[H] what the costs up to each round may be at most."""
        rounds = np.arange(1, len(self.costs) + 1)
        found: NDArray[np.float64] = (1.0 + self.contract.lam) * np.cumsum(
            self.prior_costs
        ) + rounds * self.contract.b
        return found

    def figure(self, path: str | Path | None = None, title: str = "") -> Figure:
        """Safe actions and what was played, and the cost against its bound, by round; saved if there is a path."""
        from tether.assure.safe_set_figure import episode_figure
        from tether.core.drawing import save

        figure = episode_figure(self, title)
        if path is not None:
            save(figure, path)
        return figure


def safe_sets(
    env: Env, episode: Episodes, certificate: Certificate, policy: Callable[[Any], Any] | None = None
) -> SafeSets:
    """Play one episode through the online guard, and ask it in each round how far it would go.

    Args:
        env: The system.
        episode: What was drawn; one episode.
        certificate: Of the guard.
        policy: observation to action, or one that was trained (`tether.load_policy`), which sees the guard's memory;
            by default the one that maximises the reward of the round at hand.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> certificate = tether.Structured(env.contract(lam=2.0, b=2.0), env.structure)
        >>> found = safe_sets(env, tether.data.synthetic_carbon(seed=0, n=1), certificate, lambda seen: 0.0)
        >>> bool((found.low <= found.played).all() and (found.played <= found.high).all())
        True
        >>> len(found.figure(title="No energy at all?").axes)
        2
    """
    guard = Guard(certificate, env.prior, env.low, env.high, env.norm)
    trained: Any = getattr(policy, "propose", None)
    propose = _greedy(env) if policy is None else policy if trained is None else partial(trained, guard)
    ends: list[list[Any]] = []

    def asked(observation: Any) -> Any:
        ends.append([_farthest(env, guard, observation, end) for end in env.action_range()])
        return propose(observation)

    turns = list(eager(env, episode, asked, guard))
    trusted = list(eager(env, episode, env.prior))
    name = "Lipschitz" if isinstance(certificate, LipschitzCertificate) else "structured"
    low, high = np.moveaxis(np.array(ends), 1, 0)
    prior = np.array([turn.decision.prior_action for turn in turns if turn.decision is not None])
    wish, played = np.array([turn.proposal for turn in turns]), np.array([turn.action for turn in turns])
    costs, prior_costs = (np.array([turn.cost for turn in each]) for each in (turns, trusted))
    return SafeSets(name, low, high, prior, wish, played, costs, prior_costs, certificate.contract)


def _greedy(env: Env) -> Callable[[Any], Any]:
    greedy = jax.jit(Greedy(env))

    def propose(observation: Any) -> Any:
        with jax.enable_x64(True):
            return np.asarray(greedy(np.asarray(observation, dtype=np.float64)))

    return propose


def _farthest(env: Env, guard: Guard, observation: Any, end: Any) -> Any:
    """The safe action nearest to `end`; of a vector each entry of it by itself."""
    if not env.action_shape:
        return float(guard.reach(observation, float(end))[1])
    prior, found = np.asarray(env.prior(observation), dtype=np.float64), np.empty(env.action_shape)
    for place in np.ndindex(*env.action_shape):
        wish = prior.copy()
        wish[place] = end[place]
        found[place] = np.asarray(guard.reach(observation, wish)[1])[place]
    return found
