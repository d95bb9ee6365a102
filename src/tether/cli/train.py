"""The command `tether train`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import numpy as np
import typer

from tether.cli import shell
from tether.core import output, validate
from tether.core.files import complete_file
from tether.engines.engine import run
from tether.engines.pieces import Piece, Report, Store

if TYPE_CHECKING:
    from tether.certificates import Certificate
    from tether.learn.plant import Plant
    from tether.learn.train import History, Mode, Recipe
    from tether.learn.trial import Result


@dataclass(frozen=True)
class Options:
    """What `tether train` can be asked for."""

    system: shell.SystemName
    methods: Annotated[
        str, typer.Option(help="Any of prior, random+acd, rl, rl+acd, crl, acrl; comma-separated.")
    ] = "prior,rl+acd,acrl"
    mode: Annotated[
        str,
        typer.Option(
            help="offline: the training episodes' own noise is the model. online: explore episode by episode, through "
            "the guard where there is one, and fit a model to what was seen."
        ),
    ] = "offline"
    lams: shell.Lams = "0,2,10"
    bs: shell.Bs = "2"
    certificate: Annotated[
        str,
        typer.Option(
            help="What the guard knows: lipschitz (global constants); structured (how this system works: the same "
            "promise from a much larger safe set); identified (the same, and what every reward tells); shadowing (the "
            "same, and what every round reveals); or compiled (all that its model says)."
        ),
    ] = "lipschitz"
    rule: Annotated[
        str, typer.Option(help="Rule of the lipschitz certificate: paper, released or tight.")
    ] = "tight"
    inputs: Annotated[
        str,
        typer.Option(
            help="What learners see beside the system's observation: any of history (of 3 rounds), clock, forecast (to "
            "the end); history:5 and forecast:8 are of so many rounds."
        ),
    ] = ""
    head: Annotated[
        str,
        typer.Option(
            help="acrl: proposal (the guard moves it into the safe set) or inside (acts inside it)."
        ),
    ] = "proposal"
    copies: Annotated[
        int | None,
        typer.Option(
            help="Train on so many times the episodes, the further ones at other levels; 1 by default, 4 with the "
            "recipe closer.",
            min=1,
        ),
    ] = None
    without: Annotated[
        str,
        typer.Option(
            help="shift: train on the test episodes themselves, to see what the difference between the months takes."
        ),
    ] = ""
    width: Annotated[
        int | None, typer.Option(help="Neurons of a hidden layer; those of the system by default.", min=1)
    ] = None
    rate: Annotated[
        float | None,
        typer.Option(help="Learning rate of Adam at the start; that of the recipe by default.", min=0.0),
    ] = None
    seeds: Annotated[int, typer.Option(help="Number of seeds, trained together.", min=1)] = 5
    seed: shell.Seed = 0
    recipe: Annotated[
        str,
        typer.Option(
            help="tether: Adam at 3e-3, falling to 0. closer: closer to the limit for more work, at 8e-3 after a rise, "
            "64 neurons, on four times the episodes. paper: the paper's constant rate, on as many episodes as are "
            "explored in the paper, made by augmentation."
        ),
    ] = "tether"
    steps: Annotated[
        int | None,
        typer.Option(help="Online: gradient steps of an update, every 50 episodes; 50 by default.", min=1),
    ] = None
    passes: Annotated[
        int, typer.Option(help="Offline: times to go through the training episodes.", min=1)
    ] = 30
    explore: Annotated[
        int | None,
        typer.Option(help="Online: episodes to play; as many as the system says by default.", min=1),
    ] = None
    optimism: Annotated[
        float,
        typer.Option(
            help="Online: factor on the confidence set of the fitted model; 0 believes the estimate.", min=0.0
        ),
    ] = 1.0
    episodes: Annotated[int, typer.Option(help="Synthetic training episodes.", min=1)] = 2136
    data: shell.Data = None
    paper: Annotated[
        Path | None,
        typer.Option(help="Folder with the authors' published.json, to show their rewards beside."),
    ] = None
    tensorboard: Annotated[
        bool,
        typer.Option(help="Also write metrics for TensorBoard, to OUT/tensorboard (extra `tensorboard`)."),
    ] = False
    out: Annotated[Path, shell.out_option("results.json and the policies")] = Path("out/train")
    engine: shell.EngineName = "local"
    address: shell.Address = None
    workers: shell.Workers = None


def train(options: Options) -> None:
    """Train learners, all settings and seeds in one compiled program, and audit them.

    Writes `results.json`, each policy as `METHOD-lamL-bB-seedS.npz` (for `tether.load_policy`), online also what every
    explored episode gave (`METHOD.exploration.npz`), and a checkpoint of each method: the same command goes on from
    where it was stopped, Ctrl-C included.

    For instance `tether train carbon --methods rl,crl,rl+acd,acrl --lams 0,2,4,6,8,10 --bs 2,6 --passes 100`, or
    `tether train inference --mode online --methods rl,acrl --lams 5,7 --bs 6`, or, on episodes of your own,
    `tether train carbon --data carbon.npz`.
    """
    start = time.perf_counter()
    with shell.engine(options) as engine:
        methods, pieces = engine.plan(_plan, options)
        store = shell.unfinished(output.prepare_folder(options.out), options)
        with shell.watching(options.system, len(pieces), lines=options.engine != "local") as watch:
            run(engine, pieces, store, watch)
        engine.aside(_finish, options, store, methods)
    shell.forget(store)
    minutes, seconds = divmod(round(time.perf_counter() - start), 60)
    memory = max([output.peak_memory(), *(note.memory for note in engine.notes.values())])
    shell.console.print(
        f"Policies and results: {options.out} ({minutes} min {seconds} s, {memory:.0f} MB at most)",
        soft_wrap=True,
    )


def _plan(options: Options) -> tuple[list[str], list[Piece]]:
    """The methods, and a piece for each: its whole grid is one compiled program."""
    from tether.learn.methods import method_of

    job = _job(options)
    # `rl` comes first: the regret of the others is against it, and others may play what it learned.
    methods = sorted(job.methods, key=lambda method: method != "rl")
    if options.paper is not None:
        _published_rewards(options.paper)  # before any work
    pieces = []
    for method in methods:
        learned = method_of(method).learned_by(job.mode).name
        after = (learned,) if learned != method and learned in methods else ()
        pieces.append(Piece(method, partial(_train, options, method), after))
    return methods, pieces


def _finish(options: Options, store: Store, methods: list[str]) -> None:
    """Show and write what was trained."""
    from tether.learn.trial import explorations
    from tether.paper import tables

    job = _job(options)
    known = _published_rewards(options.paper) if options.paper is not None else {}
    results: list[Result] = [store.read(method) for method in methods]
    for result in results:
        _write_policies(options.out, result)
    name = job.plant.system.name
    shell.console.print(tables.results_table(name, results, known))
    explored = explorations(job.plant, results)
    if explored:
        shell.console.print(tables.exploration_table(name, explored))
    names = ("mode", "certificate", "rule", "head", "optimism", "recipe")
    content = {
        "system": name,
        **{each: getattr(options, each) for each in names},
        "rate": job.recipe.learning_rate,
        "warmup": job.recipe.warmup,
        "width": job.recipe.width,
        "copies": job.copies,
        "passes": options.passes,
        "inputs": shell.listed(options.inputs),
        "without": shell.listed(options.without),
        "scores": {
            result.training.method.name: [asdict(score) for score in result.scores] for result in results
        },
        "violations_in_training": {
            result.training.method.name: result.training.history.violations.mean(axis=(0, 2)).tolist()
            for result in results
            if len(result.training.history.violations)
        },
        "exploration": [each._asdict() for each in explored],
    }
    shell.write_results(options.out, content)


@dataclass(frozen=True)
class _Job:
    """What is trained, after all options were checked."""

    options: Options
    plant: Plant
    guide: Certificate
    recipe: Recipe
    copies: int
    methods: list[str]
    lams: list[float]
    bs: list[float]

    @classmethod
    def of(cls, options: Options) -> _Job:
        from tether.learn.methods import METHODS
        from tether.learn.plant import augmented, load_plant
        from tether.learn.train import Mode
        from tether.learn.trial import COPIES, RecipeName, recipe_of
        from tether.systems import registry
        from tether.systems.certified import certificate_of

        validate.choice("--mode", options.mode, get_args(Mode))
        methods = shell.listed(options.methods)
        for method in methods:
            validate.choice("--methods", method, tuple(each.name for each in METHODS))
        lams, bs = shell.numbers("--lams", options.lams), shell.numbers("--bs", options.bs)
        for each in shell.listed(options.without):
            validate.choice("--without", each, ("shift",))
        chosen: Any = options  # checked by the functions that take its words
        validate.choice("--recipe", options.recipe, get_args(RecipeName))
        copies = options.copies or COPIES[chosen.recipe]
        plant = load_plant(
            registry.find(options.system),
            options.data,
            options.episodes,
            options.seed,
            shell.listed(options.inputs),
            copies,
            shell.listed(options.without),
        )
        contract = plant.env.contract(lams[0], bs[0], plant.train.horizon)
        guide = certificate_of(chosen.certificate, plant.env, contract, chosen.rule)
        recipe = recipe_of(
            chosen.recipe,
            plant.system.defaults,
            passes=options.passes,
            episodes=options.explore,
            steps=options.steps,
            width=options.width,
            learning_rate=options.rate,
            head=options.head,
            optimism=options.optimism,
        )
        if options.recipe == "paper":
            plant = augmented(plant, recipe.episodes, options.seed)
        return cls(options, plant, guide, recipe, copies, methods, lams, bs)

    @property
    def seeds(self) -> list[int]:
        return shell.seeds_from(self.options.seed, self.options.seeds)

    @property
    def mode(self) -> Mode:
        return cast("Mode", self.options.mode)


@cache
def _job(options: Options) -> _Job:
    """Once in a process: a worker trains several methods."""
    return _Job.of(options)


def _train(options: Options, method: str, report: Report, learned: Result | None = None) -> Result:
    """Compute a piece: train a method, or play what another one has `learned`, for the whole grid."""
    from tether.learn.methods import method_of
    from tether.learn.trial import run_method

    job = _job(options)
    name = f"{method_of(method).learned_by(job.mode)}.{job.mode}.checkpoint.npz"
    return run_method(
        method, job.plant, job.guide, job.lams, job.bs, job.seeds, job.recipe, options.out / name,
        _reporter(job, method, report), job.mode, None if learned is None else learned.training,
    )  # fmt: skip


def _reporter(job: _Job, method: str, report: Report) -> Callable[[int, History], None]:
    """Tells reward, margin and episodes a second after each pass, and writes them for TensorBoard if asked to."""
    from tether.learn.tensorboard import TensorBoard

    offline = job.mode == "offline"
    steps = job.recipe.passes if offline else -(-job.recipe.episodes // job.recipe.batch)
    settings = [(lam, b) for b in job.bs for lam in job.lams]
    episodes = (len(job.plant.train) if offline else job.recipe.batch) * len(settings) * len(job.seeds)
    board = None
    if job.options.tensorboard:
        board = TensorBoard(job.options.out / "tensorboard" / method, method, settings)
    report(0, steps, "compiling")
    last = time.perf_counter()

    def told(done: int, history: History) -> None:
        nonlocal last
        rate, last = episodes / (time.perf_counter() - last), time.perf_counter()
        reward, margin = float(history.rewards[-1].mean()), float(history.margins[-1].min())
        report(done, steps, f"reward {reward:.1f}, margin {margin:.2g}, {rate:,.0f} episodes/s")
        if board is not None:
            board.write(done, history)
            if done == steps:
                board.close()

    return told


def _write_policies(folder: Path, result: Result) -> None:
    """Each policy as a file of its own, and what was explored."""
    training = result.training
    if training.exploration is not None:
        explored: dict[str, Any] = training.exploration._asdict()
        with complete_file(folder / f"{training.method}.exploration.npz") as draft, draft.open("wb") as file:
            np.savez_compressed(file, settings=training.settings, seeds=training.seeds, **explored)
    if training.method.name in ("prior", "rl+acd"):
        return
    for lam, b in training.settings:
        for seed in training.seeds:
            name = f"{training.method}-lam{lam:g}-b{b:g}-seed{seed}.npz"
            training.policy(lam, b, seed).save(folder / name)


def _published_rewards(paper: Path) -> dict[tuple[str, float, float], float]:
    """The authors' mean rewards by (method, lam, b)."""
    from tether.paper.studies.published import read_published

    content = read_published(paper)
    return {
        (method, float(lam), float(content["b"])): content[f"{key}_mean_reward"][i]
        for method, key in (("acrl", "acrl"), ("rl+acd", "rl_acd"))
        for i, lam in enumerate(content["lambda"])
    }
