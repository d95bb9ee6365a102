"""The command `tether verify`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tether import _validate

if TYPE_CHECKING:
    from tether.certificates import Structured
    from tether.envs import Env
    from tether.sensitivity import Sensitivity
    from tether.verification import Constants, Finding, Search, System

console = Console()
KIND = "tether counterexample"


def command(
    system: Annotated[str | None, typer.Argument(help="carbon, inference, cooling, or random.")] = None,
    immediate: Annotated[float | None, typer.Option(help="Claim this `immediate`, cost per action.")] = None,
    carried: Annotated[float | None, typer.Option(help="Claim this `carried`, cost per action.")] = None,
    rho: Annotated[float | None, typer.Option(help="Claim p(n) = rho^n.")] = None,
    cost_floor: Annotated[float | None, typer.Option(help="Claim that no cost is below this.")] = None,
    l_c: Annotated[
        float | None, typer.Option("--L-c", help="Claim this Lipschitz constant of the cost.")
    ] = None,
    l_f: Annotated[float | None, typer.Option("--L-f", help="The same for the dynamics.")] = None,
    l_pi: Annotated[float | None, typer.Option("--L-pi", help="The same for the prior.")] = None,
    certificate: Annotated[
        str,
        typer.Option(help="lipschitz: the constants; structured: step, now, later, floor of the structure."),
    ] = "lipschitz",
    loosen: Annotated[
        str | None,
        typer.Option(help="structured: claim 5 % too much of one bound: now, later, floor, above or below."),
    ] = None,
    scale: Annotated[
        float, typer.Option(help="Claim all constants times this (the cost floor divided by it).")
    ] = 1.0,
    rounds: Annotated[int, typer.Option(help="Check p(1) to p(rounds).", min=1)] = 4,
    claims: Annotated[
        str | None, typer.Option(help="Only these claims, comma-separated: 'p(1),immediate'.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="Search elsewhere: 'backlog=0:8,action=0:10'.")] = None,
    systems: Annotated[int, typer.Option(help="random: number of systems, seeds 0, 1, ...", min=1)] = 50,
    samples: Annotated[int, typer.Option(help="Random points a claim.", min=64)] = 16384,
    generations: Annotated[
        int, typer.Option(help="Largest number of generations of evolution.", min=0)
    ] = 1000,
    replay: Annotated[
        Path | None, typer.Option(help="Compute a counterexample again from its file, and nothing else.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the search.", min=0)] = 0,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for results.json and counterexamples; made if not there.")
    ] = Path("out/verify"),
) -> None:
    """Try to refute every constant, or every bound of the structure, that the guard of a system relies on.

    Each claim is searched for a counterexample: random points, gradient ascent, differential evolution, in float64. A
    claim that stands is not proved. A refuted one comes with a small counterexample,
    `OUT/counterexample-CLAIM.json`. Exit code 1 if a claim is refuted, 0 if all stand, 2 for bad input.

    For instance `tether verify carbon --rho 0.225`, then `tether verify --replay
    'out/verify/counterexample-p(1).json'`. `tether verify random` checks the search itself, on random systems whose
    constants are known exactly.
    """
    from tether.experiments import output
    from tether.verification import Constants, Search, refute
    from tether.verification.claims import select

    if replay is not None:
        raise typer.Exit(_replay(replay))
    if system is None:
        raise ValueError(
            "which system? carbon, inference, cooling or random; for instance `tether verify carbon`"
        )
    _validate.number("--scale", scale, above=0.0)
    search = Search(samples=samples, generations=generations)
    folder = output.prepare_folder(out)
    if system == "random":
        _random(systems, seed, search, folder)
        return
    ranges = _region(region)
    env, checked = _load(system, ranges)
    _validate.choice("--certificate", certificate, ("lipschitz", "structured"))
    bounds: Sensitivity | Structured = _scaled(env.sensitivity, immediate, carried, rho, scale)
    if certificate == "structured":
        bounds = _structured(env, loosen)
    elif loosen is not None:
        raise ValueError("--loosen is for --certificate structured; constants are scaled by --scale")
    floor = env.cost_floor / scale if cost_floor is None else cost_floor
    L_c, L_f, L_pi = (None if each is None else each * scale for each in (l_c, l_f, l_pi))
    constants = Constants(cost_floor=floor, L_c=L_c, L_f=L_f, L_pi=L_pi)
    made = _claims(checked, bounds, constants, rounds)
    if claims is not None:
        made = select(made, [each.strip() for each in claims.split(",")])
    with _progress() as progress:
        task = progress.add_task("verifying", total=len(made))
        found = refute(
            checked,
            made,
            search,
            seed,
            lambda done, total, name: progress.update(task, completed=done, total=total, description=name),
        )
    console.print(found.table())
    console.print(found.searched(), highlight=False, soft_wrap=True)
    for finding in found.refuted:
        path = folder / f"counterexample-{finding.claim.replace(' ', '-')}.json"
        output.write_json(path, _file(system, region, bounds, constants, rounds, finding))
        console.print(str(finding.counterexample), highlight=False, soft_wrap=True)
        console.print(f"  Replay: tether verify --replay {shlex.quote(str(path))}", soft_wrap=True)
    content = found.as_json() | {"provenance": output.provenance(shlex.join(["tether", *sys.argv[1:]]))}
    output.write_json(folder / "results.json", content)
    console.print(f"Results: {folder / 'results.json'}", soft_wrap=True)
    if not found.stands:
        raise typer.Exit(1)


def _load(name: str, region: Mapping[str, tuple[float, float]]) -> tuple[Env, System]:
    from tether import envs
    from tether.verification import as_system

    known = {"carbon": envs.Carbon, "inference": envs.Inference, "cooling": envs.Cooling}
    if name not in known:
        raise ValueError(f"system must be carbon, inference, cooling or random, got {name!r}")
    env: Env = known[name]()
    return env, as_system(env, region)


def _structured(env: Env, loosen: str | None) -> Structured:
    """The system's structure; with `loosen`, one that claims 5 % too much of that bound."""
    from tether.certificates import Structured
    from tether.experiments.attack import BOUNDS, loosened

    structure = env.structure
    if loosen is not None:
        _validate.choice("--loosen", loosen, BOUNDS[structure.kind])
        structure = loosened(structure, loosen)
    return Structured(env.contract(0.0, 0.0), structure)


