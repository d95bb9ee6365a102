"""The command `tether data calibration`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tether.cli import shell
from tether.core import output


@dataclass(frozen=True)
class Options:
    """What `tether data calibration` can be asked for."""

    data: Annotated[
        Path, typer.Option(help="Folder with the authors' carbon data (.mat), or episode file (.npz).")
    ]
    out: shell.Out = Path("out/calibration")
    seeds: shell.Seeds = 5
    seed: shell.Seed = 0


def calibration(options: Options) -> None:
    """Compare the synthetic carbon data with the authors' test windows, or with your own.

    Level, spread and autocorrelation of demand and renewables, and the prior's reward and costs, of the real test
    windows and of as many synthetic ones for each seed. Windows must slide by one hour. Writes `results.json` and
    `calibration.png`.
    """
    from tether.core import drawing
    from tether.paper.studies.calibration import calibrate, real_windows

    folder = output.prepare_folder(options.out)
    found = calibrate(real_windows(options.data), shell.seeds_from(options.seed, options.seeds))
    shell.console.print(found.table())
    drawing.save(found.figure, folder / "calibration.png")
    content = {"real": found.real, "synthetic": found.synthetic, "seeds": found.seeds}
    shell.finish(folder, content, ["calibration.png"])
