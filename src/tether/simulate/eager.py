"""Episodes played round by round, without compilation: what a guard does online, and what people want to look into.

`eager` plays one episode with a policy, and through a guard if there is one, by the environment's own functions in
NumPy. `Many` has these functions for many rounds at once, for those who keep the state themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from tether.core.decision import Decision
from tether.data.episodes import Episodes
from tether.systems.base import Env, Step, play


class Online(Protocol):
    """What of a `tether.Guard` it takes to play."""

    def reset(self) -> None:
        """Begin an episode."""

    def act(self, observation: Any, proposal: Any) -> Decision:
        """What to play."""

    def observe(self, cost: Any, revealed: Any = None) -> None:
        """Close the round."""


class Turn(NamedTuple):
    """One round."""

    round: int
    """Counted from 1."""
    state: Any
    """Before the round."""
    drawn: dict[str, Any]
    """The series of the round."""
    observation: Any
    """[o] what policy and guard saw."""
    proposal: Any
    """What the policy proposed."""
    decision: Decision | None
    """What the guard decided; None without one."""
    action: Any
    """What was played."""
    step: Step
    """What came of it; its cost is the plant's."""
    cost: Any
    """What was charged: that of the plant, or what `charge` made of it; of several costs a tuple."""


def eager(
    env: Env,
    episode: Episodes | Mapping[str, Any],
    policy: Callable[[Any], Any],
    guard: Online | None = None,
    *,
    charge: Callable[[int, Any], Any] = lambda _round, cost: cost,
    reveal: bool = False,
) -> Iterator[Turn]:
    """Play one episode; each round is given as soon as it is closed.

    Args:
        env: The system.
        episode: What was drawn: one episode, or its series [H, ...] by name.
        policy: `policy(observation) -> action`, any callable; with a guard it only proposes, and may propose None.
        guard: A `tether.Guard`, which is reset first; None to play what the policy says, cut to `low` and `high`.
        charge: `charge(round, cost)` is what a meter shows and the guard is told, for plants that leave their claims.
        reveal: Whether the guard is told the hidden series after each round.

    Example:
        >>> import tether
        >>> from tether.simulate.eager import eager
        >>> env = tether.envs.Carbon()
        >>> certificate = tether.LipschitzCertificate(env.contract(lam=2.0, b=2.0), env.sensitivity)
        >>> guard = tether.Guard(certificate, env.prior, low=0.0)
        >>> episode = tether.data.synthetic_carbon(seed=0, n=1)
        >>> turns = list(eager(env, episode, lambda observation: 0.0, guard))  # no energy at all?
        >>> len(turns), turns[0].decision.intervened, turns[0].proposal
        (24, True, 0.0)
    """
    if isinstance(episode, Episodes):
        if len(episode) != 1:
            raise ValueError(f"one episode is played at a time, got {len(episode)}; take episodes[i]")
        episode = {name: episode[name][0] for name in env.drawn_names}
    last: dict[str, Any] = {}

    def act(_round: int, state: Any, drawn: dict[str, Any]) -> Any:
        observation = env.observation(state, drawn)
        proposal = policy(observation)
        decision = None if guard is None else guard.act(observation, proposal)
        last.update(observation=observation, proposal=proposal, decision=decision)
        return np.clip(proposal, env.low, env.high) if decision is None else decision.action

    if guard is not None:
        guard.reset()
    for played in play(env, episode, act):
        cost = charge(played.round, _plain(played.step.cost))
        if guard is not None:
            hidden = {name: played.drawn[name] for name in env.hidden} if reveal else None
            guard.observe(cost, hidden)
        yield Turn(
            played.round, played.state, played.drawn, last["observation"], last["proposal"], last["decision"],
            played.action, played.step, cost,
        )  # fmt: skip


def _plain(cost: Any) -> Any:
    """A float; of several costs a tuple of them."""
    return tuple(np.asarray(cost).tolist()) if np.ndim(cost) else float(cost)


class Many:
    """An environment's functions for many rounds at once, each case by itself: compiled, in float64.

    Cases come first: state entries and series are [N, ...], observations [N, o], actions [N, *action_shape].

    Args:
        env: The system.
    """

    def __init__(self, env: Env) -> None:
        import jax

        self.env = env

        def look(state: Any, drawn: Any) -> tuple[Any, Any]:
            observation = env.observation(state, drawn)
            return observation, env.prior(observation)

        self._look, self._step = jax.jit(jax.vmap(look)), jax.jit(jax.vmap(env.step))

    def initial(self, count: int) -> Any:
        """The state before the first round, so many times."""
        initial = self.env.initial()
        return type(initial)(*(np.broadcast_to(entry, (count, *np.shape(entry))) for entry in initial))

    def look(self, state: Any, drawn: Mapping[str, Any]) -> tuple[Any, Any]:
        """(observations [N, o], the prior's actions [N, ...])."""
        observation, wish = self._compiled(self._look, state, drawn)
        return observation, wish

    def step(self, state: Any, drawn: Mapping[str, Any], action: Any) -> Step:
        """One round of each case."""
        step: Step = self._compiled(self._step, state, drawn, action)
        return step

    @staticmethod
    def _compiled(function: Callable[..., Any], *arguments: Any) -> Any:
        import jax

        with jax.enable_x64(True):
            given = jax.tree.map(lambda each: np.asarray(each, dtype=np.float64), arguments)
            return jax.tree.map(np.asarray, function(*given))
