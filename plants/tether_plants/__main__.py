"""The command line: `python -m tether_plants run building`, `python -m tether_plants page out/plants`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tether.core.program_cache import keep_programs
from tether_plants.plant import PLANTS, find


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m tether_plants", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="study plants, and write results.json and a figure for each")
    run.add_argument("plants", nargs="+", choices=(*PLANTS, "all"))
    run.add_argument("--episodes", type=int, default=200, help="test episodes a seed (200)")
    run.add_argument("--seeds", type=int, default=5, help="seeds 0 to n - 1 (5)")
    run.add_argument("--learners", nargs="*", help="which of the plant's learners; all by default")
    run.add_argument("--certificates", nargs="*", help="which of the plant's certificates; all by default")
    run.add_argument(
        "--out", type=Path, default=Path("out/plants"), help="a folder for each plant is made here"
    )
    page = commands.add_parser("page", help="the gallery of all plants in a folder, one HTML page")
    page.add_argument("out", type=Path, nargs="?", default=Path("out/plants"))
    page.add_argument(
        "--docs", type=Path, help="a document to write tables and figures to, such as docs/plants.md"
    )
    given = parser.parse_args(arguments)
    keep_programs()
    try:
        return _run(given) if given.command == "run" else _page(given)
    except ValueError as error:
        print(f"tether_plants: error: {error}", file=sys.stderr)
        return 2


def _run(given: argparse.Namespace) -> int:
    from tether_plants.figures import write_figure
    from tether_plants.study import study

    for number, name in ((given.episodes, "--episodes"), (given.seeds, "--seeds")):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    for name in PLANTS if "all" in given.plants else given.plants:
        plant = find(name)
        for kind, chosen, there in (
            ("learner", given.learners, plant.learners),
            ("certificate", given.certificates, plant.certificates),
        ):
            for each in chosen or ():
                if each not in there:
                    raise ValueError(f"{name} has no {kind} {each!r}; it has {', '.join(there)}")
        folder = given.out / name
        results = study(
            plant,
            seeds=given.seeds,
            episodes=given.episodes,
            out=folder,
            learners=given.learners,
            certificates=given.certificates,
            report=partial(print, flush=True),
        )
        print(f"Figure: {write_figure(results, folder)}")
    return 0


def _page(given: argparse.Namespace) -> int:
    from tether_plants.page import write_docs, write_page

    print(f"Gallery: {write_page(given.out)}")
    if given.docs is not None:
        write_docs(given.out, given.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
