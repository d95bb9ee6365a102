"""The command `tether verify`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.cli import shell
from tether.core import output, validate
from tether.engines.engine import run
from tether.engines.pieces import Piece, Report, Store
from tether.systems import registry

if TYPE_CHECKING:
    from tether.assure.exact_systems import Checked
    from tether.assure.inclusions import Inclusion
    from tether.assure.verify import Constants, Finding, Search, Simulator, Verification
    from tether.assure.verify.verdict import Played, Verifier
    from tether.certificates import Structured
    from tether.core.sensitivity import Sensitivity
    from tether.systems.base import Env
    from tether.systems.system import System

KIND = "tether counterexample"


@dataclass(frozen=True)
class Options:
    """What `tether verify` can be asked for."""

    system: Annotated[str | None, typer.Argument(help=f"{shell.SYSTEMS}; or random.", show_default=False)] = (
        None
    )
    immediate: Annotated[float | None, typer.Option(help="Claim this `immediate`, cost per action.")] = None
    carried: Annotated[float | None, typer.Option(help="Claim this `carried`, cost per action.")] = None
    rho: Annotated[float | None, typer.Option(help="Claim p(n) = rho^n.")] = None
    cost_floor: Annotated[float | None, typer.Option(help="Claim that no cost is below this.")] = None
    l_c: Annotated[float | None, typer.Option("--L-c", help="Claim this Lipschitz constant of the cost.")] = (
        None
    )
    l_f: Annotated[float | None, typer.Option("--L-f", help="The same for the dynamics.")] = None
    l_pi: Annotated[float | None, typer.Option("--L-pi", help="The same for the prior.")] = None
    certificate: Annotated[
        str,
        typer.Option(
            help="lipschitz: the constants; structured: every bound of the system's structure; compiled: every bound "
            "that follows from its model, in hostile episodes."
        ),
    ] = "lipschitz"
    lam: Annotated[
        float | None,
        typer.Option(
            help="structured: lam of the contract, anything up to 10 without it; compiled: 1 without it.",
            min=0.0,
        ),
    ] = None
    loosen: Annotated[
        str | None,
        typer.Option(
            help="structured: claim 5 % too much of one bound, which must then be refuted: now, later, floor, above or "
            "below; several comma-separated, or all. compiled: all."
        ),
    ] = None
    scale: Annotated[
        float, typer.Option(help="Claim all constants times this (the cost floor divided by it).")
    ] = 1.0
    rounds: Annotated[int, typer.Option(help="Check p(1) to p(rounds).", min=1)] = 4
    claims: Annotated[
        str | None, typer.Option(help="Only these claims, comma-separated: 'p(1),immediate'.")
    ] = None
    region: Annotated[str | None, typer.Option(help="Search elsewhere: 'backlog=0:8,action=0:10'.")] = None
    systems: Annotated[int, typer.Option(help="random: number of systems, seeds 0, 1, ...", min=1)] = 50
    samples: Annotated[int, typer.Option(help="Random points a claim.", min=64)] = 16384
    steps: Annotated[int, typer.Option(help="Steps of gradient ascent.", min=0)] = 200
    generations: Annotated[int, typer.Option(help="Largest number of generations of evolution.", min=0)] = (
        1000
    )
    replay: Annotated[
        Path | None, typer.Option(help="Compute a counterexample again from its file, and nothing else.")
    ] = None
    seed: Annotated[int, shell.seed_option("Seed of the search.")] = 0
    out: Annotated[Path, shell.out_option("results.json and counterexamples")] = Path("out/verify")
    engine: shell.EngineName = "local"
    address: shell.Address = None
    workers: shell.Workers = None


def verify(options: Options) -> None:
    """Try to refute every constant, or every bound of the structure, that the guard of a system relies on.

    Each claim is searched for a counterexample: random points, gradient ascent, differential evolution, in float64; the
    bounds of a structure in whole episodes as well. A claim that stands is not proved. A refuted one comes with a
    counterexample, `OUT/counterexample-CLAIM.json`. What is compiled from a model is compared with what happens in
    hostile episodes. Exit code 1 if a claim is refuted, 0 if all stand, 2 for bad input;
    with `--loosen` 0 if every bound that was loosened is refuted, 1 if one is not.

    For instance `tether verify carbon --rho 0.225`, then `tether verify --replay
    'out/verify/counterexample-p(1).json'`; or `tether verify cooling --certificate structured --loosen all`. `tether
    verify random` checks the search itself, on random systems whose constants are known exactly.
    """
    if options.replay is not None:
        raise typer.Exit(_replay(options.replay))
    if options.system is None:
        raise ValueError(f"which system? {shell.SYSTEMS}; or random; for instance `tether verify carbon`")
    validate.number("--scale", options.scale, above=0.0)
    with shell.engine(options) as engine:
        _, pieces = engine.plan(_plan, options)
        store = shell.unfinished(output.prepare_folder(options.out), options)
        with shell.watching("verifying", len(pieces), lines=options.engine != "local") as watch:
            run(engine, pieces, store, watch)
        code = engine.aside(_finish, options, store)
    shell.forget(store)
    if code:
        raise typer.Exit(code)


def _plan(options: Options) -> tuple[None, list[Piece]]:
    """What is compiled is one piece, a random system is one, and so is each claim: episodes are played before."""
    if options.certificate == "compiled":
        return None, [Piece("inclusions", partial(_inclusions, options))]
    if options.system == "random":
        _search(options)
        return None, [Piece(f"{i}", partial(_check, options, i)) for i in range(options.systems)]
    asked = _asked(options)
    pieces = []
    for bound in asked.loosened:
        after = (_piece(bound, "episodes"),) if asked.verifier(bound).plays else ()
        pieces += [Piece(name, partial(_play, options, bound)) for name in after]
        for claim in asked.verifier(bound).names:
            pieces.append(Piece(_piece(bound, claim), partial(_refute, options, bound, claim), after))
    return None, pieces


def _piece(bound: str | None, what: str) -> str:
    return " ".join(filter(None, (bound, what)))


def _play(options: Options, bound: str | None, report: Report) -> Played | None:
    """Compute a piece: whole episodes against every bound."""
    report(0, 1, "")
    return _asked(options).verifier(bound).play()


def _refute(
    options: Options, bound: str | None, claim: str, report: Report, played: Played | None = None
) -> Verification:
    """Compute a piece: search for a counterexample to one claim, unless episodes have `played` one."""
    report(0, 1, "")
    return _asked(options).verifier(bound).refute([claim], played)


def _check(options: Options, index: int, report: Report) -> list[Checked]:
    """Compute a piece: all claims about one random system."""
    from tether.assure.exact_systems import check_system

    report(0, 1, "")
    return check_system(index, options.seed, _search(options))


def _finish(options: Options, store: Store) -> int:
    """Show and write what was found; the exit code."""
    if options.certificate == "compiled":
        return _show_compiled(options, store.read("inclusions"))
    if options.system == "random":
        return _show_random(options, [store.read(f"{i}") for i in range(options.systems)])
    asked, found = _asked(options), {}
    for bound in asked.loosened:
        work = asked.verifier(bound)
        played = store.read(_piece(bound, "episodes")) if work.plays else None
        parts = [store.read(_piece(bound, claim)) for claim in work.names]
        found[bound] = work.joined(parts, played)
        asked.show(found[bound], options.out, bound)
    if options.loosen is None:
        shell.finish(options.out, found[None].as_json())
        return int(not found[None].stands)
    for each, verification in found.items():
        names = ", ".join(finding.claim for finding in verification.refuted)
        shell.console.print(
            f"{each} loosened by 5 %: " + (f"found, {names} refuted" if names else "NOT found")
        )
    loosened = {each: verification.as_json() for each, verification in found.items()}
    shell.finish(options.out, {"loosened": loosened})
    return int(any(verification.stands for verification in found.values()))


def _search(options: Options) -> Search:
    from tether.assure.verify import Search

    return Search(samples=options.samples, steps=options.steps, generations=options.generations)


@cache
def _asked(options: Options) -> Asked:
    """Once in a process: a worker looks at several claims."""
    assert options.system is not None
    return Asked.of(options, options.system)


@dataclass(frozen=True, eq=False)
class Asked:
    """What the command was asked to check, and how hard."""

    options: Options
    name: str
    env: Env
    constants: Constants
    lam: tuple[float, float]
    loosened: tuple[str | None, ...]
    """Bounds that claim too much, one after the other; None stands for all as they are."""
    claims: list[str] | None
    """Names of those to look at."""
    verifiers: dict[str | None, Verifier]
    """Those that were made so far."""

    @classmethod
    def of(cls, options: Options, name: str) -> Asked:
        """The options, checked; constants that are not claimed are those of the system."""
        from tether.assure.verify import Constants

        validate.choice("--certificate", options.certificate, ("lipschitz", "structured", "compiled"))
        lam, scale = options.lam, options.scale
        if options.certificate != "structured" and (options.loosen is not None or lam is not None):
            raise ValueError(
                "--loosen and --lam are for --certificate structured; constants are scaled by --scale"
            )
        env, _ = _load(name, _region(options.region))
        floor = env.cost_floor / scale if options.cost_floor is None else options.cost_floor
        L_c, L_f, L_pi = (
            None if each is None else each * scale for each in (options.l_c, options.l_f, options.l_pi)
        )
        return cls(
            options=options,
            name=name,
            env=env,
            constants=Constants(cost_floor=floor, L_c=L_c, L_f=L_f, L_pi=L_pi),
            lam=(0.0, 10.0) if lam is None else (lam, lam),
            loosened=(None,) if options.loosen is None else _chosen(env, options.loosen),
            claims=None if options.claims is None else [each.strip() for each in options.claims.split(",")],
            verifiers={},
        )

    def bounds(self, loosened: str | None) -> Sensitivity | Structured:
        """What is claimed; with `loosened`, 5 % too much of that bound."""
        if self.options.certificate == "structured":
            return _structured(self.env, loosened)
        return _claimed(self.env.sensitivity, self.options)

    def verifier(self, loosened: str | None) -> Verifier:
        """What looks for counterexamples."""
        from tether.assure.verify.verdict import Verifier

        if loosened not in self.verifiers:
            structured = self.options.certificate == "structured"
            claims = self.claims or (None if loosened is None else _claims_about(self.env, loosened))
            self.verifiers[loosened] = Verifier.of(
                self.env,
                self.bounds(loosened),
                self.constants,
                _region(self.options.region),
                self.options.rounds,
                self.lam if structured else None,
                claims,
                _search(self.options),
                self.options.seed,
            )
        return self.verifiers[loosened]

    def show(self, found: Verification, folder: Path, loosened: str | None) -> None:
        """Print what was found, and write the counterexamples; `loosened` names the bound that claims too much."""
        shell.console.print(found.table())
        shell.console.print(found.searched(), highlight=False, soft_wrap=True)
        for finding in found.refuted:
            name = " ".join(filter(None, ("counterexample", loosened, finding.claim)))
            path = folder / f"{name.replace(' ', '-')}.json"
            output.write_json(path, self._file(loosened, finding))
            shell.console.print(str(finding.counterexample), highlight=False, soft_wrap=True)
            shell.console.print(f"  Replay: tether verify --replay {shlex.quote(str(path))}", soft_wrap=True)

    def _file(self, loosened: str | None, finding: Finding) -> dict[str, Any]:
        from tether.assure.verify import Counterexample
        from tether.certificates import Structured

        assert finding.counterexample is not None
        bounds = self.bounds(loosened)
        if isinstance(bounds, Structured):
            told: dict[str, Any] = {"structured": loosened, "lam": self.lam}
        else:
            p = bounds.perturbation.to_dict()
            told = {"immediate": bounds.immediate, "carried": bounds.carried, "perturbation": p}
        point = isinstance(finding.counterexample, Counterexample)
        return {
            "kind": KIND,
            "system": self.name,
            "region": self.options.region,
            "bounds": told,
            "constants": {name: value for name, value in asdict(self.constants).items() if value is not None},
            "rounds": self.options.rounds,
            "counterexample" if point else "case": asdict(finding.counterexample),
        }


def _chosen(env: Env, loosen: str) -> tuple[str, ...]:
    """The bounds that `--loosen` names."""
    known = env.structure.loosenable
    chosen = known if loosen == "all" else tuple(each.strip() for each in loosen.split(","))
    for each in chosen:
        validate.choice("--loosen", each, (*known, "all"))
    return chosen


def _inclusions(options: Options, report: Report) -> dict[str, Inclusion]:
    """Compute a piece: what is compiled from a system's model beside what happens; see `tether.assure.inclusions`."""
    from tether.assure.inclusions import hostile_inclusions
    from tether.systems.certified import certificate_of

    validate.choice("--loosen", options.loosen, (None, "all"))
    report(0, 1, "")
    system, horizon, lam, episodes = _compiled(options)
    env = system.env()
    certificate = certificate_of("compiled", env, env.contract(lam, 0.0, horizon))
    return hostile_inclusions(system, certificate, episodes, options.seed)


