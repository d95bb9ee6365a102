"""What `falsify` found: the worst case for each bound, in words, in plain numbers, and to be played again."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tether.assure.compare import Draw, Plant, PlantState, Situation, compare
from tether.certificates.structure import Structure
from tether.core.audit import audit
from tether.core.certificate import Action
from tether.core.contract import Contract
from tether.core.ops import NUMPY, Number
from tether.simulate.eager import eager

if TYPE_CHECKING:
    from tether.systems.base import Env

ROUND_OFF = 1e-11
"""Share of the numbers compared by which a bound may be exceeded: what the arithmetic of the system can do."""
Numbers = dict[str, Any]
"""By name a number, or a list of numbers."""


@dataclass(frozen=True)
class Case:
    """A round, an action and what is drawn from there on, with what became of one bound."""

    bound: str
    """Its name in `tether.assure.compare`."""
    amount: float
    """How much more there was than the bound says, cost units (`gap`: state units, `backup`: action units)."""
    round_off: float
    """What of that may be round-off, in the same units."""
    round: int
    """The round h that is looked at, counted from 1."""
    until: int
    """The round in which it showed."""
    lam: float
    """Of the contract."""
    plan: int
    """Number of the backup that is played from round h + 1 on; 0 is the prior."""
    own: Numbers
    """State before round h, by the names of the environment's state."""
    prior: Numbers
    """State of the plant that the prior has had from the start."""
    gaps: list[Any]
    """What the structure was told, as its `refine` gives it."""
    action: Action
    """What is played in round h, a number or a list."""
    prior_action: Action
    """What the prior would play there."""
    draws: list[Numbers]
    """What is drawn, by series, in round h and in each one after it up to the horizon."""
    low: Number
    """Lower bounds of the actions, a number or a list; None for none."""
    high: Number
    """Upper bounds of the actions, likewise."""

    @property
    def broken(self) -> bool:
        """Whether the bound is false here, by more than round-off."""
        return not self.amount <= self.round_off

    def replay(self, env: Env, structure: Structure) -> Case:
        """The same case played again by NumPy, one round after the other."""
        kind = type(env.initial())
        own, prior = (kind(**_arrays(each)) for each in (self.own, self.prior))
        plant = Plant(
            lambda state, drawn: _looked(env, state, drawn),
            lambda state, drawn, action: _stepped(env, state, drawn, action),
            env.cost_floor,
            end_of(self.low, -math.inf),
            end_of(self.high, math.inf),
        )
        situation = Situation(
            own,
            prior,
            tuple(_array(each) for each in self.gaps),
            [_arrays(each) for each in self.draws],
            _array(self.action),
            self.lam,
            len(self.draws),
        )
        with np.errstate(all="ignore"):
            found = compare(structure, plant, situation, self.plan, NUMPY)
        return replace(
            self,
            amount=float(found.excess[self.bound]),
            round_off=ROUND_OFF * float(found.size[self.bound]),
            until=self.round + int(found.until) if self.bound.startswith("later") else self.until,
        )

    def __str__(self) -> str:
        lines = [f"{self.bound}: {self._says()}"]
        lines.append(
            f"  own state {_words(self.own)}; the prior's {_words(self.prior)}; gaps {_short(self.gaps)}"
        )
        for i, drawn in enumerate(self.draws[: self.until - self.round + 1]):
            lines.append(f"  round {self.round + i} draws {_words(drawn)}")
        return "\n".join(lines)

    def _says(self) -> str:
        """What happened, in words."""
        where = (
            f"in round {self.round}, with action {_short(self.action)} (prior {_short(self.prior_action)})"
        )
        kind = self.bound.split(" ")[0]
        if kind in ("now", "later"):
            rest = f" and the {self.bound[len(kind) + 2 : -1]} from then on" if kind == "later" else ""
            return (
                f"{where}{rest} and lam = {self.lam:g}, the excess up to round {self.until} is "
                f"{self.amount:.6g} above its bound"
            )
        if kind == "gap":
            return f"{where}, the gap of the next round is {self.amount:.6g} larger than the structure says"
        if kind == "floor":
            return f"{where}, the prior's cost is {self.amount:.6g} below the floor"
        if kind == "cost":
            return f"{where}, a cost is {self.amount:.6g} below the contract's floor"
        if kind == "ceiling":
            return f"{where}, the cost is {self.amount:.6g} above the ceiling"
        if kind == "backup":
            return f"in round {self.round}, its action is {self.amount:.6g} outside the bounds of the actions"
        what = "the observation" if kind == "admits" else "the system's own prior"
        return f"in round {self.round}, {what} is refused, which would be an assumption breach"


