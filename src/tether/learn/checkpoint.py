"""The file from which a training goes on where it was stopped, to the last bit."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tether.core.files import complete_file
from tether.data.episodes import Episodes
from tether.learn.learner import Recipe, State


def identity_of(
    method: str, mode: str, settings: Any, seeds: Any, recipe: Recipe, certificate: Any, data: list[Episodes]
) -> str:
    """What must be the same for a checkpoint to fit."""
    sums = [
        {"episodes": len(each)} | {name: math.fsum(np.ravel(each[name])) for name in each.names}
        for each in data
    ]
    return json.dumps([method, mode, settings, seeds, asdict(recipe), certificate.to_dict(), sums])


def save(file: Path, state: State, records: Sequence[Any], identity: str) -> None:
    """Write the state and the records of all passes, completely or not at all."""
    stored: dict[str, Any] = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
    for i, record in enumerate(records):
        stored |= {f"record_{i}_{name}": values for name, values in record._asdict().items()}
    with complete_file(file) as draft, draft.open("wb") as handle:
        np.savez(handle, identity=np.array(identity), records=np.array(len(records)), **stored)


def load(file: Path, state: State, identity: str, kind: Any) -> tuple[State, list[Any]]:
    """The state and the records that `save` wrote.

    Args:
        file: The checkpoint.
        state: Of the same structure as the one that was saved.
        identity: Of the training that goes on (`identity_of`); a checkpoint of another one is refused.
        kind: The class of a record.
    """
    leaves, structure = jax.tree.flatten(state)
    try:
        with np.load(file) as stored:
            if str(stored["identity"]) != identity:
                raise _AnotherTraining
            restored = [jnp.asarray(stored[f"leaf_{i}"]) for i in range(len(leaves))]
            records = [
                kind(*(stored[f"record_{i}_{name}"] for name in kind._fields))
                for i in range(int(stored["records"]))
            ]
    except _AnotherTraining:
        raise ValueError(
            f"{file} is the checkpoint of another training (method, mode, grid, seeds, recipe or data differ); "
            "name another file, or remove it"
        ) from None
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is not a checkpoint of a training: {error!r}") from error
    return jax.tree.unflatten(structure, restored), records


class _AnotherTraining(Exception):
    """The checkpoint is sound but not of this training."""
