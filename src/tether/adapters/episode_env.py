"""Any `tether.envs.Env` as a Gymnasium environment; importing this module registers every installed system.

The id is `tether/NAME-v0`, for `gymnasium.make` and `gymnasium.make_vec`. Without an import of this module,
`gymnasium.make("tether.adapters.episode_env:tether/NAME-v0")` does both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from tether.adapters.registration import register_envs
from tether.core import validate
from tether.core.contract import Contract
from tether.data.episodes import Episodes
from tether.systems import registry
from tether.systems.base import Env

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
Draw = Callable[[int, int], Episodes]
"""`draw(seed, n)` gives n episodes, for example `tether.data.synthetic_carbon`."""

RENDER_MODES = ("rgb_array", "human", "ansi")


class _Round(NamedTuple):
    """One played round, as `render` shows it."""

    action: Array
    prior_action: Array
    cost: float
    cumulative_cost: float
    prior_cumulative_cost: float


class EpisodeEnv(gymnasium.Env[Any, Any]):
    """A functional environment, one episode at a time, as Gymnasium wants it.

    Computed with NumPy in float64 by the very functions that `tether.rollout` compiles, so that the same
    actions on the same episode give the same numbers. Observations and actions are float64; an action is a
    vector, [1] for a system whose action is a number, and is clipped to the box like in `tether.rollout`.

    `reset` draws one of the episodes with `np_random`, or takes `options={"episode": i}`, and reports its
    index in `info["episode_index"]` (`info["episode"]` is what Gymnasium and Stable-Baselines3 put statistics
    in). So the prior can be replayed afterwards on exactly what was drawn:
    `tether.rollout(env.system, env.system.prior, env.episodes[indices])`.

    `step` reports in `info`: `cost`; `revealed`, the hidden series of the round, for a certificate that replays the
    prior (`tether.certificates.Shadowing`); `prior_action`, what the prior would have played in the same state;
    `episode_index`; `round`, counted from 1; with a contract also `cumulative_cost` and `bound`, from the prior
    replayed alongside.

    After the last round of the episode `terminated` is true. The objective is the sum over just these rounds
    and nothing is worth anything after them, so a learner must not bootstrap there; `truncated` is never
    true. In the observation that comes with it, the entries that nature draws are those of the last round
    again.

    Args:
        env: The system.
        episodes: What is drawn from; or a function of (seed, n) that makes it, called once, here.
        contract: If given, `info` and the renderings have the bound on the cumulative cost; of several costs, which
            `info["cost"]` has by name, these are about the first.
        action_high: Upper bound of the actions instead of the system's own, for learners that need a finite
            box. It must not be below anything that the prior plays, or a guard will report a breach there.
        observation_bounds: Lower and upper bound for entries of the observation, by name. Entries that are
            series have the bounds for which the system's sensitivity is proved; others have none.
        draws: Number of episodes to make if `episodes` is a function.
        draw_seed: Seed to make them with.
        render_mode: `"rgb_array"`, `"human"` (a window), `"ansi"` (text) or None. Each shows what nature
            drew, the actions and the prior's, the cumulative cost and its bound.

    Example:
        >>> import tether
        >>> env = EpisodeEnv(tether.envs.Carbon(), tether.data.synthetic_carbon, action_high=26.25, draws=100)
        >>> observation, info = env.reset(options={"episode": 17})
        >>> info["episode_index"], observation.shape, env.action_space.shape
        (17, (4,), (1,))
        >>> observation, reward, terminated, truncated, info = env.step(env.prior(observation))
        >>> info["cost"] >= 1.0, terminated
        (True, False)
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        env: Env,
        episodes: Episodes | Draw,
        contract: Contract | None = None,
        *,
        action_high: Any = None,
        observation_bounds: Mapping[str, tuple[float, float]] | None = None,
        draws: int = 2000,
        draw_seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        if not isinstance(env, Env):
            raise TypeError(f"env must be a tether.envs.Env such as tether.envs.Carbon(), got {env!r}")
        if callable(episodes):
            count, seed = validate.count("draws", draws), validate.count("draw_seed", draw_seed, minimum=0)
            episodes = episodes(seed, count)
        env.check(episodes)
        if contract is not None and not isinstance(contract, Contract):
            raise TypeError(f"contract must be a tether.Contract or None, got {contract!r}")
        if contract is not None and contract.scheduled:
            raise ValueError(f"contract must have one lam and one b here, got {contract!r}")
        if contract is not None and contract.horizon not in (episodes.horizon, math.inf):
            raise ValueError(
                f"the contract is for a horizon of {contract.horizon} rounds, "
                f"the episodes have {episodes.horizon}"
            )
        validate.choice("render_mode", render_mode, (None, *RENDER_MODES))
        self.system = env
        self.episodes = episodes
        self.contract = contract
        self.render_mode = render_mode
        self.action_space: spaces.Box = _action_box(env, action_high)
        self.observation_space: spaces.Box = _observation_box(env, episodes, observation_bounds or {})
        self._replays = contract is not None or render_mode is not None
        self._window = _Window() if render_mode == "human" else None
        self._episode: int | None = None

    @property
    def horizon(self) -> int:
        """Number of rounds of an episode."""
        return self.episodes.horizon

    def prior(self, observation: Any) -> Array:
        """The trusted policy's action, in the shape of the action space; a prior for `tether.gym.Guarded`."""
        return self._boxed(self.system.prior(np.asarray(observation, dtype=np.float64)))

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin an episode: a random one, or the one in `options={"episode": i}`."""
        super().reset(seed=seed)
        unknown = set(options or {}) - {"episode"}
        if unknown:
            raise ValueError(
                f"the only option of reset is 'episode', got {', '.join(map(repr, sorted(unknown)))}"
            )
        chosen = (options or {}).get("episode")
        if chosen is None:
            index = int(self.np_random.integers(len(self.episodes)))
        else:
            index = validate.count("options['episode']", chosen, minimum=0)
            if index >= len(self.episodes):
                raise ValueError(f"options['episode'] must be below {len(self.episodes)}, got {index}")
        self._episode = index
        self._series = {name: self.episodes[name][index] for name in self.system.drawn_names}
        self._state = self._replay_state = self.system.initial()
        self._rounds: list[_Round] = []
        if self.render_mode == "human":
            self.render()
        self._observation = self._observe(self._state)
        return self._observation.copy(), {"episode_index": index}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Play one round of the episode; `terminated` is true after the last one."""
        if self._episode is None or len(self._rounds) == self.horizon:
            raise ResetNeeded(
                "there is no episode to step in; call reset() first, and after every last round"
            )
        played = np.clip(self._boxed(action), self.action_space.low, self.action_space.high)
        if not np.all(np.isfinite(played)):
            raise ValueError(f"an action must be finite, got {action!r}")
        prior_action = self.prior(self._observation)
        drawn = self._drawn()
        state, reward, cost = self.system.step(self._state, drawn, self._unboxed(played))
        replayed = self._replay() if self._replays else math.nan

        before = self._rounds[-1].cumulative_cost if self._rounds else 0.0
        first = float(np.ravel(cost)[0])
        record = _Round(played, prior_action, first, before + first, replayed)
        self._state = state
        self._rounds.append(record)
        terminated = len(self._rounds) == self.horizon
        self._observation = self._observe(state)
        info: dict[str, Any] = {
            "cost": record.cost if np.ndim(cost) == 0 else self._by_name(cost),
            "prior_action": prior_action.copy(),
            "episode_index": self._episode,
            "round": len(self._rounds),
            "revealed": {name: np.array(drawn[name]) for name in self.system.hidden},
        }
        if self.contract is not None:
            info["cumulative_cost"] = record.cumulative_cost
            info["bound"] = float(self.contract.bound(replayed, len(self._rounds)))
        if self.render_mode == "human":
            self.render()
        return self._observation.copy(), float(reward), terminated, False, info

    def render(self) -> Any:
        """The episode up to now: an image [height, width, 3], a text, or None if shown in the window."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                'there is nothing to render without a render mode, for example render_mode="rgb_array"'
            )
            return None
        if self._episode is None:
            raise ResetNeeded("there is no episode to render; call reset() first")
        if self.render_mode == "ansi":
            return self._text()
        image = _image(self._figure())
        if self._window is not None:
            self._window.show(image, pause=1.0 / self.metadata["render_fps"])
            return None
        return image

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()

    def _boxed(self, action: Any) -> Array:
        """`action` as [n]; the same numbers in another shape are accepted."""
        array = np.array(action, dtype=np.float64)
        if array.size != self.action_space.low.size:
            raise ValueError(f"an action must have shape {self.action_space.shape}, got {array.shape}")
        return array.reshape(self.action_space.shape)

    def _unboxed(self, action: Array) -> Any:
        """`action` as the system wants it: a number where its actions are numbers."""
        return action if self.system.action_shape else float(action[0])

    def _drawn(self) -> dict[str, Any]:
        """What nature drew for the coming round; after the last one, that of the last."""
        at = min(len(self._rounds), self.horizon - 1)
        return {name: values[at] for name, values in self._series.items()}

    def _observe(self, state: Any) -> Array:
        return np.asarray(self.system.observation(state, self._drawn()), dtype=np.float64)

    def _replay(self) -> float:
        """Let the prior, from its own state, play the round at hand too; its cumulative cost."""
        action = self._boxed(self.system.prior(self._observe(self._replay_state)))
        action = np.clip(action, self.system.low, self.system.high)
        self._replay_state, _, cost = self.system.step(
            self._replay_state, self._drawn(), self._unboxed(action)
        )
        return (self._rounds[-1].prior_cumulative_cost if self._rounds else 0.0) + float(np.ravel(cost)[0])

    def _by_name(self, costs: Any) -> dict[str, float]:
        return dict(zip(self.system.cost_names, np.asarray(costs).tolist(), strict=True))

    def _title(self) -> str:
        name = type(self.system).__name__
        return f"{name}, episode {self._episode}, round {len(self._rounds)} of {self.horizon}"

    def _columns(self) -> dict[str, Array]:
        """What `render` shows, by name, each [rounds so far]."""
        past = len(self._rounds)
        columns = {name: values[:past] for name, values in self._nature().items()}
        size = self.action_space.low.size
        for label, field in (("action", "action"), ("prior's action", "prior_action")):
            values = np.array([getattr(record, field) for record in self._rounds]).reshape(past, size)
            for i in range(size):
                columns[f"{label} {i + 1}" if size > 1 else label] = values[:, i]
        for label, field in (
            ("cost", "cost"),
            ("cumulative cost", "cumulative_cost"),
            ("prior's cumulative cost", "prior_cumulative_cost"),
        ):
            columns[label] = np.array([getattr(record, field) for record in self._rounds], dtype=np.float64)
        if self.contract is not None:
            rounds = np.arange(1, past + 1)
            columns["bound"] = self.contract.bound(columns["prior's cumulative cost"], rounds)
        return columns

    def _nature(self) -> dict[str, Array]:
        """What nature drew and a policy sees, such as demand and renewables, each [H]."""
        entries: dict[str, Array] = {}
        for series, values in self._series.items():
            entries |= _entries(series, values, axis=1)
        return {name: values for name, values in entries.items() if name in self.system.observation_names}

    def _text(self) -> str:
        columns = {"round": np.arange(1, len(self._rounds) + 1)} | self._columns()
        lines = [self._title(), "  ".join(f"{name:>8}" for name in columns)]
        for row in zip(*columns.values(), strict=True):
            cells = (f"{number:{max(len(name), 8)}.5g}" for name, number in zip(columns, row, strict=True))
            lines.append("  ".join(cells))
        return "\n".join(lines)

    def _figure(self) -> Figure:
        from matplotlib.ticker import MaxNLocator

        from tether.core.drawing import BLUE, GREEN, GREY, ORANGE, RED, new_figure

        figure, axes = new_figure(8.5, 7.0, rows=3, sharex=True)
        nature, actions, costs = axes[:, 0]
        columns, rounds = self._columns(), np.arange(1, len(self._rounds) + 1)

        def line(axis: Any, name: str, color: str, style: str = "-", marker: str = "o") -> None:
            axis.plot(
                rounds, columns[name], color=color, linestyle=style, marker=marker, markersize=3, label=name
            )

        palette = (BLUE, GREEN, ORANGE, RED, GREY)
        for name, color in zip(self._nature(), palette, strict=False):
            line(nature, name, color)
        names = [name for name in columns if name.startswith("action")]
        for name, color in zip(names, palette, strict=False):
            line(actions, name, color)
            line(actions, f"prior's {name}", ORANGE if len(names) == 1 else color, "--", "x")
        line(costs, "cumulative cost", BLUE)
        line(costs, "prior's cumulative cost", GREY, ":", "")
        if "bound" in columns:
            line(costs, "bound", RED, "-", "")
        nature.set_ylabel("drawn by nature")
        actions.set_ylabel("actions")
        costs.set_ylabel("cumulative cost")
        nature.set_title(self._title(), loc="left")
        costs.set_xlabel("round h")
        costs.set_xlim(0.5, self.horizon + 0.5)
        costs.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axis in (nature, actions, costs):
            if axis.dataLim.y0 >= 0.0:
                axis.set_ylim(bottom=0.0)
            axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9, frameon=False)
        return figure


class _Window:
    """A Matplotlib window for one image after another; opened by the first, not copied or pickled."""

    def __init__(self) -> None:
        import matplotlib.pyplot as plt

        backend = plt.get_backend().lower()
        if backend in ("agg", "cairo", "pdf", "pgf", "ps", "svg", "template"):
            raise RuntimeError(
                'render_mode="human" opens a window, but Matplotlib has no display here (its backend is '
                f'{backend!r}); use render_mode="rgb_array" or "ansi", or set MPLBACKEND to one with windows'
            )
        self._shown: Any = None

    def show(self, image: NDArray[np.uint8], pause: float) -> None:
        import matplotlib.pyplot as plt

        if self._shown is None:
            height, width = image.shape[:2]
            figure = plt.figure("tether", figsize=(width / 100.0, height / 100.0), dpi=100)
            axis = figure.add_axes((0.0, 0.0, 1.0, 1.0))
            axis.set_axis_off()
            self._shown = axis.imshow(image)
        else:
            self._shown.set_data(image)
        plt.pause(pause)

    def close(self) -> None:
        import matplotlib.pyplot as plt

        if self._shown is not None:
            plt.close(self._shown.figure)
            self._shown = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_shown": None}


def _image(figure: Figure) -> NDArray[np.uint8]:
    """The figure's pixels, [height, width, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba(), dtype=np.uint8)[..., :3].copy()