@dataclass(frozen=True)
class GuardedCase:
    """An episode through the online guard, and what became of the promise."""

    bound: str
    """`promise`: J_h <= (1 + lam) J_h(prior) + h b; or `breach`: nothing is taken for an assumption breach."""
    amount: float
    """`promise`: by how much it is broken at most, cost units; `breach`: 1 if something is."""
    round_off: float
    """What of that may be round-off."""
    round: int
    """The round in which it showed, counted from 1."""
    detail: str
    """What the guard said."""
    contract: Numbers
    """lam, b, horizon and cost_floor."""
    draws: list[Numbers]
    """What is drawn in each round."""
    proposals: list[Any]
    """What is proposed in each round; null is no proposal, on which the guard plays the backup that it carries."""
    low: Number
    """Lower bounds of the actions, a number or a list; None for none."""
    high: Number
    """Upper bounds of the actions, likewise."""

    @property
    def broken(self) -> bool:
        """Whether it is false here, by more than round-off."""
        return not self.amount <= self.round_off

    def replay(self, env: Env, structure: Structure) -> GuardedCase:
        """The same episode again."""
        contract = Contract(**self.contract)
        ends, proposals = (self.low, self.high), self.proposals
        both = play_guarded(env, structure, contract, self.draws, lambda h, _wish: proposals[h], ends)
        return next(each for each in both if each.bound == self.bound)

    def __str__(self) -> str:
        lam, b = self.contract["lam"], self.contract["b"]
        through = f"through the online guard with lam = {lam:g}, b = {b:g}"
        if self.bound == "breach":
            return f"breach: {through}, round {self.round} was taken for an assumption breach: {self.detail}"
        return f"promise: {through}, the cost up to round {self.round} is {self.amount:.6g} above what was promised"


@dataclass(frozen=True, eq=False, repr=False)
class Falsified(Mapping[str, float]):
    """What a search for counterexamples found: by bound, the largest amount by which it is exceeded.

    `print` it to read which bounds are broken, and where. As a mapping it gives the amounts, cost or state units; an
    amount of at most round-off is no counterexample.
    """

    env: Env
    structure: Structure
    cases: Mapping[str, Case | GuardedCase]
    """The worst case for each bound."""
    tried: int
    """Number of cases."""
    guarded: int
    """Number of episodes through the online guard."""

    def __getitem__(self, bound: str) -> float:
        if bound not in self.cases:
            raise KeyError(f"no bound {bound!r}; there are {', '.join(self.cases)}")
        return self.cases[bound].amount

    def __iter__(self) -> Iterator[str]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)

    def __repr__(self) -> str:
        return f"Falsified(broken={self.broken}, tried={self.tried}, guarded={self.guarded})"

    @property
    def broken(self) -> tuple[str, ...]:
        """The bounds with a counterexample."""
        return tuple(name for name, case in self.cases.items() if case.broken)

    @property
    def holds(self) -> bool:
        """Whether no counterexample was found. It is no proof."""
        return not self.broken

    def replay(self, bound: str) -> Case | GuardedCase:
        """The worst case for a bound, played again by NumPy alone."""
        self[bound]
        return self.cases[bound].replay(self.env, self.structure)

    def __str__(self) -> str:
        name, looked = (
            type(self.structure).__name__,
            f"{self.tried} cases and {self.guarded} guarded episodes",
        )
        if self.holds:
            return f"{name}: no counterexample in {looked}; that is no proof."
        lines = [f"{name}: {len(self.broken)} of {len(self)} bounds are broken ({looked})."]
        return "\n".join([*lines, *(str(self.cases[bound]) for bound in self.broken)])


