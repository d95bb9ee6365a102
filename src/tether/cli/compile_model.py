"""The command `tether compile`."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from tether.cli import shell
from tether.core import output
from tether.systems import registry

if TYPE_CHECKING:
    from tether.assure.attack import Finding
    from tether.assure.inclusions import Inclusion
    from tether.assure.safe_sets import SafeSets
    from tether.certificates.explain import Explanation
    from tether.certificates.found import Found
    from tether.systems.system import System


@dataclass(frozen=True)
class Options:
    """What `tether compile` can be asked for."""

    model: Annotated[
        str,
        typer.Argument(
            help=f"module:object, a tether.Model or a system of your own; or {', '.join(registry.names())}.",
            show_default=False,
        ),
    ]
    lam: shell.Lam = 1.0
    b: shell.B = 1.0
    horizon: Annotated[int, typer.Option(help="Rounds of an episode.", min=1)] = 24
    cost_floor: Annotated[
        float | None,
        typer.Option(
            help="A cost that no round goes below (eps): lam is credited on it. [default: what the model says]",
            show_default=False,
        ),
    ] = None
    cells: Annotated[
        int | None,
        typer.Option(
            help="Pieces into which the range of draws is cut in the round at hand.",
            min=1,
            show_default=False,
        ),
    ] = None
    rounds: Annotated[
        int | None,
        typer.Option(
            help="K, later rounds that are looked at one by one where a tail is known.",
            min=0,
            show_default=False,
        ),
    ] = None
    episodes: Annotated[int, typer.Option(help="Hostile episodes; 0 to attack nothing.", min=0)] = 10_000
    compared: Annotated[
        int,
        typer.Option(help="Episodes in which every bound is compared with what happens; 0 for none.", min=0),
    ] = 200
    explain: Annotated[
        bool, typer.Option(help="Try what would enlarge the safe set; each change is compiled anew.")
    ] = False
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for report.md, safe-set.png and results.json. [default: out/compile/MODEL]",
            show_default=False,
        ),
    ] = None
    seed: Annotated[int, shell.seed_option("Of the episodes and of the search.")] = 0


def compile_model(options: Options) -> None:
    """Compile a certificate from a model of your plant, try to break it, and show what it allows.

    A model is a few functions of `jax.numpy` and the ranges of what they are given (docs/model.md). In my_plant.py:

        model = tether.Model(step=..., cost=..., prior=..., state=(0, 10), action=(0, 4), context=(0, 2), draws=(-0.2,
        0))

    `tether compile my_plant:model --lam 0.5 --b 0.5` then says what it found (how gaps shrink under the prior, how
    strongly an action acts, which list of bounds runs to the horizon and which has a tail), which actions are safe at
    first and which bound decides, plays hostile episodes through the guard, searches every bound for a
    counterexample, and leaves a report with a picture of one episode. Exit code 1 if the promise was broken or a
    bound refuted; a model that cannot be compiled is one line, with the line of your function that is to blame, and
    exit code 2.

    If little is allowed, `--explain` tries more cells, more rounds and narrower ranges, and says what each gains.
    """
    lam, b = shell.promise(options.lam, options.b)
    system, model = _target(options)
    folder = output.prepare_folder(options.out or shell.default_folder("compile", options.model))
    work = _Work(system, model, replace(options, lam=lam, b=b))
    work.compile()
    work.look()
    work.attack()
    work.verify()
    work.write(folder)
    if work.failed:
        raise typer.Exit(1)


def _target(options: Options) -> tuple[System, Any]:
    """The system, and its model as the system's observations show it."""
    from tether.certificates.checked import check
    from tether.certificates.found import least_cost
    from tether.certificates.model import Model
    from tether.systems import from_model
    from tether.systems.system import System

    place = options.model
    given = registry.imported(place) if ":" in place else registry.find(place)
    if isinstance(given, System):
        return given, given.env().model()
    if not isinstance(given, Model):
        raise ValueError(
            f"{place!r} must be a tether.Model or a tether.systems.System, got {type(given).__name__}"
        )
    check(given)
    floor = least_cost(given) if options.cost_floor is None else options.cost_floor
    # A learner is not needed here; without a reward the one of the picture goes for the largest actions.
    model = given if given.reward is not None else replace(given, reward=_largest)
    name = place.replace(":", "_").replace(".", "_").lower()
    # A hair below, so that round-off of a cost at the floor is no breach.
    system = from_model(name, place, model, horizon=options.horizon, cost_floor=floor * (1.0 - 1e-9))
    return system, system.env().model()


def _largest(x: Any, z: Any, a: Any, w: Any) -> Any:  # noqa: ARG001
    """A reward for whoever plays the largest actions."""
    import jax.numpy as jnp

    return jnp.sum(a)


