"""The command `tether frontier`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from tether.cli import shell
from tether.core import validate
from tether.systems import registry

if TYPE_CHECKING:
    from tether.assure.frontier import Contracted, Point
    from tether.certificates import Certificate
    from tether.core.run import Run
    from tether.engines.pieces import Piece
    from tether.learn.plant import Plant
    from tether.learn.train import History

Told = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Options:
    """What `tether frontier` can be asked for."""

    system: shell.SystemName
    lams: Annotated[
        str | None, typer.Option(help="Relative slacks, comma-separated; the system's own by default.")
    ] = None
    bs: Annotated[
        str | None,
        typer.Option(help="Slacks a round, cost units, comma-separated; the system's own by default."),
    ] = None
    certificate: Annotated[
        str,
        typer.Option(
            help="lipschitz or structured; structured where the system has a structure, by default."
        ),
    ] = ""
    method: Annotated[
        str, typer.Option(help="The learner: acrl, or any other that `tether train` knows.")
    ] = "acrl"
    episodes: Annotated[
        int,
        typer.Option(help="Episodes to train on: synthetic ones, or evenly chosen ones of --data.", min=1),
    ] = 480
    passes: Annotated[int, typer.Option(help="Times that they are gone through.", min=1)] = 20
    seeds: shell.Seeds = 2
    limits: Annotated[
        int, typer.Option(help="Test episodes whose hindsight limit is found, evenly chosen.", min=1)
    ] = 50
    worth: Annotated[
        float | None, typer.Option(help="What a unit of reward is worth, in money; shown beside if given.")
    ] = None
    currency: Annotated[str, typer.Option(help="Name of the money.")] = ""
    data: shell.Data = None
    processes: Annotated[
        int, typer.Option(help="How many find limits at a time; more are worth it for many --limits.", min=1)
    ] = 1
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that the folder holds.")] = (
        False
    )
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results.json and the figures; made if it is not there. [default: out/frontier/SYSTEM]"
        ),
    ] = None
    seed: shell.Seed = 0


def frontier(options: Options) -> None:
    """Show what each contract (lam, b) costs and what it brings, to choose one.

    The promise is J_h <= (1 + lam) J_h(prior) + h b in every round h: lam is how many times the trusted policy's cost
    may be paid on top of it, b what any round may cost more, whatever the trusted policy pays. For every (lam, b) of a
    grid a learner is trained and played on test episodes behind its guard, and the best that hindsight allows is
    found. The table says for each contract what it permits in the worst episode, what the learner spends of it (worst
    and mean), what it earns above the trusted policy, and how much hindsight could. A star marks the contracts that
    are not beaten: none of the grid permits less and earns more. Choose among those; docs/choose-lam-b.md says how.

    Writes `frontier.png`, `frontier.svg` and `results.json`. Finished pieces stay: a killed run goes on with
    `--resume`.

    For instance `tether frontier carbon --lams 0,1,2,4 --bs 1,2,4 --worth 0.8 --currency EUR`, or, for a system of your
    own, `tether frontier my_package:system --data episodes.npz`.
    """
    from tether.core.drawing import save
    from tether.engines import folders
    from tether.paper.frontier import Words, frontier_figure, frontier_table
    from tether.paper.report import section_of

    job = _Job.of(options)
    words = Words.of(job.plant.system, options.worth, options.currency)
    out = options.out or shell.default_folder("frontier", job.plant.system.name)
    with folders.claim(out) as folder:
        todo = job.pieces(folder)
        with (
            shell.progress() as progress,
            shell.Watch(progress, job.plant.system.name, len(todo)) as watch,
        ):
            done = folders.run_pieces(folder, job.identity, todo, resume=options.resume, watch=watch)
        prior, rows = job.assemble(done)
        proven = all(done[piece.name]["proven"] for piece in todo if piece.name.startswith("limit"))
        title = job.plant.system.title
        table = frontier_table(title, prior, rows, words, proven)
        figure = frontier_figure(title, prior, rows, words)
        for suffix in ("png", "svg"):
            save(figure, folder / f"frontier.{suffix}")
        shell.console.print(table)
        content = {
            "system": job.plant.system.name,
            "test_episodes": len(job.plant.test),
            "proven": proven,
            "words": asdict(words),
            "prior": asdict(prior),
            "contracts": [asdict(row) for row in rows],
            "sections": [
                {
                    **section_of(table),
                    "image": (folder / "frontier.svg").read_text(encoding="utf-8"),
                    "image_text": "Reward against the cost of the worst and the mean episode, contract by contract.",
                }
            ],
        }
        shell.finish(folder, content, ["frontier.png", "frontier.svg"])


@dataclass(frozen=True)
class _Job:
    """What is computed, after all options were checked."""

    options: Options
    plant: Plant
    certificate: Certificate
    lams: tuple[float, ...]
    bs: tuple[float, ...]

    @classmethod
    def of(cls, options: Options) -> _Job:
        from tether.learn.methods import method_of
        from tether.learn.plant import load_plant

        if options.worth is not None:
            validate.number("--worth", options.worth, above=0.0)
        method_of(options.method)
        system = registry.find(options.system)
        given = {"--lams": (options.lams, system.defaults.lams), "--bs": (options.bs, system.defaults.bs)}
        lams, bs = (
            tuple(
                validate.number(name, each, minimum=0.0)
                for each in (usual if text is None else shell.numbers(name, text))
            )
            for name, (text, usual) in given.items()
        )
        plant = load_plant(system, options.data, options.episodes, options.seed)
        contract = plant.env.contract(lams[0], bs[0], plant.train.horizon)
        certificate = _certificate(options.certificate, plant, contract)
        train = plant.train[_places(len(plant.train), options.episodes)]
        return cls(options, plant._replace(train=train), certificate, lams, bs)

    @property
    def grid(self) -> list[tuple[float, float]]:
        return [(lam, b) for b in self.bs for lam in self.lams]

    @property
    def identity(self) -> dict[str, Any]:
        names = ("system", "method", "episodes", "passes", "seeds", "limits", "seed")
        return {
            "study": "frontier",
            **{name: getattr(self.options, name) for name in names},
            "lams": self.lams,
            "bs": self.bs,
            "certificate": self.certificate.to_dict(),
            "data": None if self.options.data is None else str(self.options.data),
            "command": shell.typed(),
        }

    def pieces(self, folder: Path) -> list[Piece]:
        """The learner for all contracts, and the limit of each."""
        from tether.engines.pieces import Piece

        limits = [
            Piece(f"limit-lam{lam:g}-b{b:g}", partial(self._limit, folder, lam, b)) for lam, b in self.grid
        ]
        return [Piece("learner", partial(self._learner, folder)), *limits]

    def _learner(self, folder: Path, report: Told) -> list[dict[str, Any]]:
        """Its scores, one for each contract and seed."""
        from tether.learn.methods import method_of
        from tether.learn.trial import recipe_of, run_method

        def told(done: int, history: History) -> None:
            report(done, self.options.passes, f"reward {np.mean(history.rewards[-1]):.1f}")

        learned = method_of(self.options.method).learned_by("offline")
        result = run_method(
            self.options.method,
            self.plant,
            self.certificate,
            list(self.lams),
            list(self.bs),
            shell.seeds_from(self.options.seed, self.options.seeds),
            recipe_of("tether", self.plant.system.defaults, passes=self.options.passes),
            folder / f"{learned.name}.checkpoint.npz",
            told,
        )
        return [asdict(score) for score in result.scores]

    def _limit(self, folder: Path, lam: float, b: float, report: Told) -> dict[str, Any]:
        """Its point; moved from the level of the episodes that were solved to that of all test episodes."""
        from tether.assure.frontier import limit_point
        from tether.assure.limit import hindsight_limit
        from tether.assure.nonlinear import NonlinearProgram

        env, test, prior = self.plant.env, self.plant.test, self._prior()
        chosen = _places(len(test), self.options.limits)
        contract = env.contract(lam, b, test.horizon)
        found = hindsight_limit(
            env,
            test[chosen],
            contract,
            prior.costs[chosen],
            program=self.plant.system.program or NonlinearProgram,
            processes=self.options.processes,
            cache=folder / "solved",
            report=lambda done, total: report(done, total, ""),
        )
        point = limit_point(found, contract, prior)
        level = float(prior.returns.mean() - prior.returns[chosen].mean())
        return {"point": asdict(replace(point, reward=point.reward + level)), "proven": found.proven}

    def _prior(self) -> Run:
        from tether.simulate.rollout import rollout

        return rollout(self.plant.env, self.plant.env.prior, self.plant.test, record="outcomes")

    def assemble(self, done: dict[str, Any]) -> tuple[Point, list[Contracted]]:
        """The prior's point, and what is to say of each contract."""
        from tether.assure.frontier import Point, contracted, learner_point, prior_point
        from tether.learn.train import Score

        scores = [Score(**score) for score in done["learner"]]
        learners = [
            learner_point([score for score in scores if (score.lam, score.b) == each]) for each in self.grid
        ]
        limits = [Point(**done[f"limit-lam{lam:g}-b{b:g}"]["point"]) for lam, b in self.grid]
        prior = prior_point(self._prior())
        return prior, contracted(prior, self.grid, learners, limits)


def _certificate(kind: str, plant: Plant, contract: Any) -> Certificate:
    from tether.systems.certified import certificate_of

    if kind:
        return certificate_of(kind, plant.env, contract)
    try:
        return certificate_of("structured", plant.env, contract)
    except NotImplementedError:  # a system may have no structure
        return certificate_of("lipschitz", plant.env, contract)


def _places(count: int, wanted: int) -> Any:
    """Evenly chosen ones of so many."""
    return np.linspace(0, count - 1, min(wanted, count)).round().astype(int)