def _compiled(options: Options) -> tuple[System, int, float, int]:
    """The system, its horizon, lam of the contract, and the episodes with each backup."""
    assert options.system is not None
    system = registry.find(options.system)
    horizon = system.draw(0, 1).horizon
    lam = 1.0 if options.lam is None else options.lam
    return system, horizon, lam, max(10, options.samples // horizon)


def _show_compiled(options: Options, found: dict[str, Inclusion]) -> int:
    from tether.assure.inclusions import LOOSEN
    from tether.certificates.explain import finite

    _, _, lam, episodes = _compiled(options)
    table = Table(
        title=f"{options.system}, compiled, lam = {lam:g}: {episodes} episodes with each backup",
        box=SIMPLE_HEAD,
    )
    table.caption = (
        "slack: smallest distance of the truth from the bound, as a share of it, where the bound counts"
    )
    for column in ("bound", "compared", "broken", "slack", f"{LOOSEN:.0%} less is"):
        table.add_column(column, justify="left" if column == "bound" else "right")
    for each in found.values():
        noticed = "found" if each.sharp else "NOT found" if each.unnoticed else "-"
        table.add_row(each.bound, f"{each.compared}", f"{each.broken}", f"{each.slack:.2g}", noticed)
    shell.console.print(table)
    inclusions = [finite(asdict(each)) for each in found.values()]
    shell.finish(options.out, {"system": options.system, "lam": lam, "inclusions": inclusions})
    if options.loosen is None:
        return int(any(each.broken for each in found.values()))
    return int(any(each.unnoticed for each in found.values()))


def _claims_about(env: Env, bound: str) -> list[str]:
    """The claims that are false if this bound, one of `Structure.loosenable`, is loosened."""
    from tether.assure.verify import Constants, as_simulator, claims_of

    gaps = [f"gap {i}" for i, name in enumerate(env.structure.gap_names) if name == bound]
    names = [each.name for each in claims_of(as_simulator(env), _structured(env, None), Constants(), 1)]
    return gaps or [name for name in names if name.split(" ")[0] == bound]


def _load(name: str, region: Mapping[str, tuple[float, float]]) -> tuple[Env, Simulator]:
    from tether.assure.verify import as_simulator

    env = registry.find(name).env()
    return env, as_simulator(env, region)


def _structured(env: Env, loosen: str | None) -> Structured:
    """The system's structure; with `loosen`, one that claims 5 % too much of that bound."""
    from tether.assure.attack import loosened
    from tether.certificates import Structured

    structure = env.structure if loosen is None else loosened(env.structure, loosen)
    return Structured(env.contract(0.0, 0.0), structure)


def _claimed(known: Sensitivity, options: Options) -> Sensitivity:
    """The constants as claimed."""
    from tether.core.sensitivity import Geometric, Sensitivity, geometric

    p, scale = known.perturbation, options.scale
    if not isinstance(p, Geometric):
        raise TypeError(f"--rho and --scale are for geometric perturbations, this system has {p!r}")
    return Sensitivity(
        (known.immediate if options.immediate is None else options.immediate) * scale,
        (known.carried if options.carried is None else options.carried) * scale,
        geometric((p.rho if options.rho is None else options.rho) * scale, p.scale),
    )


def _region(text: str | None) -> dict[str, tuple[float, float]]:
    ranges = {}
    for part in [] if text is None else text.split(","):
        name, _, ends = part.partition("=")
        low, colon, high = ends.partition(":")
        try:
            ranges[name.strip()] = (float(low), float(high))
        except ValueError as error:
            raise ValueError(
                f"--region is name=low:high, comma-separated, such as backlog=0:8; got {part!r}"
            ) from error
        if not colon:
            raise ValueError(f"--region is name=low:high, got {part!r}")
    return ranges


def _replay(path: Path) -> int:
    """Compute both sides again; 1 if the claim is refuted there, 0 if not."""
    from tether.assure.cases import Case, GuardedCase
    from tether.assure.verify import Constants, claims_of
    from tether.assure.verify import replay as both_sides
    from tether.assure.verify.claims import select
    from tether.assure.verify.verdict import bounds_from_dict

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["kind"] != KIND:
            raise ValueError(f"kind {content['kind']!r}")
        env, checked = _load(content["system"], _region(content["region"]))
        told, constants = content["bounds"], Constants(**content["constants"])
        if "case" in content:
            kind: type[Case | GuardedCase] = GuardedCase if "proposals" in content["case"] else Case
            case = kind(**content["case"]).replay(env, _structured(env, told["structured"]).system)
            shell.console.print(str(case), highlight=False, soft_wrap=True)
            shell.console.print(
                "Refuted: the claim is false in that episode." if case.broken else "Not refuted."
            )
            return int(case.broken)
        bounds = _structured(env, told["structured"]) if "structured" in told else bounds_from_dict(told)
        saved = content["counterexample"]
        made = claims_of(checked, bounds, constants, content["rounds"], told.get("lam"))
        claim, point = select(made, [saved["claim"]])[0], saved["point"]
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a counterexample that `tether verify` wrote: {error}") from error
    example, refuted = both_sides(claim, point)
    shell.console.print(str(example), highlight=False, soft_wrap=True)
    shell.console.print(
        "Refuted: the point is in the region and the claim is false there." if refuted else "Not refuted."
    )
    return int(refuted)


def _show_random(options: Options, found: list[list[Checked]]) -> int:
    from tether.assure.exact_systems import gathered, study_table

    study = gathered(found)
    shell.console.print(study_table(study))
    shell.finish(options.out, study)
    return int(any(row["refuted_at_truth"] for row in study["claims"]))