def _action_box(env: Env, action_high: Any) -> spaces.Box:
    shape = env.action_shape or (1,)
    low = np.broadcast_to(np.asarray(env.low, dtype=np.float64), shape)
    high = np.broadcast_to(
        np.asarray(env.high if action_high is None else action_high, dtype=np.float64), shape
    )
    if np.any(high > env.high) or not np.all(low < high):
        raise ValueError(
            f"action_high must be above {low.tolist()} and at most the system's own bound, {env.high}, "
            f"got {action_high!r}"
        )
    return spaces.Box(low, high, shape, np.float64)


def _observation_box(env: Env, episodes: Episodes, given: Mapping[str, tuple[float, float]]) -> spaces.Box:
    names = env.observation_names
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(f"observation_bounds may name {', '.join(names)}; got {', '.join(unknown)}")
    bounds = dict.fromkeys(names, (-math.inf, math.inf))
    for series, limits in env.limits().items():
        ends = [np.broadcast_to(end, episodes[series].shape[2:]) for end in limits]
        known = [_entries(series, end, axis=0) for end in ends]
        for name, values in _entries(series, episodes[series], axis=2).items():
            if name in bounds:
                # A bound must hold for what is there: a policy is shown nothing outside the space.
                low, high = given.get(name, (float(known[0][name]), float(known[1][name])))
                bounds[name] = (min(low, float(np.min(values))), max(high, float(np.max(values))))
    bounds |= {name: pair for name, pair in given.items() if name not in episodes.names}
    for series in env.context:
        for name, values in _entries(series, episodes[series], axis=2).items():
            bounds[f"context: {name}"] = (float(np.min(values)), float(np.max(values)))
    low, high = np.array(list(bounds.values()), dtype=np.float64).T
    return spaces.Box(low, high, dtype=np.float64)