def _claims(system: System, bounds: Sensitivity | Structured, constants: Constants, rounds: int) -> Any:
    from tether.verification import claims_of

    return claims_of(system, bounds, constants, rounds)


def _scaled(
    known: Sensitivity, immediate: float | None, carried: float | None, rho: float | None, scale: float
) -> Sensitivity:
    """The constants as claimed."""
    from tether.sensitivity import Geometric, Sensitivity, geometric

    p = known.perturbation
    if not isinstance(p, Geometric):
        raise TypeError(f"--rho and --scale are for geometric perturbations, this system has {p!r}")
    return Sensitivity(
        (known.immediate if immediate is None else immediate) * scale,
        (known.carried if carried is None else carried) * scale,
        geometric((p.rho if rho is None else rho) * scale, p.scale),
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


def _file(
    system: str,
    region: str | None,
    bounds: Sensitivity | Structured,
    constants: Constants,
    rounds: int,
    finding: Finding,
) -> dict[str, Any]:
    from tether.certificates import Structured

    assert finding.counterexample is not None
    if isinstance(bounds, Structured):
        told: dict[str, Any] = {"structured": getattr(bounds.system, "bound", None)}
    else:
        p = bounds.perturbation.to_dict()
        told = {"immediate": bounds.immediate, "carried": bounds.carried, "perturbation": p}
    return {
        "kind": KIND,
        "system": system,
        "region": region,
        "bounds": told,
        "constants": {name: value for name, value in asdict(constants).items() if value is not None},
        "rounds": rounds,
        "counterexample": asdict(finding.counterexample),
    }


def _replay(path: Path) -> int:
    """Compute both sides again; 1 if the claim is refuted there, 0 if not."""
    from tether.verification import Constants
    from tether.verification import replay as both_sides
    from tether.verification.claims import select
    from tether.verification.verdict import bounds_from_dict

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["kind"] != KIND:
            raise ValueError(f"kind {content['kind']!r}")
        saved = content["counterexample"]
        env, checked = _load(content["system"], _region(content["region"]))
        told, constants = content["bounds"], Constants(**content["constants"])
        bounds = _structured(env, told["structured"]) if "structured" in told else bounds_from_dict(told)
        made = _claims(checked, bounds, constants, content["rounds"])
        claim, point = select(made, [saved["claim"]])[0], saved["point"]
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a counterexample that `tether verify` wrote: {error}") from error
    example, refuted = both_sides(claim, point)
    console.print(str(example), highlight=False, soft_wrap=True)
    console.print(
        "Refuted: the point is in the region and the claim is false there." if refuted else "Not refuted."
    )
    return int(refuted)


def _random(systems: int, seed: int, search: Search, folder: Path) -> None:
    from tether.experiments import output
    from tether.experiments.exact_systems import check_search, study_table

    provenance = output.provenance(shlex.join(["tether", *sys.argv[1:]]))
    with _progress() as progress:
        task = progress.add_task("systems", total=systems)

        def keep(done: int, so_far: dict[str, Any]) -> None:
            progress.update(task, completed=done)
            output.write_json(folder / "results.json", so_far | {"provenance": provenance})

        study = check_search(systems, seed, search, keep)
    console.print(study_table(study))
    console.print(f"Results: {folder / 'results.json'}", soft_wrap=True)
    if any(row["refuted_at_truth"] for row in study["claims"]):
        raise typer.Exit(1)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
