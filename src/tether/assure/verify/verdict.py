"""`tether.verify`: try to refute each claim that a guard relies on, and show the smallest counterexample."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import numpy as np

from tether.assure.cases import Case, GuardedCase
from tether.assure.falsify import falsify
from tether.assure.verify.box import Range
from tether.assure.verify.claims import Claim, Constants, Lipschitz, Point, select, standard_claims
from tether.assure.verify.search import Search, largest
from tether.assure.verify.shrinking import shrink
from tether.assure.verify.simulators import EnvSimulator, Simulator, as_simulator
from tether.assure.verify.structured import says, structured_claims
from tether.certificates import LipschitzCertificate, Structured
from tether.core import validate
from tether.core.sensitivity import Sensitivity, perturbation_from_dict
from tether.systems.base import Env

if TYPE_CHECKING:
    from rich.table import Table

Verdict = Literal["stands", "refuted", "not claimed"]


@dataclass(frozen=True)
class Counterexample:
    """A point at which a claim is false; as few entries as possible differ, and numbers are round."""

    claim: str
    says: str
    claimed: float
    point: dict[str, dict[str, float]]
    """For each entry of the point its numbers, by name."""
    effect: float
    """What happens (the left side)."""
    bound: float
    """What the claim allows (the right side), claimed * cause."""
    lower: bool = False
    """Whether the claim is a lower bound: `effect` is then below `bound`, not above."""

    def __str__(self) -> str:
        lines = [f"{self.claim}: {self.says} is false for the claimed {self.claimed:.6g}"]
        lines += [
            f"  {entry:<13}" + ", ".join(f"{name} = {value:.12g}" for name, value in values.items())
            for entry, values in self.point.items()
            if values
        ]
        sign = "<" if self.lower else ">"
        lines.append(f"  {self.effect:.9g} {sign} {self.bound:.9g}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Finding:
    """What the search found out about one claim."""

    claim: str
    says: str
    claimed: float | None
    largest: float
    """The largest ratio found; for the cost floor the smallest cost found."""
    verdict: Verdict
    stage: str
    """Which part of the search found it."""
    evaluations: int
    point: dict[str, dict[str, float]]
    """Where it was found; empty if an episode did."""
    counterexample: Counterexample | Case | GuardedCase | None
    """A point of the region, or what an episode came to."""

    @property
    def head_room(self) -> float | None:
        """Share of the claimed value by which what was found stays on the safe side of it; negative if refuted."""
        if self.claimed is None or self.claimed == 0.0:
            return None
        return abs(1.0 - self.largest / self.claimed) * (1.0 if self.verdict == "stands" else -1.0)


@dataclass(frozen=True)
class Verification:
    """The verdict on every claim; `print` it."""

    system: str
    norm: str
    region: dict[str, str]
    """Where was searched: states, actions, draws of each round."""
    gradients: bool
    findings: tuple[Finding, ...]

    @property
    def refuted(self) -> tuple[Finding, ...]:
        """The claims with a counterexample."""
        return tuple(finding for finding in self.findings if finding.verdict == "refuted")

    @property
    def stands(self) -> bool:
        """Whether no claim was refuted. It is no proof: the search may have missed a counterexample."""
        return not self.refuted

    def __getitem__(self, claim: str) -> Finding:
        for finding in self.findings:
            if finding.claim == claim:
                return finding
        raise KeyError(f"no claim {claim!r}; there are {', '.join(each.claim for each in self.findings)}")

    def table(self) -> Table:
        """One row a claim."""
        from rich.table import Table

        table = Table(
            "claim", "claimed", "found", "head-room", "verdict", "by", title=f"Claims about {self.system}"
        )
        for each in self.findings:
            room = "" if each.head_room is None else f"{each.head_room:.1%}"
            claimed = "" if each.claimed is None else f"{each.claimed:.6g}"
            style = "bold red" if each.verdict == "refuted" else None
            table.add_row(
                each.claim, claimed, f"{each.largest:.6g}", room, each.verdict, each.stage, style=style
            )
        return table

    def searched(self) -> str:
        """The region in words."""
        lines = [f"Searched ({self.norm} norm, {'with' if self.gradients else 'without'} gradients):"]
        return "\n".join(lines + [f"  {name:<8} {ranges}" for name, ranges in self.region.items()])

    def __str__(self) -> str:
        rows = [f"Claims about {self.system}"]
        for each in self.findings:
            claimed = "-" if each.claimed is None else f"{each.claimed:.6g}"
            rows.append(f"  {each.claim:<13} claimed {claimed:<9} found {each.largest:<12.6g} {each.verdict}")
        examples = [str(each.counterexample) for each in self.refuted]
        return "\n".join([*rows, self.searched(), *examples])

    def as_json(self) -> dict[str, Any]:
        """Plain numbers and strings."""
        return {
            "system": self.system,
            "norm": self.norm,
            "region": self.region,
            "gradients": self.gradients,
            "stands": self.stands,
            "findings": [asdict(each) | {"head_room": each.head_room} for each in self.findings],
        }


def verify(
    system: Env | Simulator,
    bounds: Sensitivity | LipschitzCertificate | Any = None,
    *,
    cost_floor: float | None = None,
    L_c: Lipschitz = None,
    L_f: Lipschitz = None,
    L_pi: float | None = None,
    region: Mapping[str, Range] | None = None,
    rounds: int = 4,
    lam: Range | None = None,
    claims: Sequence[str] | None = None,
    search: Search | None = None,
    seed: int = 0,
    report: Callable[[int, int, str], None] = lambda _done, _total, _name: None,
) -> Verification:
    """Try to refute each claim about a system separately.

    Claims about constants are defined in `tether.assure.verify.claims`, those of a `Structured` certificate in
    `tether.assure.verify.structured`. A claim that stands is not proved: it survived random points, gradient ascent and
    differential evolution. Those of a structure are put to whole episodes first (`tether.assure.falsify`), unless
    a `region` is given, which an episode might leave.

    Args:
        system: An environment, or what `tether.assure.verify.functions` or `gymnasium_simulator` made.
        bounds: What is claimed: a `Sensitivity`, a certificate (its cost floor counts, too), or any object with a
            method `claims(system)`. Without it, an environment's own `sensitivity` and `cost_floor`.
        cost_floor: Claimed smallest cost.
        L_c: Claimed Lipschitz constant of the cost, for state and action, or (state, action) with None for none.
        L_f: The same for the dynamics.
        L_pi: The same for the prior, in the state.
        region: Ranges to search, by name: entries of the environment's state, its series, and `"action"`.
        rounds: How far p is followed: p(1) to p(rounds), carried (0) to carried (rounds - 1); a structure's `later` in
            the search of the region (episodes go to the horizon).
        lam: Structured certificates: (low, high) of the contracts that are looked at; only that of the certificate
            without it.
        claims: Names of the claims to look at; all without it.
        search: How hard to look.
        seed: Of the search.
        report: Called with (claims done, claims in all, name of the next) before each claim and at the end.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> smaller = tether.Sensitivity(31.0, 2.875, tether.geometric(0.2))
        >>> quick = Search(samples=512, steps=10, generations=10)
        >>> print(tether.verify(env, smaller, claims=["p(1)"], search=quick)["p(1)"].counterexample)
        p(1): ||x_1 - x'_1|| <= p(1) ||x - x'|| is false for the claimed 0.2
          state        backlog = ...
          other state  backlog = ...
          draw 1       demand = ..., renewables = 0, efficiency_noise = ..., drop_rate = ...
          ... > ...
    """
    # Above 60 lines for its arguments' documentation.
    if isinstance(system, Env):
        cost_floor = system.cost_floor if cost_floor is None else cost_floor
    constants = Constants(cost_floor=cost_floor, L_c=L_c, L_f=L_f, L_pi=L_pi)
    work = Verifier.of(system, bounds, constants, region, rounds, lam, claims, search, seed)
    if work.plays:
        report(0, len(work.claims), "episodes")
    played = work.play()
    return work.joined([work.refute(work.names, played, report)], played)


class Played(NamedTuple):
    """What whole episodes found out about the bounds of a structure."""

    cases: Mapping[str, Case | GuardedCase]
    """The worst case for each bound."""
    tried: int
    """Number of cases."""
    broken: frozenset[str]
    """Bounds that are refuted."""


@dataclass(frozen=True, eq=False)
class Verifier:
    """`verify` in parts that can be computed apart: episodes first, then each claim."""

    system: Env | Simulator
    checked: Simulator
    bounds: Any
    claims: list[Claim]
    """Those that are looked at."""
    every: bool
    """Whether that is all of them."""
    plays: bool
    """Whether whole episodes are played: those of a structure, and without a region that they might leave."""
    lam: Range | None
    search: Search
    seed: int

    @classmethod
    def of(
        cls,
        system: Env | Simulator,
        bounds: Any,
        constants: Constants,
        region: Mapping[str, Range] | None,
        rounds: int,
        lam: Range | None,
        claims: Sequence[str] | None,
        search: Search | None,
        seed: int,
    ) -> Verifier:
        """See `verify`."""
        checked = as_simulator(system, region)
        if isinstance(system, Env):
            bounds = system.sensitivity if bounds is None else bounds
        made = claims_of(checked, bounds, constants, rounds, lam)
        chosen = made if claims is None else select(made, claims)
        plays = isinstance(bounds, Structured) and isinstance(system, Env) and not region
        return cls(system, checked, bounds, chosen, claims is None, plays, lam, search or Search(), seed)

    @property
    def names(self) -> list[str]:
        """Of the claims."""
        return [claim.name for claim in self.claims]

    def play(self) -> Played | None:
        """What episodes find out; None if none are played."""
        if not self.plays:
            return None
        assert isinstance(self.system, Env)
        found = falsify(
            self.system,
            self.bounds.system,
            contract=self.bounds.contract if self.lam is None else None,
            count=2 * self.search.samples,
            guarded=self.search.samples // 256,
            seed=self.seed,
        )
        return Played(dict(found.cases), found.tried, frozenset(found.broken))

    def refute(
        self,
        names: Sequence[str],
        played: Played | None,
        report: Callable[[int, int, str], None] = lambda _done, _total, _name: None,
    ) -> Verification:
        """Search for counterexamples to these claims, but for those that episodes have refuted."""
        refuted = frozenset() if played is None else played.broken
        chosen = [claim for claim in self.claims if claim.name in names and claim.name not in refuted]
        return refute(self.checked, chosen, self.search, self.seed, report)

    def joined(self, parts: Sequence[Verification], played: Played | None) -> Verification:
        """The verdict on every claim, from what was found out about each."""
        found = replace(parts[0], findings=tuple(finding for part in parts for finding in part.findings))
        if played is None:
            return found
        return _with_episodes(found, played, [*self.names, *(["promise", "breach"] if self.every else [])])


def claims_of(
    system: Simulator,
    bounds: Sensitivity | LipschitzCertificate | Any,
    constants: Constants,
    rounds: int = 4,
    lam: Range | None = None,
) -> list[Claim]:
    """The claims that `bounds` makes about the system, and those of `constants` (see `verify`)."""
    validate.count("rounds", rounds)
    _check_constants(constants)
    if hasattr(bounds, "claims"):
        return list(bounds.claims(system))
    if isinstance(bounds, Structured):
        if not isinstance(system, EnvSimulator):
            raise TypeError("a structured certificate is checked on a tether.envs.Env, which it is about")
        contract = bounds.contract
        ends = (contract.lam, contract.lam) if lam is None else lam
        return structured_claims(system, bounds.system, contract.cost_floor, rounds, ends)
    if isinstance(bounds, LipschitzCertificate):
        constants = replace(constants, cost_floor=bounds.contract.cost_floor)
        bounds = bounds.bounds
    if bounds is not None and not isinstance(bounds, Sensitivity):
        raise TypeError(
            "bounds must be a tether.Sensitivity, a certificate, or have a method claims(system); "
            f"got {type(bounds).__name__}"
        )
    if bounds is not None:
        constants = replace(
            constants,
            immediate=bounds.immediate,
            carried=bounds.carried,
            perturbation=bounds.perturbation,
        )
    return standard_claims(system, constants, rounds)


def refute(
    system: Simulator,
    claims: Sequence[Claim],
    search: Search | None = None,
    seed: int = 0,
    report: Callable[[int, int, str], None] = lambda _done, _total, _name: None,
) -> Verification:
    """Search for a counterexample to each claim; `verify` for claims that are at hand."""
    seed = validate.count("seed", seed, minimum=0)
    findings = []
    with jax.enable_x64(True):
        for done, claim in enumerate(claims):
            report(done, len(claims), claim.name)
            findings.append(_finding(claim, search or Search(), seed))
        report(len(claims), len(claims), "")
    region = {"states": str(system.states), "actions": str(system.actions), "draws": str(system.draws)}
    return Verification(system.name, system.norm, region, system.traceable, tuple(findings))


def judge(claim: Claim, point: Point) -> bool:
    """Whether the point refutes the claim, computed in float64."""
    with jax.enable_x64(True):
        return claim.refuted_by(point)


def replay(claim: Claim, point: Mapping[str, Mapping[str, float]]) -> tuple[Counterexample, bool]:
    """Compute both sides of a claim at a point again, and whether it refutes the claim.

    Args:
        claim: With a claimed value.
        point: As in `Counterexample.point`.
    """
    if claim.claimed is None:
        raise ValueError(f"nothing is claimed about {claim.name}; there is nothing to refute")
    values = {}
    for name, box in claim.box.items():
        given = point.get(name, {})
        missing = [label for label in box.names if label not in given]
        if missing:
            raise ValueError(f"the point of {claim.name} lacks {missing[0]!r} in {name!r}")
        values[name] = np.array([validate.number(label, given[label]) for label in box.names])
        if not box.holds(values[name]):
            raise ValueError(f"{name} = {values[name].tolist()} is outside the region of {claim.name}: {box}")
    with jax.enable_x64(True):
        return _example(claim, values), claim.refuted_by(values)


def _finding(claim: Claim, search: Search, seed: int) -> Finding:
    found = largest(claim, search, seed)
    ratio = float(claim.ratio(found.point))
    sign = -1.0 if claim.lower else 1.0
    refuted = claim.refuted_by(found.point)
    example = _example(claim, shrink(claim, found.point)) if refuted else None
    verdict: Verdict = "not claimed" if claim.claimed is None else "refuted" if refuted else "stands"
    return Finding(
        claim=claim.name,
        says=claim.says,
        claimed=None if claim.claimed is None else sign * claim.claimed,
        largest=sign * ratio,
        verdict=verdict,
        stage=found.stage,
        evaluations=found.evaluations,
        point=_named(claim, found.point),
        counterexample=example,
    )


def _example(claim: Claim, point: Point) -> Counterexample:
    assert claim.claimed is not None
    sides = claim.sides(point)
    sign = -1.0 if claim.lower else 1.0
    return Counterexample(
        claim=claim.name,
        says=claim.says,
        claimed=sign * claim.claimed,
        point=_named(claim, point),
        effect=sign * float(sides.effect),
        bound=sign * claim.claimed * float(sides.cause),
        lower=claim.lower,
    )


def _named(claim: Claim, point: Point) -> dict[str, dict[str, float]]:
    return {
        name: dict(zip(box.names, np.asarray(point[name], dtype=np.float64).tolist(), strict=True))
        for name, box in claim.box.items()
    }


def _with_episodes(found: Verification, played: Played, names: Sequence[str]) -> Verification:
    """What was found of these claims, in the region and in episodes."""
    known = {finding.claim: finding for finding in found.findings}
    findings = []
    for name in names:
        finding = known.get(name) or Finding(name, says(name), 0.0, -math.inf, "stands", "", 0, {}, None)
        case = played.cases.get(name)
        findings.append(finding if case is None else _worse(finding, case, played.tried))
    return replace(found, findings=tuple(findings))


def _worse(finding: Finding, case: Case | GuardedCase, tried: int) -> Finding:
    """A finding, with the case of an episode if that is worse than what was found so far."""
    finding = replace(finding, evaluations=finding.evaluations + tried)
    amount = case.amount - case.round_off
    if amount <= finding.largest:
        return finding
    verdict: Verdict = "refuted" if case.broken else "stands"
    return replace(
        finding,
        largest=amount,
        verdict=verdict,
        stage="episodes",
        point={},
        counterexample=case if case.broken else None,
    )


def _check_constants(constants: Constants) -> None:
    """Refuse values that no constant can have."""
    named = {"cost_floor": constants.cost_floor, "L_pi": constants.L_pi}
    for name in ("L_c", "L_f"):
        value = getattr(constants, name)
        named |= (
            dict(zip((f"{name} (state)", f"{name} (action)"), value, strict=True))
            if isinstance(value, tuple)
            else {name: value}
        )
    for name, value in named.items():
        if value is not None:
            validate.number(name, value, minimum=0.0)


def bounds_from_dict(description: Mapping[str, Any]) -> Sensitivity:
    """The `Sensitivity` that a replay file describes."""
    p = perturbation_from_dict(description["perturbation"])
    return Sensitivity(description["immediate"], description["carried"], p)
