"""Minari data sets: rows for `tether.estimate`, and episodes to train on.

A data set is named `minari:ID`, as in `minari:carbon/guarded-v0`, wherever a file is; it must be on this machine
(`MINARI_DATASETS_PATH`). What an entry of the observation is called is known of data sets that `tether.gym.MinariLog`
has written; of others it is `observation_0`, `observation_1` and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.core.extras import missing
from tether.data.episodes import Episodes

PREFIX = "minari:"
NAMES = "tether_observation_names"
"""Under which the metadata of a data set has the names of the observation's entries."""
NEXT = "next_"
"""Before the name of an entry of the observation: what it is after the round."""

Floats = NDArray[np.float64]


def is_minari(place: Any) -> bool:
    """Whether a place names a Minari data set."""
    return str(place).startswith(PREFIX)


def opened(place: Any) -> Any:
    """The data set that a place names."""
    try:
        import minari
    except ModuleNotFoundError as error:
        raise missing("a Minari data set", error) from None
    name = str(place).removeprefix(PREFIX)
    try:
        return minari.load_dataset(name)
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(
            f"no Minari data set {name!r} on this machine ({error}); `minari download {name}`, or `minari list local`"
        ) from None


def header(dataset: Any) -> list[str]:
    """The columns of its rows, one a round."""
    names, actions = observation_names(dataset), action_names(dataset)
    prior = [f"prior{name.removeprefix('action')}" for name in actions]
    known = next(iter(dataset.iterate_episodes([dataset.episode_indices[0]]))).infos
    return [
        "episode",
        "round",
        *names,
        *actions,
        *(prior if "prior_action" in known else []),
        *(name for name in known if name != "prior_action" and np.ndim(known[name]) == 1),
        *(f"{NEXT}{name}" for name in names),
    ]


def roles(dataset: Any, context: Sequence[str] = (), state: Sequence[str] = ()) -> dict[str, Any]:
    """Which column holds what: all of the observation is state that is not said to be `context`."""
    chosen = tuple(state) or tuple(name for name in observation_names(dataset) if name not in context)
    prior = tuple(name for name in header(dataset) if name == "prior" or name.startswith("prior_"))
    return {
        "state": chosen,
        "context": tuple(context),
        "action": tuple(action_names(dataset)),
        "prior": prior,
        "next_state": tuple(f"{NEXT}{name}" for name in chosen),
    }


def rows(dataset: Any, columns: Sequence[str]) -> Iterator[tuple[Any, Floats]]:
    """Episode by episode: its number for each round [T], and the columns after the first [T, n]."""
    names, actions = observation_names(dataset), action_names(dataset)
    for episode in dataset.iterate_episodes():
        count = len(episode.rewards)
        seen = _vectors(episode.observations, count + 1)
        values = {"round": np.arange(1.0, count + 1.0)}
        values |= dict(zip(names, seen[:-1].T, strict=True))
        values |= dict(zip((f"{NEXT}{name}" for name in names), seen[1:].T, strict=True))
        values |= dict(zip(actions, _vectors(episode.actions, count).T, strict=True))
        infos = {name: np.asarray(each) for name, each in episode.infos.items() if np.ndim(each) >= 1}
        if "prior_action" in infos:
            prior = _vectors(infos.pop("prior_action"), count)
            values |= dict(
                zip((f"prior{name.removeprefix('action')}" for name in actions), prior.T, strict=True)
            )
        # A collector of Minari's own keeps the info of the reset, too.
        values |= {name: each[-count:] for name, each in infos.items() if each.ndim == 1}
        table = np.stack([np.asarray(values[name], dtype=np.float64) for name in columns[1:]], axis=1)
        bad = np.argwhere(~np.isfinite(table))
        if bad.size:
            row, column = (int(each) for each in bad[0])
            raise ValueError(
                f"{columns[1 + column]!r} must be finite; in round {row + 1} of episode {episode.id} it is "
                f"{table[row, column]}"
            )
        yield np.full(count, episode.id), table


def load_minari(dataset: str, series: Sequence[str]) -> Episodes:
    """What nature drew in the episodes of a data set that `tether.gym.MinariLog` has written.

    Args:
        dataset: `minari:ID`.
        series: Names of the system's series (`Env.series`): what is seen is an entry of the observation, what is hidden
            was revealed after each round.
    """
    stored = opened(dataset)
    names = observation_names(stored)
    drawn: dict[str, list[Floats]] = {name: [] for name in series}
    for episode in stored.iterate_episodes():
        count = len(episode.rewards)
        seen, revealed = _vectors(episode.observations, count + 1), episode.infos.get("revealed", {})
        for name in series:
            if name in names:
                drawn[name].append(seen[:-1, names.index(name)])
            elif name in revealed:
                drawn[name].append(np.asarray(revealed[name], dtype=np.float64)[-count:])
            else:
                raise ValueError(
                    f"{dataset} does not say what {name!r} was; it has {', '.join([*names, *revealed])}. "
                    "Write it with tether.gym.MinariLog around an environment of tether"
                )
    lengths = sorted({len(each) for each in next(iter(drawn.values()))})
    if len(lengths) != 1:
        raise ValueError(
            f"{dataset} has episodes of {lengths[0]} to {lengths[-1]} rounds, expected one length"
        )
    return Episodes({name: np.stack(each) for name, each in drawn.items()})


def observation_names(dataset: Any) -> list[str]:
    """What the entries of the observation are called."""
    size = int(np.prod(np.shape(dataset.observation_space.sample())))
    known = dataset.storage.metadata.get(NAMES)
    return list(known) if known and len(known) == size else [f"observation_{i}" for i in range(size)]


def action_names(dataset: Any) -> list[str]:
    """What the entries of the action are called."""
    size = int(np.prod(dataset.action_space.shape))
    return ["action"] if size == 1 else [f"action_{i}" for i in range(size)]


def _vectors(values: Any, count: int) -> Floats:
    """[count, n]; a Minari data set with nested spaces is refused."""
    if isinstance(values, dict | tuple):
        raise ValueError("observations and actions must be vectors, this Minari data set has nested ones")
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(len(array), -1)[-count:]
