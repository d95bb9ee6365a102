"""What can be checked: simulators that can be put into any state and played for a round, with the region to search.

Every system is reduced to flat vectors of numbers, each with a box: states [n], actions [m], draws [k] (all that is
random or exogenous in a round). `as_simulator` makes one of a `tether.envs.Env`; `functions` of three plain functions;
`gymnasium_simulator` of a Gymnasium environment that can be set to a state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from tether.assure.verify.box import Box, Range, box, broadcast
from tether.core import validate
from tether.core.ops import namespace
from tether.core.projection import NORMS, Norm, length
from tether.systems.base import Env


class Simulator(eqx.Module):
    """A system with its prior, in flat vectors, that starts in any state; `state` is what `start` and `play` return."""

    name: str = eqx.field(static=True)
    states: Box
    """Where two trajectories may start."""
    actions: Box
    draws: Box
    """All that is random or exogenous in one round, the same on both sides of every comparison."""
    norm: Norm = eqx.field(static=True)
    """Of the gaps between states and between actions."""
    traceable: bool = eqx.field(static=True)
    """Whether JAX can trace it: the search then has gradients and is compiled."""
    shared: tuple[int, ...] = eqx.field(static=True)
    """Places of those entries of the state that nothing that is played changes (a clock, the weather): the same on both
    sides of every comparison."""

    @property
    def others(self) -> Box:
        """Where a second state may start beside a first one: the entries that are not shared."""
        kept = self._kept
        return Box(self.states.low[kept], self.states.high[kept], tuple(self.states.names[i] for i in kept))

    @property
    def _kept(self) -> list[int]:
        return [i for i in range(self.states.size) if i not in self.shared]

    def own_part(self, values: Any) -> Any:
        """The entries of a state [n] that are not shared."""
        return values[np.array(self._kept, dtype=int)] if self.shared else values

    def beside(self, values: Any, other: Any) -> Any:
        """[n] the second state whose entries that are not shared are `other`, beside a first one, `values` [n]."""
        if not self.shared:
            return other
        place = {each: i for i, each in enumerate(self._kept)}
        entries = [values[i] if i in self.shared else other[place[i]] for i in range(self.states.size)]
        return namespace(values).stack(entries)

    @abstractmethod
    def start(self, values: Any) -> Any:
        """The state whose measured entries are `values` [n]."""

    @abstractmethod
    def measure(self, state: Any) -> Any:
        """[n] the entries of a state that the claims are about."""

    @abstractmethod
    def prior(self, state: Any, draw: Any) -> Any:
        """[m] the prior's action."""

    @abstractmethod
    def play(self, state: Any, draw: Any, action: Any) -> tuple[Any, Any]:
        """(next state, cost) of one round."""

    def gap(self, one: Any, other: Any) -> Any:
        """||one - other|| of two vectors."""
        return length(one - other, self.norm, namespace(one))


class EnvSimulator(Simulator):
    """A `tether.envs.Env`. Entries of its state that have no range in the region stay as they are initially."""

    env: Env = eqx.field(static=True)
    fields: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)
    """Name and shape of each measured entry of the state."""
    series: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)

    def start(self, values: Any) -> Any:
        """See `Simulator`."""
        initial = self.env.initial()
        xp = namespace(values)
        whole = type(initial)(*(xp.asarray(entry, dtype=values.dtype) for entry in initial))
        return whole._replace(**_parts(values, self.fields))

    def measure(self, state: Any) -> Any:
        """See `Simulator`."""
        entries = [getattr(state, name) for name, _ in self.fields]
        xp = namespace(entries[0])
        return xp.concat([xp.reshape(xp.asarray(entry), (-1,)) for entry in entries])

    def observation(self, state: Any, draw: Any) -> Any:
        """[o] what a policy sees."""
        return self.env.observation(state, _parts(draw, self.series))

    def prior(self, state: Any, draw: Any) -> Any:
        """See `Simulator`."""
        action = self.env.prior(self.observation(state, draw))
        return namespace(draw).reshape(namespace(draw).asarray(action), (-1,))

    def play(self, state: Any, draw: Any, action: Any) -> tuple[Any, Any]:
        """See `Simulator`."""
        shaped = namespace(action).reshape(action, self.env.action_shape)
        step = self.env.step(state, _parts(draw, self.series), shaped)
        return step.state, step.cost


