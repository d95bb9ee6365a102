"""Metrics of a training for TensorBoard (extra `tensorboard`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tether.core.extras import missing
from tether.learn.train import History


class TensorBoard:
    """Writes what each pass or block gave, the mean over the seeds of every setting, as event files.

    Its `write` is a `report` of `tether.train`.

    Args:
        folder: Where to write; look at it with `tensorboard --logdir FOLDER`.
        name: Of what is trained; every tag begins with it.
        settings: (lam, b) of each setting.
    """

    def __init__(self, folder: str | Path, name: str, settings: list[tuple[float, float]]) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ModuleNotFoundError as error:
            raise missing("writing for TensorBoard", error) from None
        self._writer = SummaryWriter(str(folder))
        self._name = name
        self._settings = settings

    def write(self, done: int, history: History) -> None:
        """Write the newest entry of the history as step `done`."""
        for i, (lam, b) in enumerate(self._settings):
            for field, values in history._asdict().items():
                tag = f"{self._name}/{field}/lam{lam:g}-b{b:g}"
                self._writer.add_scalar(tag, float(np.mean(values[-1, i])), done)
        self._writer.flush()

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()
