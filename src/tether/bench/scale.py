"""How time and memory grow: with episodes, settings, horizon, and the dimensions of state and action.

Each size is measured in a process of its own, pinned to one core and with everything compiled before by another one, so
that what is compared is the work and what it holds. Time is that of a processor, which other work on the machine hardly
changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tether.core.output import peak_memory
from tether.engines import aside
from tether.engines.pinning import pin
from tether.systems import registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tether.systems.system import System

SIZES: dict[str, tuple[int, ...]] = {
    "episodes": (1_000, 10_000, 100_000, 1_000_000),
    "horizon": (24, 240, 2_400, 24_000, 100_000),
    "settings": (1, 4, 16, 64),
    "states": (1, 4, 16, 64, 256),
    "actions": (1, 4, 16, 64, 256),
}
"""What grows, and how far."""
FIXED = {
    "episodes": "guarded rollout, 24 rounds",
    "horizon": "guarded rollout, 10 episodes",
    "settings": "one pass of ACRL, 100 episodes, one seed",
    "states": "guarded rollout, 1000 episodes of 24 rounds, one action",
    "actions": "guarded rollout, 1000 episodes of 24 rounds, one state",
}
"""What is done, and what stays as it is."""


class Point(NamedTuple):
    """One size."""

    size: int
    seconds: float
    """Of a processor."""
    memory: float
    """Above what the process held before, MB."""


class Growth(NamedTuple):
    """What grows, and how."""

    what: str
    points: list[Point]

    @property
    def exponents(self) -> tuple[float, float]:
        """Of time and memory in the size, over the larger half of the sizes."""
        return exponent([(each.size, each.seconds) for each in self.points]), exponent(
            [(each.size, each.memory) for each in self.points]
        )


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of log(value) in log(size) over the larger half of the points, by least squares.

    Example:
        >>> round(exponent([(1, 5.0), (10, 5.0), (100, 20.0), (1000, 200.0)]), 3)
        1.0
    """
    some = points[-max(2, len(points) // 2) :]
    sizes, values = (np.log(np.maximum(each, 1e-9)) for each in zip(*some, strict=True))
    return float(np.polyfit(sizes, values, 1)[0])


def measure(
    system: str,
    most: dict[str, int] | None = None,
    report: Callable[[int, int, str], None] = lambda _done, _total, _what: None,
) -> Iterator[Growth]:
    """Every growth; `most` bounds the sizes of some."""
    bounds = most or {}
    chosen = {
        what: [size for size in sizes if size <= bounds.get(what, size)] for what, sizes in SIZES.items()
    }
    done, total = 0, sum(map(len, chosen.values()))
    for what, sizes in chosen.items():
        points = []
        for size in sizes:
            report(done, total, f"{what} {size}")
            # Twice: the first process compiles, which takes more memory than playing, and leaves its programs behind.
            found = [aside.call(_measured, (system, what, size)) for _ in range(2)]
            points.append(Point(size, *found[-1]))
            done += 1
        yield Growth(what, points)


def _measured(system: str, what: str, size: int) -> tuple[float, float]:
    """(seconds of a processor, MB above what was held before) of one size."""
    pin(1)
    if what == "settings":
        return _trained(registry.find(system), size)
    chosen = linear(size, 1) if what == "states" else linear(1, size) if what == "actions" else None
    episodes = {"episodes": size, "horizon": 10}.get(what, 1000)
    horizon = size if what == "horizon" else 24
    return _played(chosen or registry.find(system), episodes, horizon)


def _played(system: System, episodes: int, horizon: int) -> tuple[float, float]:
    from tether.assure.hostile import Greedy
    from tether.certificates import LipschitzCertificate
    from tether.simulate.rollout import rollout

    env = system.env()
    certificate = LipschitzCertificate(env.contract(1.0, 1.0, horizon), env.sensitivity)
    policy: Any = Greedy(env) if not env.action_shape else env.prior
    few = system.draw(0, 2, horizon)
    rollout(env, policy, few, certificate, record="outcomes")
    before = peak_memory()
    drawn = system.draw(0, episodes, horizon)
    rollout(env, policy, drawn, certificate, record="outcomes")  # compiles for this number of episodes
    held, begin = peak_memory() - before, time.process_time()
    rollout(env, policy, drawn, certificate, record="outcomes")
    return time.process_time() - begin, held


def _trained(system: System, settings: int) -> tuple[float, float]:
    from tether.certificates import LipschitzCertificate
    from tether.learn.train import Recipe, train

    env, data = system.env(), system.draw(0, 100)
    certificate = LipschitzCertificate(env.contract(1.0, 1.0, data.horizon), env.sensitivity)
    ticks, before = [], peak_memory()
    train(
        "acrl",
        env,
        data,
        certificate,
        lams=np.linspace(0.5, 5.0, settings).tolist(),
        seeds=[0],
        recipe=Recipe(passes=4),
        report=lambda _done, _history: ticks.append(time.process_time()),
    )
    return float(np.median(np.diff(ticks))), peak_memory() - before


def linear(states: int, actions: int) -> System:
    """X' = x / 2 + mean(a) + w in each entry, cost 1 + mean |x'|, and a prior that plays 0; [states], [actions].

    A deviation d moves mean(a) by at most |d|, so immediate is 1; of the next round's cost it moves half as much, and
    each round halves what is left: carried is 1/2, and p(n) = 2^-n.
    """
    import jax.numpy as jnp

    from tether.certificates.model import Model
    from tether.core.sensitivity import Sensitivity, geometric
    from tether.systems.modelled import from_model

    def step(x: Any, z: Any, a: Any, w: Any) -> Any:  # noqa: ARG001
        return 0.5 * x + jnp.mean(a) + w

    model = Model(
        step=step,
        cost=lambda x, z, a, w: 1.0 + jnp.mean(abs(step(x, z, a, w))),
        prior=lambda x, z: 0.0 * jnp.sum(x) + jnp.zeros(actions),  # noqa: ARG005
        state=(-4.0 * np.ones(states), 4.0 * np.ones(states)),
        action=(-np.ones(actions), np.ones(actions)),
        draws=(-0.05 * np.ones(states), 0.05 * np.ones(states)),
        reward=lambda x, z, a, w: jnp.mean(a),  # noqa: ARG005
    )
    known = Sensitivity(1.0, 0.5, geometric(0.5))
    return from_model("linear", "Linear", model, sensitivity=known, cost_floor=1.0)


def figure(growths: Sequence[Growth]) -> Figure:
    """Time above and memory below against each size, on logarithmic axes."""
    from tether.core import drawing

    made, axes = drawing.new_figure(2.4 * len(growths), 4.4, len(growths), 2, sharex="col", sharey="row")
    for column, growth in enumerate(growths):
        sizes = [each.size for each in growth.points]
        rows = ([each.seconds for each in growth.points], [each.memory for each in growth.points])
        for axis, values, slope in zip(axes[:, column], rows, growth.exponents, strict=True):
            axis.loglog(sizes, np.maximum(values, 1e-3), "o-", color=drawing.BLUE, lw=1.2, markersize=3)
            axis.set_title(f"exponent {slope:.2f}")
        axes[1][column].set_xlabel(growth.what)
    axes[0][0].set_ylabel("seconds of a processor")
    axes[1][0].set_ylabel("memory (MB)")
    return made