class FunctionSimulator(Simulator):
    """Three plain functions; made by `functions`."""

    cost_function: Callable[[Any, Any, Any], Any]
    step_function: Callable[[Any, Any, Any], Any]
    prior_function: Callable[..., Any]
    prior_sees_draw: bool = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    """Of state, action and draw, as the functions take them."""

    def start(self, values: Any) -> Any:
        """See `Simulator`."""
        return values

    def measure(self, state: Any) -> Any:
        """See `Simulator`."""
        return state

    def prior(self, state: Any, draw: Any) -> Any:
        """See `Simulator`."""
        seen = state.reshape(self.shapes[0])
        extra = (draw.reshape(self.shapes[2]),) if self.prior_sees_draw else ()
        return self._flat(state, self.prior_function(seen, *extra))

    def play(self, state: Any, draw: Any, action: Any) -> tuple[Any, Any]:
        """See `Simulator`."""
        given = [
            values.reshape(shape) for values, shape in zip((state, action, draw), self.shapes, strict=True)
        ]
        return self._flat(state, self.step_function(*given)), self.cost_function(*given)

    @staticmethod
    def _flat(like: Any, values: Any) -> Any:
        xp = namespace(values if hasattr(values, "__array_namespace__") else like)
        return xp.asarray(values, dtype=like.dtype).reshape(-1)


class GymnasiumSimulator(Simulator):
    """A Gymnasium environment that can be set to a state; made by `gymnasium_simulator`."""

    env: Any = eqx.field(static=True)
    set_state: Callable[[Any, Any], None] = eqx.field(static=True)
    get_state: Callable[[Any, Any], Any] = eqx.field(static=True)
    prior_function: Callable[[Any], Any] = eqx.field(static=True)
    cost_of: Callable[[float, Mapping[str, Any]], float] = eqx.field(static=True)
    action_shape: tuple[int, ...] = eqx.field(static=True)

    def start(self, values: Any) -> Any:
        """See `Simulator`."""
        return values

    def measure(self, state: Any) -> Any:
        """See `Simulator`."""
        return state

    def prior(self, state: Any, draw: Any) -> Any:  # noqa: ARG002
        """See `Simulator`."""
        return np.asarray(self.prior_function(state), dtype=np.float64).reshape(-1)

    def play(self, state: Any, draw: Any, action: Any) -> tuple[Any, Any]:
        """See `Simulator`; the draw is the seed of the round."""
        self.env.reset(seed=round(float(draw[0])))
        self.set_state(self.env, np.array(state, dtype=np.float64))
        played = np.asarray(action, dtype=self.env.action_space.dtype).reshape(self.action_shape)
        observation, reward, _, _, info = self.env.step(played)
        after = np.asarray(self.get_state(self.env, observation), dtype=np.float64).reshape(-1)
        return after, np.float64(self.cost_of(float(reward), info))


