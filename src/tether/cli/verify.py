"""The command `tether verify`."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tether.cli import shell
from tether.core import output, validate

if TYPE_CHECKING:
    from tether.assure.verify import Constants, Finding, Search, Simulator, Verification
    from tether.certificates import Structured
    from tether.core.sensitivity import Sensitivity
    from tether.systems.base import Env

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
    from tether.assure.verify import Search

    if options.replay is not None:
        raise typer.Exit(_replay(options.replay))
    if options.system is None:
        raise ValueError(f"which system? {shell.SYSTEMS}; or random; for instance `tether verify carbon`")
    validate.number("--scale", options.scale, above=0.0)
    if options.certificate == "compiled":
        raise typer.Exit(_compiled(options, options.system))
    search = Search(samples=options.samples, steps=options.steps, generations=options.generations)
    folder = output.prepare_folder(options.out)
    if options.system == "random":
        _random(options.systems, options.seed, search, folder)
        return
    asked = Asked.of(options, options.system, search)
    names = None if options.claims is None else [each.strip() for each in options.claims.split(",")]
    if options.loosen is not None:
        raise typer.Exit(_loosened(asked, options.loosen, names, folder))
    bounds = (
        _structured(asked.env, None)
        if options.certificate == "structured"
        else _claimed(asked.env.sensitivity, options)
    )
    found = asked.verify(bounds, names)
    asked.show(found, bounds, folder)
    shell.finish(folder, found.as_json())
    if not found.stands:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Asked:
    """What the command was asked to check, and how hard."""

    name: str
    env: Env
    region: str | None
    constants: Constants
    rounds: int
    lam: tuple[float, float]
    search: Search
    seed: int

    @classmethod
    def of(cls, options: Options, name: str, search: Search) -> Asked:
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
            name=name,
            env=env,
            region=options.region,
            constants=Constants(cost_floor=floor, L_c=L_c, L_f=L_f, L_pi=L_pi),
            rounds=options.rounds,
            lam=(0.0, 10.0) if lam is None else (lam, lam),
            search=search,
            seed=options.seed,
        )

    def verify(self, bounds: Sensitivity | Structured, claims: list[str] | None) -> Verification:
        """Look for counterexamples, with a progress bar."""
        from tether.assure.verify import as_simulator, claims_of, verify
        from tether.assure.verify.claims import select
        from tether.certificates import Structured

        constants = {name: getattr(self.constants, name) for name in ("cost_floor", "L_c", "L_f", "L_pi")}
        system = as_simulator(self.env, _region(self.region))
        select(claims_of(system, bounds, self.constants, self.rounds), claims or ())  # before the bar appears
        with shell.counting("verifying") as report:
            return verify(
                self.env,
                bounds,
                **constants,
                region=_region(self.region),
                rounds=self.rounds,
                lam=self.lam if isinstance(bounds, Structured) else None,
                claims=claims,
                search=self.search,
                seed=self.seed,
                report=report,
            )

    def show(
        self,
        found: Verification,
        bounds: Sensitivity | Structured,
        folder: Path,
        loosened: str | None = None,
    ) -> None:
        """Print what was found, and write the counterexamples; `loosened` names the bound that claims too much."""
        shell.console.print(found.table())
        shell.console.print(found.searched(), highlight=False, soft_wrap=True)
        for finding in found.refuted:
            name = " ".join(filter(None, ("counterexample", loosened, finding.claim)))
            path = folder / f"{name.replace(' ', '-')}.json"
            output.write_json(path, self._file(bounds, loosened, finding))
            shell.console.print(str(finding.counterexample), highlight=False, soft_wrap=True)
            shell.console.print(f"  Replay: tether verify --replay {shlex.quote(str(path))}", soft_wrap=True)

    def _file(
        self, bounds: Sensitivity | Structured, loosened: str | None, finding: Finding
    ) -> dict[str, Any]:
        from tether.assure.verify import Counterexample
        from tether.certificates import Structured

        assert finding.counterexample is not None
        if isinstance(bounds, Structured):
            told: dict[str, Any] = {"structured": loosened, "lam": self.lam}
        else:
            p = bounds.perturbation.to_dict()
            told = {"immediate": bounds.immediate, "carried": bounds.carried, "perturbation": p}
        point = isinstance(finding.counterexample, Counterexample)
        return {
            "kind": KIND,
            "system": self.name,
            "region": self.region,
            "bounds": told,
            "constants": {name: value for name, value in asdict(self.constants).items() if value is not None},
            "rounds": self.rounds,
            "counterexample" if point else "case": asdict(finding.counterexample),
        }


def _loosened(asked: Asked, loosen: str, claims: list[str] | None, folder: Path) -> int:
    """Check structures that claim too much of one bound each; 0 if every one is refuted, 1 if one is not."""
    known = asked.env.structure.loosenable
    chosen = known if loosen == "all" else tuple(each.strip() for each in loosen.split(","))
    for each in chosen:
        validate.choice("--loosen", each, (*known, "all"))
    found = {}
    for each in chosen:
        bounds = _structured(asked.env, each)
        found[each] = asked.verify(bounds, claims or _claims_about(asked.env, each))
        asked.show(found[each], bounds, folder, each)
    for each, verification in found.items():
        names = ", ".join(finding.claim for finding in verification.refuted)
        shell.console.print(
            f"{each} loosened by 5 %: " + (f"found, {names} refuted" if names else "NOT found")
        )
    shell.finish(folder, {"loosened": {each: verification.as_json() for each, verification in found.items()}})
    return int(any(verification.stands for verification in found.values()))


def _compiled(options: Options, name: str) -> int:
    """Compare what is compiled from a system's model with what happens; see `tether.assure.inclusions`."""
    from tether.assure.inclusions import LOOSEN, hostile_inclusions
    from tether.systems import registry
    from tether.systems.certified import certificate_of

    validate.choice("--loosen", options.loosen, (None, "all"))
    folder = output.prepare_folder(options.out)
    system = registry.find(name)
    env, horizon = system.env(), system.draw(0, 1).horizon
    lam = 1.0 if options.lam is None else options.lam
    certificate = certificate_of("compiled", env, env.contract(lam, 0.0, horizon))
    episodes = max(10, options.samples // horizon)
    found = hostile_inclusions(system, certificate, episodes, options.seed)
    table = Table(
        title=f"{name}, compiled, lam = {lam:g}: {episodes} episodes with each backup", box=SIMPLE_HEAD
    )
    table.caption = (
        "slack: smallest distance of the truth from the bound, as a share of it, where the bound counts"
    )
    for column in ("bound", "compared", "broken", "slack", f"{LOOSEN:.0%} less is"):
        table.add_column(column, justify="left" if column == "bound" else "right")
    for each in found.values():
        noticed = "found" if each.sharp else "NOT found" if each.slack < math.inf else "-"
        table.add_row(each.bound, f"{each.compared}", f"{each.broken}", f"{each.slack:.2g}", noticed)
    shell.console.print(table)
    shell.finish(
        folder, {"system": name, "lam": lam, "inclusions": [asdict(each) for each in found.values()]}
    )
    if options.loosen is None:
        return int(any(each.broken for each in found.values()))
    return int(any(not each.sharp and each.slack < math.inf for each in found.values()))


def _claims_about(env: Env, bound: str) -> list[str]:
    """The claims that are false if this bound, one of `Structure.loosenable`, is loosened."""
    from tether.assure.verify import Constants, as_simulator, claims_of

    gaps = [f"gap {i}" for i, name in enumerate(env.structure.gap_names) if name == bound]
    names = [each.name for each in claims_of(as_simulator(env), _structured(env, None), Constants(), 1)]
    return gaps or [name for name in names if name.split(" ")[0] == bound]


def _load(name: str, region: Mapping[str, tuple[float, float]]) -> tuple[Env, Simulator]:
    from tether.assure.verify import as_simulator
    from tether.systems import registry

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


def _random(systems: int, seed: int, search: Search, folder: Path) -> None:
    from tether.assure.exact_systems import check_search, study_table

    with shell.counting("systems", systems) as report:

        def keep(done: int, so_far: dict[str, Any]) -> None:
            report(done)
            shell.write_results(folder, so_far)

        study = check_search(systems, seed, search, keep)
    shell.console.print(study_table(study))
    shell.console.print(f"Results: {folder / 'results.json'}", soft_wrap=True)
    if any(row["refuted_at_truth"] for row in study["claims"]):
        raise typer.Exit(1)
