"""A model of a plant: a few functions, and the ranges of what they are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

Values: TypeAlias = Any
"""A number or [n], as the ranges say."""
Range: TypeAlias = tuple[Any, Any]
"""(low, high): numbers, or [n] each."""
EMPTY: Range = (np.zeros(0), np.zeros(0))


@dataclass(frozen=True, eq=False)
class Model:
    """What `tether.compile` needs to know of a plant.

    The functions are written with `jax.numpy` for one plant at a time. x is the state before the round, z the context
    that is seen before acting (demand, price, weather) and that is the same whoever acts, a the action, and w the
    hidden draw of the round. Each has the shape of its range: numbers, or vectors [n].

    Write kinks with `maximum`, `minimum`, `clip` and `abs`: a `where` may jump, and costs freedom where it is not known
    which side counts.

    Example:
        >>> import jax.numpy as jnp
        >>> tank = Model(
        ...     step=lambda x, z, a, w: jnp.clip(x + z - a + w, 0.0, 10.0),  # level, inflow, outflow, leak
        ...     cost=lambda x, z, a, w: (x + z - a + w - 5.0) ** 2,
        ...     prior=lambda x, z: jnp.maximum(x + z - 5.0, 0.0),
        ...     state=(0.0, 10.0),
        ...     action=(0.0, 4.0),
        ...     context=(0.0, 2.0),
        ...     draws=(-0.2, 0.0),
        ... )
        >>> tank.sizes
        (1, 1, 1, 1)
    """

    step: Callable[[Values, Values, Values, Values], Values]
    """step(x, z, a, w): the next state."""
    cost: Callable[[Values, Values, Values, Values], Any]
    """cost(x, z, a, w): what the round costs, a number of at least the contract's floor."""
    prior: Callable[[Values, Values], Values]
    """prior(x, z): the trusted policy's action, inside the range of actions."""
    state: Range
    """In which the model holds; a state outside is a breach of the assumptions."""
    action: Range
    """The actions that there are; infinite ends are allowed."""
    context: Range = EMPTY
    """Of what is seen before acting, in any round."""
    draws: Range = EMPTY
    """Of what is hidden."""
    backups: Mapping[str, Callable[[Values, Values], Values]] = field(default_factory=dict)
    """Policies beside the prior that lead back to safety, by name, such as full power: (x, z) to an action."""
    band: Range | None = None
    """A forecast of the context: (low, high), [H, ...] each, by round; what is seen must lie in it."""
    read: Callable[[Any], tuple[Values, Values]] | None = None
    """observation to (x, z); without it an observation is [x..., z...], flat."""
    play: Callable[[Values, Values, Values, Values], tuple[Any, Values]] | None = None
    """(cost, next state) at once, where that is less work than both functions; None if it is not."""

    def __post_init__(self) -> None:
        for name in ("step", "cost", "prior"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be a function, got {getattr(self, name)!r}")
        for name in ("state", "context", "draws", "action"):
            low, high = _ends(name, getattr(self, name))
            if np.any(~(low <= high)) or (
                name != "action" and not np.all(np.isfinite([*low.flat, *high.flat]))
            ):
                raise ValueError(
                    f"{name} must be a finite range (low, high) with low <= high, got {getattr(self, name)!r}"
                )
        for name, backup in self.backups.items():
            if not isinstance(name, str) or not callable(backup) or name == "prior":
                raise TypeError(
                    f"backups must map names other than 'prior' to functions, got {name!r}: {backup!r}"
                )
        if self.band is not None:
            low, high = _ends("band", self.band)
            shape = _ends("context", self.context)[0].shape
            if low.shape[1:] != shape or np.any(~(low <= high)):
                raise ValueError(
                    f"band must be (low, high), [H{', n' if shape else ''}] each, got {self.band!r}"
                )

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of state, context, action and draw."""
        return tuple(
            _ends(name, getattr(self, name))[0].shape for name in ("state", "context", "action", "draws")
        )

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """How many numbers state, context, action and draw are."""
        n, nz, m, p = (math.prod(shape) for shape in self.shapes)
        return n, nz, m, p

    def box(self, name: str) -> tuple[Any, Any]:
        """The ends of a range as flat vectors."""
        low, high = _ends(name, getattr(self, name))
        return low.reshape(-1), high.reshape(-1)

    @classmethod
    def linear(
        cls,
        A: Any,
        B: Any,
        K: Any,
        cost: Callable[[Values, Values, Values, Values], Any],
        *,
        state: Range,
        action: Range,
        draws: Range,
        context: Range = EMPTY,
        E: Any = None,
        target: Any = 0.0,
        **options: Any,
    ) -> Model:
        """A linear plant, x' = A x + B a + E z + w, whose prior is a = clip(K (x - target), action).

        Args:
            A: [n, n].
            B: [n, m].
            K: [m, n].
            cost: See `Model.cost`.
            state: See `Model.state`.
            action: See `Model.action`.
            draws: Of w, [n].
            context: See `Model.context`.
            E: [n, nz]; None if the context has no effect on the state.
            target: [n] the state at which the prior does nothing.
            options: The other fields of `Model`.
        """
        a_matrix, b_matrix, gain = (np.asarray(each, dtype=float) for each in (A, B, K))
        n, m = b_matrix.shape if b_matrix.ndim == 2 else (0, 0)
        if a_matrix.shape != (n, n) or gain.shape != (m, n) or n == 0:
            raise ValueError(
                f"A must be [n, n], B [n, m] and K [m, n], got {a_matrix.shape}, {b_matrix.shape}, {gain.shape}"
            )
        low, high = _ends("action", action)

        def step(x: Values, z: Values, a: Values, w: Values) -> Values:
            moved = a_matrix @ x + b_matrix @ a + w
            return moved if E is None else moved + np.asarray(E, dtype=float) @ z

        def prior(x: Values, _z: Values) -> Values:
            import jax.numpy as jnp

            return jnp.clip(gain @ (x - target), low, high)

        return cls(step, cost, prior, state, action, context, draws, **options)

    @classmethod
    def from_env(
        cls, env: Any, backups: Mapping[str, Callable[[Values, Values], Values]] | None = None
    ) -> Model:
        """The model of an environment of tether's kind (`tether.systems.base.Env`).

        Ranges are those of `env.limits()` and `env.search_ranges()`: the entries of the state that are named there are
        the state of the model; series that are fixed there (low = high) have no effect on costs and are left out.

        Args:
            env: The environment.
            backups: See `Model.backups`.
        """
        ranges = {**env.limits(), **env.search_ranges()}
        initial = env.initial()
        fields = tuple(name for name in initial._fields if name in ranges)
        fixed = {
            name: np.asarray(ranges[name][0])
            for name in env.drawn_names
            if name in ranges and np.all(np.asarray(ranges[name][0]) == np.asarray(ranges[name][1]))
        }
        seen = tuple(name for name in env.visible if name not in fixed)
        hidden = tuple(env.hidden)
        missing = [name for name in (*seen, *hidden) if name not in ranges]
        if missing or not fields:
            raise ValueError(
                f"{type(env).__name__} gives no range for {missing[0] if missing else 'any part of its state'}; "
                "name it in search_ranges()"
            )
        like = {name: np.shape(getattr(initial, name)) for name in fields}

        def split(
            values: Any, names: tuple[str, ...], shapes: Mapping[str, tuple[int, ...]]
        ) -> dict[str, Any]:
            parts, start = {}, 0
            for name in names:
                size = math.prod(shapes[name])
                parts[name] = values[start : start + size].reshape(shapes[name])
                start += size
            return parts

        shapes = {name: np.broadcast(*map(np.asarray, ranges[name])).shape for name in (*seen, *hidden)}

        def state_of(x: Any) -> Any:
            return initial._replace(**split(x, fields, like))

        def drawn(z: Any, w: Any) -> dict[str, Any]:
            return {**fixed, **split(z, seen, shapes), **split(w, hidden, shapes)}

        def flat(parts: list[Any]) -> Any:
            import jax.numpy as jnp

            return jnp.concatenate([jnp.reshape(jnp.asarray(each), (-1,)) for each in parts])

        def step(x: Any, z: Any, a: Any, w: Any) -> Any:
            after = env.step(state_of(x), drawn(z, w), a).state
            return flat([getattr(after, name) for name in fields])

        def cost(x: Any, z: Any, a: Any, w: Any) -> Any:
            return env.step(state_of(x), drawn(z, w), a).cost

        def play(x: Any, z: Any, a: Any, w: Any) -> tuple[Any, Any]:
            after = env.step(state_of(x), drawn(z, w), a)
            return after.cost, flat([getattr(after.state, name) for name in fields])

        def prior(x: Any, z: Any) -> Any:
            middle = {
                name: 0.5 * (np.asarray(ranges[name][0]) + np.asarray(ranges[name][1])) for name in hidden
            }
            return env.prior(env.observe(state_of(x), {**fixed, **split(z, seen, shapes), **middle}))

        def read(observation: Any) -> tuple[Any, Any]:
            state, visible = env.shown(observation)
            z = [visible[name] for name in seen]
            return flat([getattr(state, name) for name in fields]), flat(z) if z else np.zeros(0)

        def ends(names: tuple[str, ...], shapes: Mapping[str, tuple[int, ...]]) -> Range:
            if not names:
                return EMPTY
            return tuple(
                np.concatenate([np.broadcast_to(ranges[name][i], shapes[name]).reshape(-1) for name in names])
                for i in (0, 1)
            )  # type: ignore[return-value]

        action = tuple(
            np.broadcast_to(np.asarray(end, dtype=float), env.action_shape) for end in (env.low, env.high)
        )
        return cls(
            step, cost, prior, ends(fields, like), action, ends(seen, shapes), ends(hidden, shapes),
            backups or {}, None, read, play,
        )  # type: ignore[arg-type]  # fmt: skip


def _ends(name: str, given: Any) -> tuple[Any, Any]:
    try:
        low, high = (np.asarray(end, dtype=np.float64) for end in given)
        low, high = np.broadcast_arrays(low, high)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a range (low, high) of numbers or vectors, got {given!r}"
        ) from error
    return low, high