def as_simulator(system: Env | Simulator, region: Mapping[str, Range] | None = None) -> Simulator:
    """The system in flat vectors, with the region to search.

    Args:
        system: An environment, or what `functions` or `gymnasium_simulator` made (which has its region already).
        region: Ranges by name: entries of the environment's state, its series, and `"action"`. They come on top of
            the environment's own `search_ranges` and `limits`.
    """
    given = dict(region or {})
    if isinstance(system, Simulator):
        if given:
            raise ValueError("this system has its region already; give the ranges where it is made")
        return system
    if not isinstance(system, Env):
        raise TypeError(
            "system must be a tether.envs.Env, or made by tether.assure.verify.functions(...) or "
            f"tether.assure.verify.gymnasium_simulator(...); got {type(system).__name__}"
        )
    initial = system.initial()
    known = {*initial._fields, *system.drawn_names, "action"}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(
            f"{type(system).__name__} has no {unknown[0]!r}; a region can name {', '.join(sorted(known))}"
        )
    ranges = {**system.limits(), "action": (system.low, system.high), **system.search_ranges()}
    for name, ends in given.items():
        # A number stands for every entry of a vector.
        shape = np.broadcast(*map(np.asarray, ranges[name])).shape if name in ranges else ()
        ranges[name] = broadcast(ends, shape) if np.broadcast(*map(np.asarray, ends)).shape == () else ends
    unknown = [name for name in system.shared if name not in initial._fields]
    if unknown:
        raise ValueError(
            f"{type(system).__name__}.shared names {unknown[0]!r}, but the state has {', '.join(initial._fields)}"
        )
    fields = tuple((name, np.shape(getattr(initial, name))) for name in initial._fields if name in ranges)
    if not fields:
        raise ValueError(
            f"which states are to be searched? Give a range for one of {', '.join(initial._fields)} in `region`, or "
            f"write {type(system).__name__}.search_ranges"
        )
    missing = [name for name in system.drawn_names if name not in ranges]
    if missing:
        raise ValueError(f"the series {missing[0]!r} needs a range in `region`")
    series = tuple((name, np.broadcast(*map(np.asarray, ranges[name])).shape) for name in system.drawn_names)
    owners = [name for name, shape in fields for _ in range(int(np.prod(shape)))]
    made = EnvSimulator(
        name=type(system).__name__,
        states=box({name: broadcast(ranges[name], shape) for name, shape in fields}),
        actions=box({"action": broadcast(ranges["action"], system.action_shape)}),
        draws=box({name: ranges[name] for name, _ in series}),
        norm=system.norm,
        traceable=True,
        shared=tuple(i for i, name in enumerate(owners) if name in system.shared),
        env=system,
        fields=fields,
        series=series,
    )
    return _checked(made)


def functions(
    cost: Callable[[Any, Any, Any], Any],
    step: Callable[[Any, Any, Any], Any],
    prior: Callable[..., Any],
    *,
    states: Range,
    actions: Range,
    draws: Range | None = None,
    norm: Norm = "l2",
    prior_sees_draw: bool = False,
    shared: Sequence[int] = (),
    name: str = "system",
) -> Simulator:
    """A system given by plain functions; if JAX can trace them, the search is compiled and has gradients.

    Args:
        cost: `cost(state, action, draw)`, a number.
        step: `step(state, action, draw)`, the next state.
        prior: `prior(state)`, the trusted action; `prior(state, draw)` with `prior_sees_draw`.
        states: (low, high) of the states to search, numbers or vectors; the functions get states of that shape.
        actions: The same for actions.
        draws: The same for all that is random or exogenous in a round; None if nothing is (the functions then get an
            empty array).
        norm: Of gaps between states and between actions: `"l1"`, `"l2"` or `"linf"`.
        prior_sees_draw: Whether the prior depends on the draw, a demand for instance.
        shared: Places of the entries of a state vector that nothing that is played changes, such as a clock: both sides
            of a comparison have the same.
        name: For the output.
    """
    validate.choice("norm", norm, NORMS)
    given = {"state": states, "action": actions, "draw": (np.zeros(0),) * 2 if draws is None else draws}
    boxes = [box({key: ends}) for key, ends in given.items()]
    shapes = tuple(np.broadcast(*map(np.asarray, ends)).shape for ends in given.values())

    def made(traceable: bool) -> Simulator:
        return FunctionSimulator(
            name=name,
            states=boxes[0],
            actions=boxes[1],
            draws=boxes[2],
            norm=norm,
            traceable=traceable,
            shared=tuple(shared),
            cost_function=cost,
            step_function=step,
            prior_function=prior,
            prior_sees_draw=prior_sees_draw,
            shapes=shapes,
        )

    return made(_can_be_traced(_checked(made(False))))


