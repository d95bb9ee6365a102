"""A model of a plant: a few functions, and the ranges of what they are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from tether.certificates.functions import in_two_precisions

Values: TypeAlias = Any
"""A number or [n], as the ranges say."""
Range: TypeAlias = tuple[Any, Any]
"""(low, high): numbers, or [n] each."""
EMPTY: Range = (np.zeros(0), np.zeros(0))


@dataclass(frozen=True, eq=False)
class Model:
    """What `tether.certificates.compiled.compile` needs to know of a plant.

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
        ...     prior=lambda x, z: jnp.clip(x + z - 5.0, 0.0, 4.0),
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
    """A forecast of the context: (low, high), [H, ...] each, by round; what is seen must lie in it and in `context`."""
    read: Callable[[Any], tuple[Values, Values]] | None = None
    """observation to (x, z); without it an observation is [x..., z...], flat."""
    play: Callable[[Values, Values, Values, Values], tuple[Any, Values]] | None = None
    """(cost, next state) at once, where that is less work than both functions; None if it is not."""
    reward: Callable[[Values, Values, Values, Values], Any] | None = None
    """reward(x, z, a, w): what a learner earns, for `tether.systems.from_model`; no bound depends on it."""
    initial: Values | None = None
    """The state before the first round, to simulate; the middle of the range if None."""

    def __post_init__(self) -> None:
        for name in ("step", "cost", "prior"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be a function, got {getattr(self, name)!r}")
        for name in ("step", "cost", "prior", "reward", "play"):
            object.__setattr__(self, name, in_two_precisions(getattr(self, name)))
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
        backups = {name: in_two_precisions(each) for name, each in self.backups.items()}
        object.__setattr__(self, "backups", backups)
        if self.band is not None:
            low, high = _ends("band", self.band)
            shape = _ends("context", self.context)[0].shape
            if low.shape[1:] != shape or np.any(~(low <= high)):
                raise ValueError(
                    f"band must be (low, high), [H{', n' if shape else ''}] each, got {self.band!r}"
                )
            least, most = _ends("context", self.context)
            if np.any((low > most) | (high < least)):
                raise ValueError(
                    f"in some round nothing of band is in the range of the context, {self.context!r}, got {self.band!r}"
                )

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of state, context, action and draw."""
        return tuple(
            _ends(name, getattr(self, name))[0].shape for name in ("state", "context", "action", "draws")
        )

    @cached_property
    def sizes(self) -> tuple[int, int, int, int]:
        """How many numbers state, context, action and draw are."""
        n, nz, m, p = (math.prod(shape) for shape in self.shapes)
        return n, nz, m, p

    def box(self, name: str) -> tuple[Any, Any]:
        """The ends of a range as flat vectors."""
        low, high = _ends(name, getattr(self, name))
        return low.reshape(-1), high.reshape(-1)

    def policy(self, observation: Any) -> Any:
        """The prior's action for an observation, as `tether.Guard(certificate, prior=model.policy)` asks for it.

        Computed in float64: a number, or [m]. An observation is what `read` takes; without it [x..., z...], flat.
        """
        return self._policy(observation)

    @cached_property
    def _policy(self) -> Callable[[Any], Any]:
        import jax
        import jax.numpy as jnp

        n, shapes = self.sizes[0], self.shapes

        def prior(observation: Any) -> Any:
            if self.read is not None:
                x, z = self.read(observation)
            else:
                flat = jnp.reshape(observation, (-1,))
                x, z = flat[:n], flat[n:]
            action = self.prior(jnp.reshape(x, shapes[0]), jnp.reshape(z, shapes[1]))
            return jnp.reshape(jnp.asarray(action, dtype=float), shapes[2])

        compiled = jax.jit(prior)

        def of(observation: Any) -> Any:
            with jax.enable_x64(True):
                seen: Any
                if hasattr(observation, "keys"):
                    seen = {name: np.asarray(each, dtype=float) for name, each in observation.items()}
                else:
                    seen = np.asarray(observation, dtype=float)
                found = np.asarray(compiled(seen))
            return found if shapes[2] else float(found)

        return of

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
        effect = None if E is None else np.asarray(E, dtype=float)
        low, high = _ends("action", action)

        def step(x: Values, z: Values, a: Values, w: Values) -> Values:
            moved = a_matrix @ x + b_matrix @ a + w
            return moved if effect is None else moved + effect @ z

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
        parts = _OfEnv(env)
        action = [
            np.broadcast_to(np.asarray(end, dtype=float), env.action_shape) for end in (env.low, env.high)
        ]
        return cls(
            step=parts.step,
            cost=parts.cost,
            prior=parts.prior,
            state=parts.ends(parts.fields),
            action=(action[0], action[1]),
            context=parts.ends(parts.seen),
            draws=parts.ends(parts.hidden),
            backups=backups or {},
            read=parts.read,
            play=parts.play,
        )


class _OfEnv:
    """The functions and ranges of an environment, in flat vectors."""

    def __init__(self, env: Any) -> None:
        self.env, self.initial = env, env.initial()
        ranges = {**env.limits(), **env.search_ranges()}
        self.fields = tuple(name for name in self.initial._fields if name in ranges)
        self.fixed = {
            name: np.asarray(ranges[name][0])
            for name in env.drawn_names
            if name in ranges and np.all(np.asarray(ranges[name][0]) == np.asarray(ranges[name][1]))
        }
        # What is only shown, such as a clock, has no effect on costs either.
        self.seen = tuple(name for name in env.visible if name in env.series and name not in self.fixed)
        self.hidden = tuple(name for name in env.hidden if name not in self.fixed)
        missing = [name for name in (*self.seen, *self.hidden) if name not in ranges]
        if missing or not self.fields:
            raise ValueError(
                f"{type(env).__name__} gives no range for {missing[0] if missing else 'any part of its state'}; "
                "name it in search_ranges()"
            )
        self.ranges = {name: [np.asarray(end, dtype=float) for end in each] for name, each in ranges.items()}
        self.shapes = {
            name: np.broadcast(*self.ranges[name]).shape for name in (*self.seen, *self.hidden)
        } | {name: np.shape(getattr(self.initial, name)) for name in self.fields}

    def ends(self, names: tuple[str, ...]) -> Range:
        """The range of these, one after the other."""
        low, high = (
            [np.broadcast_to(self.ranges[name][i], self.shapes[name]).reshape(-1) for name in names]
            for i in (0, 1)
        )
        return (np.concatenate(low), np.concatenate(high)) if names else EMPTY

    def step(self, x: Values, z: Values, a: Values, w: Values) -> Values:
        """See `Model.step`."""
        return self.play(x, z, a, w)[1]

    def cost(self, x: Values, z: Values, a: Values, w: Values) -> Values:
        """See `Model.cost`."""
        return self.play(x, z, a, w)[0]

    def play(self, x: Values, z: Values, a: Values, w: Values) -> tuple[Any, Values]:
        """See `Model.play`."""
        drawn = {**self._still(), **self._split(z, self.seen), **self._split(w, self.hidden)}
        after = self.env.step(self._state(x), drawn, a)
        return after.cost, _flat([getattr(after.state, name) for name in self.fields])

    def prior(self, x: Values, z: Values) -> Values:
        """See `Model.prior`; what is hidden is not seen, so any draw does."""
        hidden = {name: 0.5 * (self.ranges[name][0] + self.ranges[name][1]) for name in self.hidden}
        drawn = {**self._still(), **self._split(z, self.seen), **hidden}
        return self.env.prior(self.env.observe(self._state(x), drawn))

    def read(self, observation: Any) -> tuple[Values, Values]:
        """See `Model.read`."""
        state, visible = self.env.shown(observation)
        z = [visible[name] for name in self.seen]
        return _flat([getattr(state, name) for name in self.fields]), _flat(z) if z else np.zeros(0)

    def _still(self) -> dict[str, Any]:
        """What never changes, as new arrays: JAX takes an array for one of the precision in which it met it first."""
        return {name: np.array(each) for name, each in self.fixed.items()}

    def _state(self, x: Values) -> Any:
        return self.initial._replace(**self._split(x, self.fields))

    def _split(self, values: Values, names: tuple[str, ...]) -> dict[str, Any]:
        parts, start = {}, 0
        for name in names:
            size = math.prod(self.shapes[name])
            parts[name] = values[start : start + size].reshape(self.shapes[name])
            start += size
        return parts


def _flat(parts: list[Any]) -> Any:
    import jax.numpy as jnp

    return jnp.concatenate([jnp.reshape(jnp.asarray(each), (-1,)) for each in parts])


def _ends(name: str, given: Any) -> tuple[Any, Any]:
    try:
        low, high = (np.asarray(end, dtype=np.float64) for end in given)
        low, high = np.broadcast_arrays(low, high)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a range (low, high) of numbers or vectors, got {given!r}"
        ) from error
    return low, high
