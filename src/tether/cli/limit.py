"""The command `tether limit`."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.progress import Progress, TaskID
from rich.table import Table

from tether.cli import shell
from tether.core import output
from tether.engines.engine import run
from tether.engines.pieces import Piece, Store
from tether.systems import registry

if TYPE_CHECKING:
    from tether.assure.limit import Hindsight, Limit
    from tether.certificates import Rule
    from tether.core.contract import Contract
    from tether.core.run import Run
    from tether.data.episodes import Episodes
    from tether.learn.plant import Plant
    from tether.learn.policy import NetworkPolicy
    from tether.systems.program import Program

PLANNED = "mpc structured forecast"
"""What `--plan` is called in the table."""
PLANNED_AT_ONCE = 20
"""Episodes that are planned in one compiled call, between two reports of progress."""


@dataclass(frozen=True)
class Options:
    """What `tether limit` can be asked for."""

    system: shell.SystemName
    lams: shell.Lams = "0,2,10"
    bs: shell.Bs = "2"
    episodes: Annotated[
        int, typer.Option(help="Test episodes: synthetic ones, or every k-th of those in --data.", min=1)
    ] = 200
    data: shell.Data = None
    policies: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of `tether train`, may be given several times; policies are played through the certificate "
            "and with the inputs they were trained with."
        ),
    ] = None
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Also play `mpc`: in each round the best plan for the rest of the episode with a perfect forecast and "
            "mean disturbances, through the structured certificate.",
        ),
    ] = False
    upper: Annotated[
        bool,
        typer.Option(
            "--upper",
            help="Also what no policy can earn that does not foresee the disturbances, in each episode and, with "
            "prices on foresight, in expectation.",
        ),
    ] = False
    processes: Annotated[
        int | None, typer.Option(help="How many solve at a time; all processors by default.", min=1)
    ] = None
    without: Annotated[
        str, typer.Option(help="noise: play the system without its disturbances, to see what they take.")
    ] = ""
    out: Annotated[Path, shell.out_option("results.json and what was solved")] = Path("out/limit")
    seed: Annotated[int, shell.seed_option("Random seed of the synthetic episodes.")] = 0
    engine: shell.EngineName = "local"
    address: shell.Address = None
    workers: shell.Workers = None


@dataclass(frozen=True)
class Row:
    """One policy under one contract."""

    lam: float
    b: float
    policy: str
    """`prior`, `limit`, `attained`, or the name of a policy."""
    reward: float
    """Mean over the episodes; for a policy with several seeds also over them."""
    spread: float = 0.0
    """Standard deviation over the seeds."""
    share: float = 0.0
    """(V - V_prior) / (V_limit - V_prior), mean over the seeds."""
    share_spread: float = 0.0
    """Standard deviation over the seeds."""
    violations: float = 0.0
    """Share of the episodes that break the promise in any round."""


def limit(options: Options) -> None:
    """Show how far policies come on the way from the prior to the best that hindsight allows.

    For each contract (lam, b) and episode the largest reward of any action sequence that keeps the promise, all
    disturbances known, is found by a convex program (extra `limit`: cvxpy). A policy's *share* is (V - V_prior) /
    (V_limit - V_prior). `limit` is an upper bound, `attained` the reward of sequences that do keep the promise: the
    truth lies between them. A system that has no convex program gets a search by gradients; `limit` is then the best
    that it found, which is no upper bound, and the table says so. What was solved is kept in OUT/solved, so that the
    same command only adds what is new.

    `--plan` adds what planning ahead earns where the demand to come is known and its disturbances are not. `--upper`
    adds two upper bounds for every policy that keeps the promise and acts before the disturbances of its round are
    drawn, whatever forecasts it has: `unforeseen` holds in each episode, `unforeseen, priced` in expectation.

    For instance `tether limit carbon --lams 0,2,10 --bs 2,6 --data ../shared/data/carbon --policies out/train`.
    """
    folder = output.prepare_folder(options.out)
    with shell.engine(options, options.processes or os.cpu_count() or 1) as engine:
        _, pieces = engine.plan(_plan, options)
        with shell.watching("episodes", len(pieces), lines=options.engine != "local") as watch:
            run(engine, pieces, Store(folder / "solved", "npz"), watch)
        engine.aside(_finish, options)


def _plan(options: Options) -> tuple[None, list[Piece]]:
    """What is to be solved under all contracts, some episodes a piece."""
    study = _Study.of(options)
    works = [study.hindsight(*contract) for contract in study.grid]
    if options.upper:
        works += [study.unforeseen(*contract, priced) for contract in study.grid for priced in (False, True)]
    pieces = [piece for work in works for piece in work.pieces()]
    return None, list({piece.name: piece for piece in pieces}.values())


def _finish(options: Options) -> None:
    """Play the policies, and show and write their shares of the limit."""
    study = _Study.of(options)
    with shell.progress() as progress:
        rows = [row for lam, b in study.grid for row in study.rows(lam, b, progress)]
    table = _table(options.system, len(study.chosen), rows, study.plant.system.program is not None)
    shell.console.print(table)
    content = {
        "system": study.plant.system.name,
        "episodes": len(study.chosen),
        "proven": study.plant.system.program is not None,
        "rows": [asdict(row) for row in rows],
        "sections": [
            study.section(table, *next((each for each in study.grid if each[0] > 0.0), study.grid[0]))
        ],
    }
    shell.finish(study.folder, content)


@dataclass(frozen=True)
class _Study:
    """The episodes of one system, and what is played in them."""

    options: Options
    folder: Path
    grid: list[tuple[float, float]]
    """(lam, b) of every contract."""
    plant: Plant
    chosen: Episodes
    prior: Run
    trainings: list[_Trained]

    @classmethod
    def of(cls, options: Options) -> _Study:
        from tether.learn.plant import load_plant
        from tether.simulate.rollout import rollout

        grid = shell.contracts(options.lams, options.bs)
        removed = shell.listed(options.without)
        drawn = max(1, (3 * options.episodes + 1) // 2)
        plant = load_plant(
            registry.find(options.system), options.data, drawn, options.seed, without=removed, held_out=False
        )
        count = min(options.episodes, len(plant.test))
        chosen = plant.test[np.linspace(0, len(plant.test) - 1, count).round().astype(int)]
        prior = rollout(plant.env, plant.env.prior, chosen, record="outcomes")
        trainings = [_Trained.read(each, plant.system.name, removed) for each in options.policies or []]
        return cls(options, options.out, grid, plant, chosen, prior, trainings)

    def hindsight(self, lam: float, b: float) -> Hindsight:
        """The limit under one contract."""
        from tether.assure.nonlinear import NonlinearProgram

        return self._work(lam, b, self.plant.system.program or NonlinearProgram)

    def unforeseen(self, lam: float, b: float, priced: bool) -> Hindsight:
        """The bound for policies that do not foresee, under one contract."""
        return self._work(lam, b, self.plant.system.part("unforeseen", "--upper")(lam, b, priced=priced))

    def _work(self, lam: float, b: float, program: Callable[[Any, int], Program]) -> Hindsight:
        from tether.assure.limit import Hindsight

        contract = self.plant.env.contract(lam, b, self.chosen.horizon)
        cache = self.folder / "solved"
        return Hindsight.of(self.plant.env, self.chosen, contract, self.prior.costs, program, cache)

    def rows(self, lam: float, b: float, progress: Progress) -> Iterator[Row]:
        """Of one contract: the prior first, the limit last."""
        contract = self.plant.env.contract(lam, b, self.chosen.horizon)
        found = self.hindsight(lam, b).limit()
        yield Row(lam, b, "prior", float(self.prior.returns.mean()))
        for trained in self.trainings:
            for name, policies in trained.policies(lam, b).items():
                returns, rate = trained.play(self.plant, policies, self.chosen, contract, self.prior)
                yield self._row(found, lam, b, name, returns, rate)
        if self.options.plan:
            report = self._bar(progress, f"lam {lam:g}, b {b:g}: plan")
            returns, rate = _play_plans(self.plant, self.chosen, contract, self.prior, report)
            yield self._row(found, lam, b, PLANNED, returns[None], rate)
        if self.options.upper:
            for name, priced in (("unforeseen", False), ("unforeseen, priced", True)):
                yield self._bound(found, lam, b, name, self.unforeseen(lam, b, priced).limit())
        share = found.share(found.attained, self.prior.returns)
        yield Row(lam, b, "attained", float(found.attained.mean()), share=share)
        yield Row(lam, b, "limit", float(found.upper.mean()), share=1.0)

    def _bound(self, found: Limit, lam: float, b: float, name: str, bound: Limit) -> Row:
        """Of an upper bound; the standard error is that of its distance to the limit on the same draws."""
        error = float(np.std(bound.upper - found.upper)) / math.sqrt(len(bound.upper))
        scale = float(np.mean(found.upper) - np.mean(self.prior.returns))
        share = found.share(bound.upper, self.prior.returns)
        return Row(lam, b, name, float(bound.upper.mean()), error, share, error / scale)

    def _bar(self, progress: Progress, what: str) -> Callable[[int, int], None]:
        return partial(_advance, progress, progress.add_task(what, total=len(self.chosen)))

    def _row(self, found: Limit, lam: float, b: float, name: str, returns: np.ndarray, rate: float) -> Row:
        """Of a policy whose returns are [seeds, N]."""
        shares = [found.share(each, self.prior.returns) for each in returns]
        return Row(
            lam=lam,
            b=b,
            policy=name,
            reward=float(returns.mean()),
            spread=float(returns.mean(axis=1).std()),
            share=float(np.mean(shares)),
            share_spread=float(np.std(shares)),
            violations=rate,
        )

    def section(self, table: Table, lam: float, b: float) -> dict[str, Any]:
        """The table and the safe sets of one contract, for the report."""
        from tether.assure.safe_sets import safe_sets
        from tether.core.drawing import save
        from tether.paper.figures import safe_sets_figure
        from tether.paper.report import section_of
        from tether.systems.certified import certificate_of

        env = self.plant.env
        contract = env.contract(lam, b, self.chosen.horizon)
        pictures = []
        kinds = dict.fromkeys(("lipschitz", "structured", *(each.certificate for each in self.trainings)))
        for kind in kinds:
            with contextlib.suppress(
                NotImplementedError
            ):  # a system may have neither constants nor a structure
                guide = certificate_of(kind, env, contract)
                pictures.append(safe_sets(env, self.chosen[:1], guide))
        title = f"{self.options.system}, lam = {lam:g}, b = {b:g}: the first test episode"
        figure = safe_sets_figure(pictures, title)
        save(figure, self.folder / "safe-sets.png")
        save(figure, self.folder / "safe-sets.svg")
        return {
            **section_of(table),
            "image": (self.folder / "safe-sets.svg").read_text(encoding="utf-8"),
            "image_text": "What a greedy learner may do in each round of one episode (shaded) and what it does, "
            "with global Lipschitz constants and, if it has one, with the system's own structure. The promise is "
            "the same.",
        }


def _advance(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


@dataclass(frozen=True)
class _Trained:
    """A folder of `tether train`."""

    folder: Path
    certificate: str
    rule: Rule
    inputs: tuple[str, ...]
    without: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path, system: str, without: Sequence[str]) -> _Trained:
        """What its results.json says of how the policies were trained; the system must be the one of `without`."""
        file = folder / "results.json"
        if not file.is_file():
            raise FileNotFoundError(
                f"{file} not found; --policies must be a folder that `tether train` wrote"
            )
        results = json.loads(file.read_text())
        if results.get("system") != system or "inputs" not in results:
            raise ValueError(f"{file} is of {results.get('system')!r}, expected a training of {system}")
        if ("noise" in results["without"]) != ("noise" in without):
            trained = ",".join(results["without"]) or "nothing"
            raise ValueError(f"{file} was trained without {trained}; --without must say the same of noise")
        known = (tuple(results[name]) for name in ("inputs", "without"))
        return cls(folder, results["certificate"], results["rule"], *known)

    def policies(self, lam: float, b: float) -> dict[str, list[NetworkPolicy]]:
        """For each method one policy a seed, by what to call them."""
        from tether.learn.policy import load_policy

        known = [self.rule if self.certificate == "lipschitz" else self.certificate]
        found: dict[str, list[NetworkPolicy]] = {}
        for file in sorted(self.folder.glob(f"*-lam{lam:g}-b{b:g}-seed*.npz")):
            match = re.fullmatch(r"(.+)-lam.+-b.+-seed\d+", file.stem)
            if match:
                found.setdefault(
                    " ".join([match[1], *known, *self.inputs, *(f"-{each}" for each in self.without)]), []
                ).append(load_policy(file))
        return found

    def play(
        self,
        plant: Plant,
        policies: list[NetworkPolicy],
        test: Episodes,
        contract: Contract,
        prior: Run,
    ) -> tuple[np.ndarray, float]:
        """[seeds, N] returns through the guard, and the share of episodes that broke the promise."""
        from tether.core.audit import audit
        from tether.learn.plant import shown
        from tether.simulate.rollout import rollout
        from tether.systems.certified import certificate_of

        env, (episodes,) = shown(plant.env, self.inputs, test)
        guide = certificate_of(self.certificate, env, contract, self.rule)
        runs = [rollout(env, policy, episodes, guide, record="outcomes") for policy in policies]
        rates = [audit(run, prior, contract).violation_rate for run in runs]
        return np.stack([run.returns for run in runs]), float(np.mean(rates))


def _play_plans(
    plant: Plant,
    test: Episodes,
    contract: Contract,
    prior: Run,
    report: Callable[[int, int], None],
) -> tuple[np.ndarray, float]:
    """[N] returns of `tether.learn.mpc` through the guard, and the share of episodes that broke the promise."""
    from tether.certificates import Structured
    from tether.core.audit import audit
    from tether.core.run import Run
    from tether.learn.mpc import PlanningPolicy
    from tether.learn.plant import shown
    from tether.simulate.rollout import rollout

    env, (train, episodes) = shown(plant.env, ("forecast",), plant.train, test)
    guide = Structured(contract, env.structure)
    policy = PlanningPolicy(env, guide, train)
    rewards, costs = [], []
    for first in range(0, len(episodes), PLANNED_AT_ONCE):
        # The last ones are played several times where there are too few, so that nothing is compiled again.
        at_once = np.minimum(np.arange(first, first + PLANNED_AT_ONCE), len(episodes) - 1)
        run = rollout(env, policy, episodes[at_once], guide, record="outcomes")
        rewards.append(run.rewards)
        costs.append(run.costs)
        report(min(first + PLANNED_AT_ONCE, len(episodes)), len(episodes))
    count = len(episodes)
    whole = Run(rewards=np.concatenate(rewards)[:count], costs=np.concatenate(costs)[:count])
    return whole.returns, audit(whole, prior, contract).violation_rate


def _table(system: str, episodes: int, rows: list[Row], proven: bool) -> Table:
    table = Table(title=f"{system}: share of the hindsight limit, {episodes} episodes", box=SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0)
    table.caption = "share = (V - V_prior) / (V_limit - V_prior); ± standard deviation over seeds"
    if any(row.policy.startswith("unforeseen") for row in rows):
        table.caption += "; of what is unforeseen ± standard error of the distance to the limit"
    if not proven:
        table.caption += "; limit: the best that a search found, NOT a proven upper bound"
    table.add_column("policy", no_wrap=True)
    for name in ("lam", "b", "reward", "share", "viol."):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        spread = f" ± {row.spread:.2f}" if row.spread > 0.0 else ""
        table.add_row(
            row.policy,
            f"{row.lam:g}",
            f"{row.b:g}",
            f"{row.reward:.2f}{spread}",
            f"{row.share:.3f}" + (f" ± {row.share_spread:.3f}" if row.share_spread > 0.0 else ""),
            f"{row.violations:.0%}",
        )
    return table