def gymnasium_simulator(
    env: Any,
    set_state: Callable[[Any, Any], None],
    prior: Callable[[Any], Any],
    *,
    states: Range,
    actions: Range | None = None,
    get_state: Callable[[Any, Any], Any] = lambda _env, observation: observation,
    cost: Callable[[float, Mapping[str, Any]], float] = lambda _reward, info: float(info["cost"]),
    seeds: int = 1000,
    norm: Norm = "l2",
    shared: Sequence[int] = (),
    name: str | None = None,
) -> Simulator:
    """A Gymnasium environment that can be put into a state. Both sides of a comparison get the same seed each round.

    Args:
        env: With a box of actions.
        set_state: `set_state(env, state)`, called after every `env.reset(seed=...)`.
        prior: `prior(state)`, the trusted action.
        states: (low, high) of the states to search, numbers or vectors.
        actions: The same for actions; the environment's own box if not given.
        get_state: `get_state(env, observation)`, the state after a step; the observation if not given.
        cost: `cost(reward, info)` of a step; `info["cost"]` if not given.
        seeds: The noise of a round is that of a seed from 0 to seeds - 1.
        norm: Of gaps between states and between actions.
        shared: Places of the entries of a state that nothing that is played changes, such as a clock.
        name: For the output.
    """
    validate.choice("norm", norm, NORMS)
    seeds = validate.count("seeds", seeds)
    space = env.action_space
    if not hasattr(space, "low"):
        raise TypeError(f"the environment needs a box of actions, got {space!r}")
    made = GymnasiumSimulator(
        name=name or type(env.unwrapped).__name__,
        states=box({"state": states}),
        actions=box({"action": (space.low, space.high) if actions is None else actions}),
        draws=box({"seed": (0.0, seeds - 1.0)}),
        norm=norm,
        traceable=False,
        shared=tuple(shared),
        env=env,
        set_state=set_state,
        get_state=get_state,
        prior_function=prior,
        cost_of=cost,
        action_shape=tuple(space.shape),
    )
    return _checked(made)


def _checked(system: Simulator) -> Simulator:
    """The system, after one round from the middle of its region has given numbers of the right shape."""
    values, draw, action = (
        0.5 * (each.low + each.high) for each in (system.states, system.draws, system.actions)
    )
    with jax.enable_x64(True):
        state = system.start(values)
        prior = np.asarray(system.prior(state, draw))
        after, cost = system.play(state, draw, action)
        following = np.asarray(system.measure(after))
    for what, found, wanted in (
        ("the prior's action", prior, values_shape(system.actions)),
        ("the next state", following, values_shape(system.states)),
        ("the cost", np.asarray(cost), ()),
    ):
        if found.shape != wanted:
            raise ValueError(
                f"{what} of {system.name} has {found.size} numbers in shape {found.shape}, expected {wanted}"
            )
        if not np.all(np.isfinite(found)):
            raise ValueError(f"{what} of {system.name} in the middle of the region is {found}, not finite")
    _check_shared(system)
    return system


def _check_shared(system: Simulator) -> None:
    """Refuse entries that are declared to be shared if what is played, or the rest of the state, changes them."""
    if not system.shared:
        return
    outside = [i for i in system.shared if not 0 <= i < system.states.size]
    if outside or len(set(system.shared)) == system.states.size:
        raise ValueError(
            f"shared names places of a state of {system.states.size} numbers, and not all of them, got {system.shared}"
        )
    values = 0.5 * (system.states.low + system.states.high)
    for draw in (system.draws.low, system.draws.high):
        ends = ((system.others.low, system.actions.low), (system.others.high, system.actions.high))
        with jax.enable_x64(True):
            after = [
                np.asarray(
                    system.measure(system.play(system.start(system.beside(values, other)), draw, action)[0])
                )
                for other, action in ends
            ]
        for i in system.shared:
            if after[0][i] != after[1][i]:
                raise ValueError(
                    f"{system.states.names[i]} is declared to be shared, but after one round it is {after[0][i]:g} or "
                    f"{after[1][i]:g}, depending on what is played and on the rest of the state"
                )


def values_shape(of: Box) -> tuple[int, ...]:
    """Shape of the vectors in a box."""
    return (of.size,)


def _can_be_traced(system: Simulator) -> bool:
    def one_round(values: Any, draw: Any, action: Any) -> Any:
        state = system.start(values)
        return system.prior(state, draw), *system.play(state, draw, action)

    try:
        with jax.enable_x64(True):
            jax.eval_shape(one_round, system.states.low, system.draws.low, system.actions.low)
    except Exception:  # whatever a function does that is not made for tracing
        return False
    return True


def _parts(values: Any, fields: tuple[tuple[str, tuple[int, ...]], ...]) -> dict[str, Any]:
    """The parts of a flat vector, by name and in their shapes."""
    parts, begin = {}, 0
    for name, shape in fields:
        end = begin + int(np.prod(shape))
        parts[name] = values[begin:end].reshape(shape)
        begin = end
    return parts
