"""The command `tether train`."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tether.core import validate
from tether.core.files import complete_file

if TYPE_CHECKING:
    from tether.learn.train import History
    from tether.paper.learners import Result, System

console = Console()
Data = Annotated[
    Path | None,
    typer.Option(
        help="Episode file (.npz, as `tether data build` makes it) or folder with the authors' carbon data (.mat); "
        "synthetic episodes without it."
    ),
]
"""Where episodes come from, in every command that takes them."""


def command(
    system: Annotated[str, typer.Argument(help="carbon, inference or cooling.")],
    methods: Annotated[
        str, typer.Option(help="Any of prior, random+acd, rl, rl+acd, crl, acrl; comma-separated.")
    ] = "prior,rl+acd,acrl",
    mode: Annotated[
        str,
        typer.Option(
            help="offline: the training episodes' own noise is the model. online: explore episode by episode, through "
            "the guard where there is one, and fit a model to what was seen."
        ),
    ] = "offline",
    lams: Annotated[str, typer.Option(help="Relative slacks, comma-separated.")] = "0,2,10",
    bs: Annotated[str, typer.Option(help="Slacks a round, comma-separated.")] = "2",
    certificate: Annotated[
        str,
        typer.Option(
            help="What the guard knows: lipschitz (global constants) or structured (how this system works: the same "
            "promise from a much larger safe set)."
        ),
    ] = "lipschitz",
    rule: Annotated[
        str, typer.Option(help="Rule of the lipschitz certificate: paper, released or tight.")
    ] = "tight",
    inputs: Annotated[
        str, typer.Option(help="What learners see beside the paper's observation: any of clock, forecast.")
    ] = "",
    head: Annotated[
        str,
        typer.Option(
            help="acrl: proposal (the guard moves it into the safe set) or inside (acts inside it)."
        ),
    ] = "proposal",
    copies: Annotated[
        int,
        typer.Option(help="Train on so many times the episodes, the further ones at other levels.", min=1),
    ] = 1,
    without: Annotated[
        str,
        typer.Option(
            help="shift: train on the test episodes themselves, to see what the difference between the months takes."
        ),
    ] = "",
    width: Annotated[
        int | None, typer.Option(help="Neurons of a hidden layer; the paper's by default.", min=1)
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, trained together.", min=1)] = 5,
    seed: Annotated[int, typer.Option("--seed", help="First random seed.", min=0)] = 0,
    recipe: Annotated[
        str,
        typer.Option(
            help="tether: Adam at 3e-3, falling to 0. paper: the paper's constant rate (1e-3, inference 1e-4), on as "
            "many episodes as the paper has, made by augmentation."
        ),
    ] = "tether",
    steps: Annotated[
        int | None,
        typer.Option(help="Online: gradient steps of an update, every 50 episodes; 50 by default.", min=1),
    ] = None,
    passes: Annotated[
        int, typer.Option(help="Offline: times to go through the training episodes.", min=1)
    ] = 30,
    explore: Annotated[
        int | None, typer.Option(help="Online: episodes to play; the paper's number by default.", min=1)
    ] = None,
    optimism: Annotated[
        float,
        typer.Option(
            help="Online: factor on the confidence set of the fitted model; 0 believes the estimate.", min=0.0
        ),
    ] = 1.0,
    episodes: Annotated[int, typer.Option(help="Synthetic training episodes.", min=1)] = 2136,
    data: Data = None,
    paper: Annotated[
        Path | None,
        typer.Option(help="Folder with the authors' published.json, to show their rewards beside."),
    ] = None,
    tensorboard: Annotated[
        bool,
        typer.Option(help="Also write metrics for TensorBoard, to OUT/tensorboard (extra `tensorboard`)."),
    ] = False,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for results.json and the policies; made if it is not there.")
    ] = Path("out/train"),
) -> None:
    """Train learners, all settings and seeds in one compiled program, and audit them.

    Writes `results.json`, each policy as `METHOD-lamL-bB-seedS.npz` (for `tether.load_policy`), online also what every
    explored episode gave (`METHOD.exploration.npz`), and a checkpoint of each method: the same command goes on from
    where it was stopped, Ctrl-C included.

    For instance `tether train carbon --methods rl,crl,rl+acd,acrl --lams 0,2,4,6,8,10 --bs 2,6 --passes 100`, or
    `tether train inference --mode online --methods rl,acrl --lams 5,7 --bs 6`, or, on episodes of your own,
    `tether train carbon --data carbon.npz`.
    """
    from tether.certificates import Rule
    from tether.core import output
    from tether.learn.learner import Head
    from tether.learn.methods import METHODS, method_of
    from tether.learn.train import Mode
    from tether.paper import learners

    start = time.perf_counter()
    validate.choice("--mode", mode, get_args(Mode))
    chosen = listed(methods)
    for method in chosen:
        validate.choice("--methods", method, tuple(each.name for each in METHODS))
    grid = {name: numbers(name, text) for name, text in (("--lams", lams), ("--bs", bs))}
    shown, removed = listed(inputs), listed(without)
    for each in removed:
        validate.choice("--without", each, ("shift",))
    plant = learners.load_system(system, data, episodes, seed, shown, copies, removed)
    guide = learners.certificate_of(
        cast(learners.Kind, certificate),
        plant.env,
        plant.env.contract(grid["--lams"][0], grid["--bs"][0], plant.train.horizon),
        cast(Rule, rule),
    )
    cooked = learners.recipe_of(
        cast(learners.RecipeName, recipe),
        system,
        passes=passes,
        episodes=explore,
        steps=steps,
        width=width,
        head=cast(Head, head),
        optimism=optimism,
    )
    if recipe == "paper":
        plant = learners.augmented(plant, cooked.episodes, seed)
    known = _published_rewards(paper) if paper is not None else {}
    folder = output.prepare_folder(out)
    settings = [(lam, b) for b in grid["--bs"] for lam in grid["--lams"]]
    seed_list = list(range(seed, seed + seeds))
    # `rl` comes first, so that the regret of the others can be shown.
    results: list[Result] = []
    with _Display(plant, settings, seed_list, folder / "tensorboard" if tensorboard else None) as display:
        for method in sorted(chosen, key=lambda method: method != "rl"):
            learned = method_of(method).learned_by(cast(Mode, mode))
            checkpoint = folder / f"{learned.name}.{mode}.checkpoint.npz"
            rounds = cooked.passes if mode == "offline" else -(-cooked.episodes // cooked.batch)
            played = len(plant.train) if mode == "offline" else cooked.batch
            result = learners.run_method(
                method, plant, guide, grid["--lams"], grid["--bs"], seed_list, cooked, checkpoint,
                display.task(method, rounds, played), cast(Mode, mode),
            )  # fmt: skip
            results.append(result)
            display.finished(result)
            _write_policies(folder, result)
    console.print(learners.results_table(system, results, known))
    explored = learners.explorations(plant, results)
    if explored:
        console.print(learners.exploration_table(system, explored))
    content = {
        "system": system,
        "mode": mode,
        "certificate": certificate,
        "rule": rule,
        "inputs": shown,
        "head": head,
        "optimism": optimism,
        "recipe": recipe,
        "without": removed,
        "scores": {
            result.training.method.name: [asdict(score) for score in result.scores] for result in results
        },
        "violations_in_training": {
            result.training.method.name: result.training.history.violations.mean(axis=(0, 2)).tolist()
            for result in results
            if len(result.training.history.violations)
        },
        "exploration": [each._asdict() for each in explored],
        "provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]])),
    }
    output.write_json(folder / "results.json", content)
    minutes, seconds = divmod(round(time.perf_counter() - start), 60)
    console.print(
        f"Policies and results: {folder} ({minutes} min {seconds} s, {output.peak_memory():.0f} MB at most)"
    )


class _Display:
    """Progress of one method after the other: reward, regret, margin, violations, episodes a second, time left."""

    def __init__(
        self, plant: System, settings: list[tuple[float, float]], seeds: list[int], tensorboard: Path | None
    ) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._plant, self._settings, self._seeds, self._tensorboard = plant, settings, seeds, tensorboard
        self._best: float | None = None
        """Mean reward of `rl` on the training episodes, once it is known."""

    def __enter__(self) -> _Display:
        self._progress.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._progress.stop()
        if kind is KeyboardInterrupt:
            self._progress.console.print("Stopped. The same command goes on from the last checkpoint.")

    def task(self, method: str, steps: int, episodes: int) -> Callable[[int, History], None]:
        """A `report` for a method that takes so many steps, each of so many episodes a setting and seed."""
        from tether.learn.tensorboard import TensorBoard

        name = self._progress.add_task(f"{method}: compiling", total=steps, rate="")
        board = None
        if self._tensorboard is not None:
            board = TensorBoard(self._tensorboard / method, method, self._settings)
        each = episodes * len(self._settings) * len(self._seeds)
        last = time.perf_counter()

        def report(done: int, history: History) -> None:
            nonlocal last
            rate, last = each / (time.perf_counter() - last), time.perf_counter()
            reward, margin = float(history.rewards[-1].mean()), float(history.margins[-1].min())
            regret = "" if self._best is None else f", regret {self._best - reward:.1f}"
            text = f"{method}: reward {reward:.1f}{regret}, margin {margin:.2g}"
            self._progress.update(name, completed=done, description=text, rate=f"{rate:,.0f} episodes/s")
            if board is not None:
                board.write(done, history)
                if done == steps:
                    board.close()

        return report

    def finished(self, result: Result) -> None:
        """Remember what `rl` earns."""
        from tether.simulate.rollout import rollout

        if result.training.method.name == "rl":
            setting = result.training.settings[0]
            policies = [result.training.policy(*setting, seed) for seed in self._seeds]
            runs = [
                rollout(self._plant.env, policy, self._plant.train, record="outcomes") for policy in policies
            ]
            self._best = float(np.mean([run.returns.mean() for run in runs]))


def _write_policies(folder: Path, result: Result) -> None:
    """Each policy as a file of its own, and what was explored."""
    training = result.training
    if training.exploration is not None:
        explored: dict[str, Any] = training.exploration._asdict()
        with (
            complete_file(folder / f"{training.method.name}.exploration.npz") as draft,
            draft.open("wb") as file,
        ):
            np.savez_compressed(file, settings=training.settings, seeds=training.seeds, **explored)
    if training.method.name in ("prior", "rl+acd"):
        return
    for lam, b in training.settings:
        for seed in training.seeds:
            name = f"{training.method.name}-lam{lam:g}-b{b:g}-seed{seed}.npz"
            training.policy(lam, b, seed).save(folder / name)


def listed(text: str) -> list[str]:
    """The words that an option lists, separated by commas."""
    return [each.strip() for each in text.split(",") if each.strip()]


def numbers(name: str, text: str) -> list[float]:
    """The numbers that the option `name` lists, separated by commas."""
    try:
        return [float(each) for each in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be numbers separated by commas, got {text!r}") from None


def _published_rewards(paper: Path) -> dict[tuple[str, float, float], float]:
    """The authors' mean rewards by (method, lam, b)."""
    from tether.paper.published import read_published

    content = read_published(paper)
    return {
        (method, float(lam), float(content["b"])): content[f"{key}_mean_reward"][i]
        for method, key in (("acrl", "acrl"), ("rl+acd", "rl_acd"))
        for i, lam in enumerate(content["lambda"])
    }