class _Work:
    """What is done one after the other, and what it came to."""

    def __init__(self, system: System, model: Any, options: Options) -> None:
        self.system, self.model, self.options = system, model, options
        self.env: Any = system.env()
        floor = self.env.cost_floor if options.cost_floor is None else options.cost_floor
        self.contract = replace(self.env.contract(options.lam, options.b, options.horizon), cost_floor=floor)
        self.seconds: dict[str, float] = {}
        self.finding: Finding | None = None
        self.inclusions: dict[str, Inclusion] = {}

    def compile(self) -> None:
        """The certificate, and what was found out about the model."""
        from tether.certificates.compiled import compile as compiled
        from tether.certificates.compiled_structure import Precision
        from tether.certificates.found import found

        asked = {name: getattr(self.options, name) for name in ("cells", "rounds")}
        precision = Precision(**{name: value for name, value in asked.items() if value is not None})
        with shell.waiting("compiling the certificate"), self._timed("compile"):
            self.certificate: Any = compiled(self.model, self.contract, precision)
        with shell.waiting("looking at slopes and gains"):
            self.found: Found = found(self.certificate, self.env.action_range())
        shell.console.print(_table("What it found", self.found_rows()), highlight=False)

    def look(self) -> None:
        """One episode, and why no more is safe in its first round."""
        from tether.assure.safe_sets import safe_sets
        from tether.certificates.explain import explain

        episode = self.system.draw(self.options.seed, 1, self.options.horizon)
        with shell.waiting("compiling the guard, playing an episode"), self._timed("guard and episode"):
            self.sets: SafeSets = safe_sets(self.env, episode, self.certificate)
        state, drawn = self.env.initial(), {name: episode[name][0, 0] for name in self.env.drawn_names}
        observation = self.env.observation(state, drawn)
        low, high, prior = (np.asarray(each[0]) for each in self.sets[1:4])
        least, most = self.env.action_range()
        # The end of the actions of which less is safe.
        below, above = (np.abs(end - prior).sum() for end in (low, high))
        farther = least if below * np.abs(most - prior).sum() <= above * np.abs(least - prior).sum() else most
        with shell.waiting("asking what binds"), self._timed("explain"):
            self.explanation: Explanation = explain(
                self.certificate, observation, farther, prior=prior, what_if=self.options.explain
            )
        shell.console.print(_table("What it allows", self.allowed_rows()), highlight=False)
        shell.console.print(str(self.explanation), highlight=False, soft_wrap=True)

    def attack(self) -> None:
        """Hostile episodes."""
        from tether.assure import attack

        count = self.options.episodes
        if not count:
            return
        batch = min(count, 1000)
        with shell.progress() as bars, self._timed("attack"):
            task = bars.add_task("hostile episodes", total=count)
            self.finding = attack.attack(
                self.system,
                "standard",
                attack.scripted_plant(self.env),
                self.certificate,
                count,
                self.options.seed,
                batch=batch,
                report=lambda done: bars.advance(task, done),
            )
        shell.console.print(self.attacked(), highlight=False, soft_wrap=True)

    def verify(self) -> None:
        """Episodes in which every bound is compared with what happens."""
        from tether.assure.inclusions import hostile_inclusions

        if not self.options.compared:
            return
        with shell.waiting("comparing every bound with what happens"), self._timed("verify"):
            self.inclusions = hostile_inclusions(
                self.system, self.certificate, self.options.compared, self.options.seed
            )
        shell.console.print(self.verified(), highlight=False, soft_wrap=True)

    @property
    def failed(self) -> bool:
        """Whether the promise was broken, the guard gave a false alarm, or a bound is false."""
        attacked = self.finding is not None and bool(self.finding.violations or self.finding.breaches)
        return attacked or any(each.broken for each in self.inclusions.values())

    def found_rows(self) -> dict[str, str]:
        """Of the first table."""
        each = self.found
        names = ("state", "context", "action", "draws")
        rows = {"numbers": ", ".join(f"{name} {size}" for name, size in zip(names, each.sizes, strict=True))}
        if (fit := getattr(self.model, "fit", None)) is not None:
            rows["model"] = str(fit).splitlines()[0]
        rows["cost"] = f"at least {_short(each.least_cost)}; of the prior at most {_short(each.largest_cost)}"
        rows["range of states"] = (
            "kept by the prior" if each.invariant else "NOT kept by the prior: no tail, little is safe"
        )
        rows["slopes under the prior"] = (
            f"{_short(each.slopes)} state to state, {_short(each.cost_slopes)} state to cost"
        )
        rows["gains of the action"] = (
            f"{_short(each.cost_gains)} on the cost, {_short(each.state_gains)} on the next state"
        )
        rows["contraction"] = (
            "none found: gaps may last"
            if each.rate is None or each.weights is None
            else f"rho = {each.rate:.3g} a round, weights {_short(each.weights)}"
        )
        rows["compiled in"] = f"{self.seconds['compile']:.1f} s"
        return rows

    def allowed_rows(self) -> dict[str, str]:
        """Of the second table."""
        sets, contract = self.sets, self.contract
        least, most = self.env.action_range()
        share = np.mean((sets.high - sets.low) / np.maximum(np.asarray(most) - np.asarray(least), 1e-300))
        rows = {
            "contract": f"lam {contract.lam:g}, b {contract.b:g}, {contract.horizon} rounds, cost floor "
            f"{contract.cost_floor:.4g}",
            "actions": f"{_short(least)} to {_short(most)}",
            "round 1": f"{_short(sets.low[0])} to {_short(sets.high[0])}, the prior plays {_short(sets.prior[0])}",
            "one episode": f"{share:.0%} of the range of actions is safe, on average",
        }
        for way in self.explanation.ways:
            last = way.lines[-1]
            tail = last.last > last.round or len(way.lines) == 1
            listed = f"{len(way.lines) - tail} rounds one by one" if len(way.lines) > tail else "this round"
            rows[f"backup {way.backup!r}"] = listed + (" and a tail" if tail else ", to the horizon")
        return rows

    def attacked(self) -> str:
        """The verdict of the attack."""
        found = self.finding
        if found is None:
            return "Not attacked."
        verdict = "kept in every round" if not found.violations else f"BROKEN in {found.violations} episodes"
        alarms = f"; {found.breaches} false alarms" if found.breaches else ""
        return (
            f"Attack: {found.episodes} hostile episodes, the promise was {verdict} (nearest: {found.nearest:.2g} of "
            f"the bound was left); unguarded, the same policies break it in {found.unguarded:.0%}{alarms}."
        )

    def verified(self) -> str:
        """What the comparison came to."""
        if not self.inclusions:
            return "No bound was compared with what happens."
        lines = ["Verify: every bound beside what happens in hostile episodes."]
        for each in self.inclusions.values():
            verdict = "true" if not each.broken else f"FALSE {each.broken} times"
            near = f", the truth comes within {each.slack:.1%} of it" if np.isfinite(each.slack) else ""
            lines.append(f"  {each.bound:<16} {verdict} in {each.compared} comparisons{near}")
        return "\n".join(lines)

    def write(self, folder: Path) -> None:
        """The report, its picture and results.json."""
        from tether.certificates.explain import finite
        from tether.core.files import complete_file

        title = f"{self.options.model}, lam = {self.contract.lam:g}, b = {self.contract.b:g}: one episode"
        self.sets.figure(folder / "safe-set.png", title)
        with complete_file(folder / "report.md") as draft:
            draft.write_text(self.report(), encoding="utf-8")
        content = {
            "model": self.options.model,
            "contract": asdict(self.contract),
            "found": self.found.to_dict(),
            "explanation": self.explanation.to_dict(),
            "safe_low": self.sets.low,
            "safe_high": self.sets.high,
            "seconds": self.seconds,
            "attack": None if self.finding is None else asdict(self.finding),
            "verify": {name: finite(asdict(each)) for name, each in self.inclusions.items()},
        }
        shell.finish(folder, content, ["report.md", "safe-set.png"])

    def report(self) -> str:
        """As markdown."""
        from tether.core.output import provenance

        parts = [f"# {self.options.model}: a certificate from its model", ""]
        for title, rows in (("What was found", self.found_rows()), ("What is allowed", self.allowed_rows())):
            parts += [
                f"## {title}",
                "",
                "| | |",
                "|---|---|",
                *(f"| {name} | {text} |" for name, text in rows.items()),
                "",
            ]
        parts += [
            "![Safe actions of one episode, and its cost](safe-set.png)",
            "",
            "## What binds in round 1",
            "",
        ]
        parts += ["```", str(self.explanation), "```", "", "## Tried to break it", "", self.attacked(), ""]
        parts += ["```", self.verified(), "```", "", "## How it was made", ""]
        made = provenance(shell.typed())
        timed = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        parts += [
            f"`{made['command']}`, {', '.join(f'{k} {v}' for k, v in made['versions'].items())}. {timed}.",
            "",
        ]
        return "\n".join(parts)

    def _timed(self, what: str) -> Any:
        return _Timed(self.seconds, what)


@dataclass(frozen=True)
class _Timed:
    """Notes how long something takes."""

    seconds: dict[str, float]
    what: str

    def __enter__(self) -> None:
        self.seconds[self.what] = -time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.what] += time.perf_counter()


def _table(title: str, rows: dict[str, str]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, show_header=False, title_justify="left")
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _short(values: Any) -> str:
    """Numbers in a few digits; rows of a matrix are separated by semicolons."""
    array = np.asarray(values, dtype=float)
    if array.ndim == 2:
        return "; ".join(_short(row) for row in array)
    # What is 0 up to the outward rounding of an interval is 0.
    numbers = [f"{each if abs(each) > 1e-300 else 0.0:.3g}" for each in array.ravel()]
    return numbers[0] if len(numbers) == 1 else f"[{', '.join(numbers)}]"