def play_guarded(
    env: Env,
    structure: Structure,
    contract: Contract,
    draws: Sequence[Mapping[str, Any]],
    propose: Callable[[int, Any], Any],
    ends: tuple[Any, Any],
) -> tuple[GuardedCase, GuardedCase]:
    """Play an episode through the online guard, and the prior on the same draws; (promise, breach).

    `propose(h, wish)` is what is proposed in round h, counted from 0, where the prior would play `wish`; or None.
    """
    from tether.certificates.structured import Structured
    from tether.core.guard import AssumptionBreach, Guard

    low, high = end_of(ends[0], -math.inf), end_of(ends[1], math.inf)
    # The plant computes in float64, so every digit counts.
    guard = Guard(Structured(contract, structure), env.prior, low, high, env.norm, resolution=0.0)
    series = {name: [_array(each[name]) for each in draws] for name in env.drawn_names}
    proposals: list[Any] = []

    def policy(observation: Any) -> Any:
        proposals.append(propose(len(proposals), env.prior(observation)))
        return proposals[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionBreach)
        costs = [turn.cost for turn in eager(env, series, policy, guard)]
    prior_costs = [turn.cost for turn in eager(env, series, env.prior)]
    verdict = audit([costs], [prior_costs], contract)
    worst = int(np.argmin(verdict.margins[0]))
    told = {
        "contract": asdict(contract), "draws": [plain(each) for each in draws],
        "proposals": [plain(each) for each in proposals], "low": plain_end(ends[0]), "high": plain_end(ends[1]),
    }  # fmt: skip
    size = float(verdict.bounds[0, worst] + np.max(prior_costs) + structure.scale)
    promise = GuardedCase(
        "promise", -float(verdict.margins[0, worst]), ROUND_OFF * size, worst + 1, "", **told
    )
    breach = guard.breach
    at, detail = (contract.horizon, "") if breach is None else (breach.round, breach.detail)
    return promise, GuardedCase("breach", float(breach is not None), 0.5, at, detail, **told)


def _looked(env: Env, state: PlantState, drawn: Draw) -> tuple[Any, Any]:
    observation = env.observation(state, drawn)
    return observation, env.prior(observation)


def _stepped(env: Env, state: PlantState, drawn: Draw, action: Action) -> tuple[Any, Any]:
    step = env.step(state, drawn, action)
    return step.cost, step.state


def plain(values: Any) -> Any:
    """Arrays as numbers and lists, fit for JSON; in mappings and sequences too."""
    if isinstance(values, Mapping):
        return {name: plain(each) for name, each in values.items()}
    if values is None or isinstance(values, str):
        return values
    return (
        [plain(each) for each in values] if isinstance(values, list | tuple) else np.asarray(values).tolist()
    )


def plain_end(values: Any) -> Any:
    """A bound of the actions, or a list of them, with None where it is infinite: fit for JSON."""
    if isinstance(values, list | tuple) or np.ndim(values) > 0:
        return [plain_end(each) for each in values]
    return float(values) if values is not None and math.isfinite(values) else None


def end_of(values: Any, infinite: float) -> Any:
    """The opposite of `plain_end`."""
    if isinstance(values, list):
        return np.array([end_of(each, infinite) for each in values])
    return infinite if values is None else values


def _array(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64)


def _arrays(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _array(each) for name, each in values.items()}


def _short(values: Any) -> str:
    if isinstance(values, list | tuple):
        return f"({', '.join(_short(each) for each in values)})"
    return f"{values:.6g}"


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_short(each)}" for name, each in values.items())
