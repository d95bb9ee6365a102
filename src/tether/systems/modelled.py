"""A system that is nothing but a model: what a stranger brings, as every command takes it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.certificates.model import Model
from tether.core import validate
from tether.core.ops import namespace
from tether.core.projection import Norm
from tether.core.sensitivity import Sensitivity
from tether.data.episodes import Episodes
from tether.systems.base import Env, Shape, Step
from tether.systems.system import Draw, System

Floats = NDArray[np.float64]


class ModelState(NamedTuple):
    """The state between two rounds."""

    state: Any
    """The model's x: a number or [n]."""


class Simulated:
    """The functions of a model as the environment calls them: in JAX as they are, in NumPy compiled and in float64."""

    def __init__(self, model: Model) -> None:
        if model.reward is None:
            raise ValueError("a system needs a reward to earn: Model(..., reward=lambda x, z, a, w: ...)")
        n, nz, _, p = model.sizes
        if nz + p == 0:
            raise ValueError(
                "nothing is drawn in this model: give it a context or draws, so that there are episodes"
            )
        # What follows in an observation, such as a clock, is none of the model's business.
        read = model.read or (lambda seen: (seen[:n].reshape(shapes[0]), seen[n : n + nz].reshape(shapes[1])))
        shapes = model.shapes
        self.model = replace(model, read=read)
        self.initial = _initial(model)
        from tether.certificates.checked import check  # needs JAX

        check(model)

    def round(self, x: Any, z: Any, a: Any, w: Any) -> tuple[Any, Any, Any]:
        """(next state, reward, cost)."""
        model: Any = self.model
        if model.play is not None:
            cost, after = model.play(x, z, a, w)
        else:
            cost, after = model.cost(x, z, a, w), model.step(x, z, a, w)
        return after, model.reward(x, z, a, w), cost

    def prior(self, observation: Any) -> Any:
        """[*action_shape] of one observation [o]."""
        import jax.numpy as jnp

        model: Any = self.model
        return jnp.reshape(jnp.asarray(model.prior(*model.read(observation))), model.shapes[2])

    @cached_property
    def compiled(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """`round` of one case and `prior` of many, [N, o], for values of NumPy."""
        import jax

        return jax.jit(self.round), jax.jit(jax.vmap(self.prior))

    @cached_property
    def digest(self) -> str:
        """What tells this model from any other: its traced functions and its ranges."""
        import jax

        n, nz, _, _ = self.model.sizes
        with jax.enable_x64(True):
            like = [np.zeros(shape) for shape in self.model.shapes]
            traced = [jax.make_jaxpr(self.round)(*like), jax.make_jaxpr(self.prior)(np.zeros(n + nz))]
        constants = [np.asarray(each).tolist() for program in traced for each in program.consts]
        ranges = [getattr(self.model, name) for name in ("state", "action", "context", "draws", "band")]
        ends = [None if each is None else [np.asarray(end).tolist() for end in each] for each in ranges]
        text = f"{traced} {constants} {ends} {np.asarray(self.initial).tolist()}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _initial(model: Model) -> Any:
    low, high = (end.reshape(model.shapes[0]) for end in model.box("state"))
    given = 0.5 * (low + high) if model.initial is None else np.asarray(model.initial, dtype=np.float64)
    if given.shape != model.shapes[0] or not np.all((given >= low) & (given <= high)):
        raise ValueError(
            f"initial must be a state in the range {model.state!r} of the model, got {model.initial!r}"
        )
    return given if given.ndim else float(given)


@dataclass(frozen=True, repr=False)
class ModelEnv(Env):
    """The environment of a model; `from_model` makes a class of it for each.

    An observation is the state and the context, flat. The series of an episode are `context` and `draws`, as far as the
    model has them.
    """

    hidden: ClassVar[Mapping[str, Shape]] = {"draws": "uniform"}
    simulated: ClassVar[Simulated]
    known: ClassVar[Sensitivity | None]
    floor: ClassVar[float]
    tried: ClassVar[Any]

    def __repr__(self) -> str:
        """With what tells the model from any other: results are kept by it."""
        return f"{type(self).__name__}({self.simulated.digest}, context={self.context!r})"

    @property
    def low(self) -> Any:
        """Of the model's actions."""
        return self.simulated.model.action[0]

    @property
    def high(self) -> Any:
        """Of the model's actions."""
        return self.simulated.model.action[1]

    @property
    def cost_floor(self) -> float:
        """As it was given."""
        return self.floor

    @property
    def sensitivity(self) -> Sensitivity:
        """As it was given, if it was."""
        if self.known is None:
            raise NotImplementedError(
                f"no constants are known for {type(self).__name__}: use the certificate that is compiled from its "
                "model (--certificate compiled), or give sensitivity=... to tether.systems.from_model"
            )
        return self.known

    def model(self) -> Model:
        """The model itself."""
        return self.simulated.model

    def initial(self) -> ModelState:
        """`Model.initial`."""
        return ModelState(self.simulated.initial)

    def observe(self, state: ModelState, drawn: Mapping[str, Any]) -> Any:
        """[n + nz] state and context."""
        xp = namespace(drawn[self.series[0]])
        seen = [state.state, *(drawn[name] for name in self.visible if name in self.series)]
        return xp.concat([xp.reshape(xp.asarray(each), (-1,)) for each in seen])

    def step(self, state: ModelState, drawn: Mapping[str, Any], action: Any) -> Step:
        """Play one round."""
        model = self.simulated.model
        parts = {"context": np.zeros(model.shapes[1]), "draws": np.zeros(model.shapes[3]), **drawn}
        given = (state.state, parts["context"], action, parts["draws"])
        if any(namespace(each) is not np for each in given):
            after, reward, cost = self.simulated.round(*given)
        else:
            after, reward, cost = self._computed(0, *given)
        return Step(ModelState(after), reward, cost)

    def prior(self, observation: Any, key: Any = None) -> Any:  # noqa: ARG002
        """`Model.prior`."""
        if namespace(observation) is not np and observation.ndim == 1:
            return self.simulated.prior(observation)
        if namespace(observation) is not np:
            import jax

            return jax.vmap(self.prior)(observation)
        seen = np.asarray(observation, dtype=np.float64)
        found = self._computed(1, seen.reshape(-1, seen.shape[-1]))
        return np.reshape(found, (*seen.shape[:-1], *self.action_shape))[()]

    def _computed(self, which: int, *given: Any) -> Any:
        """On values of NumPy, in float64."""
        import jax

        with jax.enable_x64(True):
            arrays = [np.asarray(each, dtype=np.float64) for each in given]
            return jax.tree.map(lambda leaf: np.asarray(leaf)[()], self.simulated.compiled[which](*arrays))

    def limits(self) -> Mapping[str, tuple[Any, Any]]:
        """The ranges of the model."""
        model: Any = self.simulated.model
        return {name: getattr(model, name) for name in self.series}

    def search_ranges(self) -> Mapping[str, tuple[Any, Any]]:
        """The range of states, and of actions where the model's own is infinite."""
        tried = {} if self.tried is None else {"action": self.tried}
        return {"state": self.simulated.model.state, **tried}

    def check(self, episodes: Episodes) -> None:
        """Refuse episodes outside the ranges, or whose context leaves its forecast band."""
        super().check(episodes)
        band = self.simulated.model.band
        if band is None:
            return
        low, high = (_of_rounds(end, episodes.horizon) for end in band)
        values = episodes["context"]
        outside = np.argwhere((values < low) | (values > high))
        if outside.size:
            place = tuple(int(i) for i in outside[0])
            raise ValueError(
                f"context must be inside the band of the model; at (episode, round) {place} it is {values[place]:g}, "
                f"expected {low[place[1:]]:g} to {high[place[1:]]:g}"
            )


def from_model(
    name: str,
    title: str,
    model: Model,
    *,
    horizon: int = 24,
    cost_floor: float = 0.0,
    draw: Draw | None = None,
    profile: Callable[[Any], Any] | None = None,
    noise: float = 0.1,
    sensitivity: Sensitivity | None = None,
    norm: Norm = "l2",
    tried: tuple[Any, Any] | None = None,
    **parts: Any,
) -> System:
    """The system of a model, which every command takes: `--certificate compiled` is what its guard knows.

    Args:
        name: As it is called in files: lower case, no spaces.
        title: As people call it.
        model: With a `reward`, and where it starts as `initial`.
        horizon: Rounds of an episode, if no other number is asked for.
        cost_floor: A cost that no round goes below, whoever acts.
        draw: `draw(seed, n, horizon)` gives episodes with the series `context` and `draws`, as far as the model has
            them. By default all is uniform: draws in their range; the context in its band, if the model has one, or
            around `profile`, or else in its range.
        profile: `profile(rounds)`, of the numbers of the rounds [H] from 0: the usual context, [H] or [H, nz].
        noise: Of the context around its profile, to both sides, as a share of the width of its range.
        sensitivity: Lipschitz constants, for whoever wants to compare.
        norm: Of the actions, for which they hold.
        tried: Finite (low, high) of the actions that learners and attacks try, where those of the model are not.
        parts: Further parts of the `System`, by name.

    Example:
        >>> import jax.numpy as jnp
        >>> tank = Model(
        ...     step=lambda x, z, a, w: jnp.clip(x + z - a + w, 0.0, 10.0),
        ...     cost=lambda x, z, a, w: 1.0 + (x + z - a + w - 5.0) ** 2,
        ...     prior=lambda x, z: jnp.clip(x + z - 5.0, 0.0, 4.0),
        ...     reward=lambda x, z, a, w: a,
        ...     state=(0.0, 10.0), action=(0.0, 4.0), context=(0.0, 2.0), draws=(-0.2, 0.0),
        ... )
        >>> system = from_model("tank", "Water tank", tank, cost_floor=1.0)
        >>> env, episodes = system.env(), system.draw(0, 5)
        >>> env.observation_names, episodes
        (('state', 'context'), Episodes(5 of 24 rounds: context, draws))
        >>> float(env.prior([6.0, 1.5]))
        2.5
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be a tether.Model, got {model!r}")
    made = _class_of(name, title, model)
    made.norm, made.known, made.tried = norm, sensitivity, tried
    made.floor = validate.number("cost_floor", cost_floor, minimum=0.0)
    if model.band is not None:
        parts.setdefault("traps", _into_band)
    parts.setdefault("observation_bounds", _state_bounds)
    rounds, around = validate.count("horizon", horizon), validate.number("noise", noise, minimum=0.0)
    return System(name, title, made, draw or _Uniform(model, rounds, profile, around), **parts)


def _class_of(name: str, title: str, model: Model) -> Any:
    """The class of the model's environment, called as the system in capitals: EvStation."""
    shapes = model.shapes
    parts = {
        "__doc__": f"{title}: made of its model by `tether.systems.from_model`.",
        "series": tuple(
            each for each, size in zip(("context", "draws"), model.sizes[1::2], strict=True) if size
        ),
        "observation_names": (*_names("state", shapes[0]), *_names("context", shapes[1])),
        "action_shape": shapes[2],
        "hidden": {"draws": "uniform"} if model.sizes[3] else {},
        "simulated": Simulated(model),
    }
    return type("".join(part.capitalize() for part in name.split("_")), (ModelEnv,), parts)


class _Uniform:
    """The episodes of a model unless others are given; see `from_model`."""

    def __init__(
        self, model: Model, horizon: int, profile: Callable[[Any], Any] | None, noise: float
    ) -> None:
        self.model, self.horizon, self.profile, self.noise = model, horizon, profile, noise
        _ = self._context(horizon)

    def __call__(self, seed: int, n: int, horizon: int | None = None) -> Episodes:
        """See `tether.systems.system.Draw`."""
        rounds = self.horizon if horizon is None else horizon
        rng = np.random.default_rng(seed)
        ends = {"context": self._context(rounds), "draws": self.model.draws}
        shapes = dict(zip(("context", "draws"), self.model.shapes[1::2], strict=True))
        series = {
            name: rng.uniform(low, high, (n, rounds, *shapes[name]))
            for name, (low, high) in ends.items()
            if 0 not in shapes[name]
        }
        return Episodes(series, np.zeros(n, dtype=int))

    def _context(self, rounds: int) -> tuple[Any, Any]:
        """What the context can be in each of so many rounds."""
        low, high = (np.asarray(end, dtype=np.float64) for end in self.model.context)
        if self.profile is not None:
            usual = np.asarray(self.profile(np.arange(rounds)), dtype=np.float64)
            if usual.shape != (rounds, *self.model.shapes[1]):
                raise ValueError(
                    f"profile must give {(rounds, *self.model.shapes[1])} for {rounds} rounds, got {usual.shape}"
                )
            off = self.noise * (high - low)
            low, high = (np.clip(usual + sign * off, low, high) for sign in (-1.0, 1.0))
        if self.model.band is not None:
            least, most = (_of_rounds(end, rounds) for end in self.model.band)
            low, high = (np.clip(end, least, most) for end in (low, high))
        return low, high


def _of_rounds(end: Any, rounds: int) -> Floats:
    """The first rounds of an end of a band."""
    found: Floats = np.asarray(end, dtype=np.float64)
    if len(found) < rounds:
        raise ValueError(f"the band of the model is for {len(found)} rounds, got episodes of {rounds}")
    return found[:rounds]


def _into_band(env: Any, series: dict[str, Any], rng: np.random.Generator) -> None:  # noqa: ARG001
    """Hostile contexts anywhere in their range, moved to the same place of the band of their round."""
    model = env.model()
    (low, high), values = model.context, series["context"]
    least, most = (_of_rounds(end, values.shape[1]) for end in model.band)
    width = np.where(np.asarray(high) > low, np.asarray(high) - low, 1.0)
    series["context"] = np.clip(least + (values - low) / width * (most - least), least, most)


def _state_bounds(env: Any, _action_high: Any) -> dict[str, tuple[float, float]]:
    """The range of each entry of the state, for Gymnasium."""
    model = env.model()
    low, high = model.box("state")
    return {name: (float(low[i]), float(high[i])) for i, name in enumerate(_names("state", model.shapes[0]))}


def _names(name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"{name}_{i + 1}" for i in range(shape[0])) if shape else (name,)