def _entries(name: str, values: Array, axis: int) -> dict[str, Array]:
    """A series by the names that its entries have in an observation: its own, or that and a number from 1."""
    if values.ndim == axis:
        return {name: values}
    return {f"{name}_{i + 1}": values[..., i] for i in range(values.shape[-1])}


def make_env(
    system: str,
    env: Env | None = None,
    episodes: Episodes | Draw | None = None,
    contract: Contract | None = None,
    *,
    action_high: Any = None,
    **options: Any,
) -> EpisodeEnv:
    """An `EpisodeEnv` with finite boxes and generated episodes: what `gymnasium.make("tether/...-v0")` calls.

    Args:
        system: The name of an installed system, such as `"carbon"`; `gymnasium.make` gives it.
        env: The system with other parameters than its defaults.
        episodes: See `EpisodeEnv`; by default the system's synthetic episodes.
        contract: See `EpisodeEnv`.
        action_high: Upper bound of the actions; by default what the system says (`System.action_high`).
        options: The other arguments of `EpisodeEnv`.

    Example:
        >>> env = gymnasium.make("tether/Carbon-v0", draws=10)
        >>> observation, info = env.reset(seed=0)
        >>> env.action_space
        Box(0.0, 26.25, (1,), float64)
    """
    found = registry.find(system)
    env = found.env() if env is None else env
    drawn: Episodes | Draw = found.draw if episodes is None else episodes
    if action_high is None and found.action_high is not None:
        action_high = found.action_high(env)
    bounds: Mapping[str, tuple[float, float]] = {}
    if found.observation_bounds is not None:
        bounds = found.observation_bounds(env, env.high if action_high is None else action_high)
    return EpisodeEnv(env, drawn, contract, action_high=action_high, observation_bounds=bounds, **options)


register_envs()
