"""The command `tether attack`."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast, get_args

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.cli import shell
from tether.core import output, validate
from tether.engines.engine import Note, run
from tether.engines.pieces import Piece, Report, Store
from tether.systems import registry
from tether.systems.certified import KINDS

if TYPE_CHECKING:
    from tether.assure.attack import Finding
    from tether.assure.scenarios import Scenario
    from tether.certificates import Certificate
    from tether.core.contract import Contract
    from tether.systems.base import Env


@dataclass(frozen=True)
class Options:
    """What `tether attack` can be asked for."""

    system: shell.SystemName
    certificate: Annotated[
        str, typer.Option(help="What is attacked: structured, shadowing, compiled or lipschitz (rule tight).")
    ] = "structured"
    lams: shell.Lams = "0,2"
    bs: shell.Bs = "0.01,2"
    episodes: Annotated[
        int, typer.Option(help="Episodes in all; at least a batch for each system and contract.", min=1)
    ] = 1_000_000
    horizon: Annotated[int, typer.Option(help="Rounds of an episode.", min=1)] = 24
    loosen: Annotated[
        str | None,
        typer.Option(
            help="Play the same attack with one bound loosened, which must then break the promise: now, later, floor, "
            "or a gap by name, as far as the structure has them; several comma-separated, or all. Structured "
            "and compiled certificates only."
        ),
    ] = None
    scenarios: Annotated[
        str | None,
        typer.Option(
            help="Attack the standard plant as plants are instead: late, missing, both (costs), tolerance, quantised "
            "(actuators, --certificate lipschitz only); several comma-separated, or all."
        ),
    ] = None
    factor: Annotated[float, typer.Option(help="By how much --loosen loosens.")] = 1.05
    coarse: Annotated[
        bool, typer.Option(help="Also attack the plant with sensors, actuators and meters of fewer digits.")
    ] = True
    precision: Annotated[str, typer.Option(help="float64 or float32: of plant, guard and costs.")] = "float64"
    batch: Annotated[int, typer.Option(help="Episodes that are played at a time.", min=10)] = 10_000
    out: Annotated[Path, shell.out_option("results.json")] = Path("out/attack")
    seed: Annotated[int, shell.seed_option("Random seed.")] = 0
    engine: shell.EngineName = "local"
    address: shell.Address = None
    workers: shell.Workers = None


def attack(options: Options) -> None:
    """Try to break the promise of a certificate, and say how near it came.

    Noise at its worst corners (held, mixed, switched in time, so that gaps are hidden first and released later), all
    that is visible at its limits, policies that propose extremes, alternate, save and strike or propose rubbish; half
    of each batch is bred from the episodes that came nearest to breaking the promise. Every round is audited against
    the prior on the same draws. The same policies without the guard show that the attack is one. Besides the standard
    plant, plants are attacked whose parameters stress a bound, and the standard one with sensors, actuators and meters
    of float32, float16 and mixed types; with `--scenarios`, plants whose costs are late or missing or whose actuators
    are inexact. Exit code 1 if the promise was broken or the guard gave a false alarm; with `--loosen`, if the promise
    was not broken.

    For instance `tether attack carbon`, `tether attack inference --loosen all --episodes 200000`, or
    `tether attack carbon --certificate lipschitz --lams 0 --bs 1`.
    """
    start = time.perf_counter()
    with shell.engine(options) as engine:
        waves, pieces = engine.plan(_plan, options)
        store = shell.unfinished(output.prepare_folder(options.out), options)
        with shell.watching(options.system, len(pieces), lines=options.engine != "local") as watch:
            run(engine, pieces, store, watch)
        failed = engine.aside(_finish, options, store, waves)
    shell.forget(store)
    _say_speed(options, waves, engine.notes, time.perf_counter() - start)
    if failed:
        raise typer.Exit(1)


class _Wave(NamedTuple):
    """A piece of the attack: some episodes of one plant under one contract."""

    bound: str | None
    """That is loosened."""
    case: int
    """Which one of `_cases`."""
    number: int
    """Of the wave."""
    episodes: int

    @property
    def name(self) -> str:
        """Of the piece."""
        return "-".join([*([self.bound] if self.bound else []), str(self.case), str(self.number)])


def _plan(options: Options) -> tuple[list[_Wave], list[Piece]]:
    """Every plant under every contract, with each of the bounds loosened."""
    from tether.assure import attack

    bounds, cases = _checked(options), _cases(options)
    sizes = attack.waves(-(-options.episodes // len(cases)), options.batch)
    waves = [
        _Wave(bound, case, number, episodes)
        for bound in bounds
        for case in range(len(cases))
        for number, episodes in enumerate(sizes)
    ]
    return waves, [Piece(wave.name, partial(_attack, options, wave)) for wave in waves]


def _attack(options: Options, wave: _Wave, report: Report) -> Finding:
    """Compute a piece."""
    from tether.assure import attack
    from tether.simulate.rollout import Precision

    case, certificate = _attacked(options, wave.bound, wave.case)
    done = 0

    def told(episodes: int) -> None:
        nonlocal done
        done += episodes
        report(done, wave.episodes, f"{case.name}, lam {case.contract.lam:g}, b {case.contract.b:g}")

    return attack.attack(
        registry.find(options.system),
        case.name,
        case.env,
        certificate,
        wave.episodes,
        options.seed,
        batch=options.batch,
        precision=cast(Precision, options.precision),
        delay=case.scenario.delay,
        missing=case.scenario.missing,
        wave=wave.number,
        report=told,
    )


@cache
def _attacked(options: Options, bound: str | None, number: int) -> tuple[_Case, Certificate]:
    """A case, and the certificate that is attacked in it."""
    from tether.assure import attack
    from tether.assure.scenarios import tolerating

    case = _cases(options)[number]
    made = attack.certify(case.env, options.certificate, case.contract, bound, options.factor)
    return case, tolerating(made, case.off)


def _finish(options: Options, store: Store, waves: list[_Wave]) -> bool:
    """Show and write what was found; whether that is not what it should be."""
    from tether.assure.attack import joined

    found: dict[str | None, dict[int, list[Finding]]] = {}
    for wave in waves:
        found.setdefault(wave.bound, {}).setdefault(wave.case, []).append(store.read(wave.name))
    findings = {bound: [joined(each) for each in cases.values()] for bound, cases in found.items()}
    for bound, each in findings.items():
        title = f"{options.system}, {options.certificate}"
        shell.console.print(_table(title, bound, options.factor, each))
    failed = _verdict(options, findings)
    names = ("system", "certificate", "scenarios", "horizon", "precision", "factor")
    attacks = [{"loosened": bound, **asdict(each)} for bound, found in findings.items() for each in found]
    shell.finish(options.out, {name: getattr(options, name) for name in names} | {"attacks": attacks})
    return failed


def _say_speed(options: Options, waves: list[_Wave], notes: dict[str, Note], seconds: float) -> None:
    """How fast the pieces were that were computed now, and not found."""
    rounds = sum(wave.episodes for wave in waves if wave.name in notes) * options.horizon
    busy = sum(note.processor for note in notes.values())
    memory = max((note.memory for note in notes.values()), default=0.0)
    shell.console.print(
        f"{rounds:.3g} guarded rounds in {seconds:.0f} s, {rounds / max(busy, 1e-9):,.0f} a second of a processor, "
        f"{memory:.0f} MB a process at most",
        highlight=False,
        soft_wrap=True,
    )


def _checked(options: Options) -> list[str | None]:
    """The bounds to loosen one after the other; None stands for the certificate as it is."""
    from tether.assure.attack import certify
    from tether.simulate.rollout import Precision

    plant = registry.find(options.system).env()
    validate.choice("--certificate", options.certificate, KINDS)
    validate.choice("--precision", options.precision, get_args(Precision))
    validate.number("--factor", options.factor, above=1.0)
    _scenarios(options)
    if options.loosen is None:
        return [None]
    if options.certificate not in ("structured", "compiled"):
        raise ValueError("--loosen is for --certificate structured or compiled, whose bounds it knows")
    certificate: Any = certify(
        plant, options.certificate, plant.contract(0.0, 0.0, options.horizon), None, 1.0
    )
    known = certificate.system.loosenable
    chosen = list(known) if options.loosen == "all" else [each.strip() for each in options.loosen.split(",")]
    for each in chosen:
        validate.choice("--loosen", each, (*known, "all"))
    return [*chosen]


class _Case(NamedTuple):
    """A plant under a contract."""

    name: str
    env: Env
    contract: Contract
    scenario: Scenario
    off: float
    """By how much what is played may be off what was decided, of which a Lipschitz certificate must be told."""


@cache
def _cases(options: Options) -> list[_Case]:
    """What is attacked."""
    from tether.assure import attack
    from tether.assure.scenarios import Scenario, affordable, plant

    system, cases = registry.find(options.system), []
    grid = shell.contracts(options.lams, options.bs)
    chosen = _scenarios(options)
    if chosen:
        env = attack.plants(system)["standard"]
        for name, scenario in chosen.items():
            for lam, b in grid:
                contract = env.contract(lam, b, options.horizon)
                made = plant(env, scenario, contract)
                cases.append(_Case(name, made, contract, scenario, getattr(made, "off", 0.0)))
        return cases
    plants = attack.plants(system)
    if options.coarse and options.loosen is None and options.precision == "float64":
        plants = plants | attack.coarse_plants(system)
    for name, env in plants.items():
        off = attack.rounded_apart(system, env) if options.certificate == "lipschitz" else 0.0
        contracts = [affordable(env, env.contract(lam, b, options.horizon), off) for lam, b in grid]
        cases += [_Case(name, env, contract, Scenario(""), off) for contract in dict.fromkeys(contracts)]
    return cases


def _scenarios(options: Options) -> dict[str, Scenario]:
    """The scenarios that are asked for, by name."""
    from tether.assure.scenarios import SCENARIOS

    if options.scenarios is None:
        return {}
    able = {
        name: each
        for name, each in SCENARIOS.items()
        if options.certificate == "lipschitz" or not each.actuated
    }
    names = (
        list(able) if options.scenarios == "all" else [each.strip() for each in options.scenarios.split(",")]
    )
    for name in names:
        validate.choice(f"--scenarios with --certificate {options.certificate}", name, (*able, "all"))
    return {name: able[name] for name in names}


def _verdict(options: Options, findings: dict[str | None, list[Finding]]) -> bool:
    """Say what the attack came to; whether that is not what it should be."""
    broken = {bound: sum(each.violations for each in found) for bound, found in findings.items()}
    missed = [bound for bound, count in broken.items() if (count > 0) == (bound is None)]
    alarms = 0
    if options.loosen is None:
        alarms = sum(each.breaches for each in findings[None])
        shell.console.print(
            "The promise was BROKEN." if missed else "The promise was kept in every round of every episode."
        )
        shell.console.print(f"False alarms of the guard (an assumption breach that was none): {alarms}")
    else:
        for bound, count in broken.items():
            verdict = f"found: {count} episodes break the promise" if count else "NOT found"
            shell.console.print(f"{bound} loosened by {options.factor - 1.0:.3g}: {verdict}")
    return bool(missed or alarms)


def _table(title: str, bound: str | None, factor: float, findings: list[Finding]) -> Table:
    loosened = "" if bound is None else f", {bound} loosened by {factor - 1.0:.3g}"
    table = Table(title=title + loosened, box=SIMPLE_HEAD, show_footer=True)
    table.padding = (0, 1, 0, 0)
    table.caption = "margin: bound minus cost, cost units, and as a share of the bound, where it was smallest"
    total, violations = sum(each.episodes for each in findings), sum(each.violations for each in findings)
    unguarded = sum(each.unguarded * each.episodes for each in findings) / total
    table.add_column("system", "all", no_wrap=True)
    feet = {
        "lam": "",
        "b": "",
        "episodes": f"{total}",
        "viol.": f"{violations}",
        "margin": f"{min(each.worst_margin for each in findings):.2g}",
        "share": f"{min(each.nearest for each in findings):.1g}",
        "unguarded": f"{unguarded:.0%}",
    }
    for name, foot in feet.items():
        table.add_column(name, foot, justify="right", no_wrap=True)
    for each in findings:
        table.add_row(
            each.system,
            f"{each.lam:g}",
            f"{each.b:g}",
            f"{each.episodes}",
            f"{each.violations}",
            f"{each.worst_margin:.2g}",
            f"{each.nearest:.1g}",
            f"{each.unguarded:.0%}",
        )
    return table
