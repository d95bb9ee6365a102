"""Certificates compiled from a model; what they know is in `tether.certificates.compiled_structure`.

The online guard calls the same functions as the rollout: each step of the protocol is compiled by JAX once, in float64.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates.account import Owed, StructuredState, Taken
from tether.certificates.boundary import with_slope
from tether.certificates.cells import Gaps, Step, rounded
from tether.certificates.checked import check
from tether.certificates.compiled_structure import CompiledStructure, Precision
from tether.certificates.model import Model
from tether.certificates.online import Layout, Programs, layout_of, packed, unpacked
from tether.certificates.structure import Round
from tether.certificates.structured import Structured
from tether.core import saved
from tether.core.certificate import Action, Box, Choice, Observation, Outcome, Weighed
from tether.core.contract import Contract
from tether.core.jax_ops import online_jax_ops
from tether.core.ops import NUMPY, Number, Ops
from tether.core.program_cache import keep_programs


@dataclass(frozen=True)
class Compiled(Structured):
    """A certificate compiled from a model; `compile` makes it."""

    long: ClassVar[bool] = True
    """Whether a program that plays through it is long, see `tether.core.compiler`."""
    lanes: ClassVar[int] = 512
    """Episodes that a rollout plays at once in a core."""

    @property
    def online_ops(self) -> Ops:
        """States are NumPy arrays; JAX computes with them."""
        return NUMPY

    def start(self, ops: Ops = NUMPY, zero: Number = 0.0) -> Any:
        """See `Structured.start`."""
        if ops is not NUMPY:
            return super().start(ops, zero)
        return self._online("start", zero)

    def open(self, state: Any, observation: Observation, ops: Ops = NUMPY, epsilon: float = 0.0) -> Any:
        """See `Structured.open`; what no draw explains is a breach."""
        if ops is NUMPY:  # computed with what is asked of it, in one program
            return Waiting(state, _copied(observation), epsilon)
        opened = super().open(self._unpacked(state), observation, ops, epsilon)
        contradicted = ops.logical_not(opened.gaps.possible)  # type: ignore[attr-defined]
        return opened._replace(breached=ops.logical_or(opened.breached, contradicted))

    def choose(self, opened: Any, proposal: Action, prior: Action, box: Box, ops: Ops = NUMPY) -> Choice:
        """See `Structured.choose`."""
        if ops is NUMPY:
            given = (self._entry(each) for each in (proposal, prior))
            found: Choice = self._online("choose", opened, *given, *box[:2], norm=box.norm)
            return found if np.shape(found.action) == np.shape(prior) else _as_number(found)
        return super().choose(opened, proposal, prior, box, ops)

    def _share(
        self,
        opened: Any,
        now: Round,
        start: Action,
        wish: Action,
        plans: tuple[int, ...],
        ops: Ops,
    ) -> Number:
        """See `Structured._share`; a learner's derivative comes from differences."""
        fixed = ops.fixed((opened, now, start, wish))
        searched = fixed[0]._replace(epsilon=opened.epsilon)  # a plain number
        found = super()._share(searched, *fixed[1:], plans, ops)
        structure: Any = self.system
        box = [structure.model.box(name) for name in ("state", "action")]

        unit = self._unit_round_off(opened.epsilon)

        def excess(point: tuple[Any, Any], given: Any) -> Any:
            traced, now = given
            seen = point[0], now.seen[1]
            return self._least(traced, unit, now._replace(seen=seen), point[1], plans, ops)

        ways = opened.seen[0], start, wish
        share: Number = with_slope(found, excess, ways, opened.slack, (opened, now), box)
        return share

    def _ends(self, action: Action) -> tuple[Any, Any]:
        """See `Ways._ends`; in the type of the action, as a compiler may keep what it was first given."""
        dtype = jnp.asarray(action).dtype
        return rounded(self.system.low, dtype, 1.0), rounded(self.system.high, dtype, -1.0)

    def backup_action(self, opened: Any, prior: Action, box: Box, ops: Ops = NUMPY) -> Action:
        """See `Structured.backup_action`."""
        if ops is NUMPY:
            found = self._online("backup_action", opened, self._entry(prior), *box[:2], norm=box.norm)
            return found if np.shape(found) == np.shape(prior) else float(found[0])
        return super().backup_action(opened, prior, box, ops)

    def update(self, state: Any, taken: Any, outcome: Outcome, ops: Ops = NUMPY) -> Any:
        """See `Structured.update`."""
        return self._closing("update", super().update, state, taken, outcome, ops)

    def defer(self, state: Any, taken: Any, outcome: Outcome, ops: Ops = NUMPY) -> Any:
        """See `Structured.defer`."""
        return self._closing("defer", super().defer, state, taken, outcome, ops)

    def settle(self, state: Any, owed: Any, outcome: Outcome, ops: Ops = NUMPY) -> Any:
        """See `Structured.settle`."""
        return self._closing("settle", super().settle, state, owed, outcome, ops)

    def _closing(self, method: str, close: Any, state: Any, taken: Any, outcome: Outcome, ops: Ops) -> Any:
        """`close` itself in a compiled program; online the program of that name, with what it makes use of."""
        if ops is not NUMPY:
            return close(state, taken, outcome, ops)
        kept = Outcome(outcome.cost, epsilon=outcome.epsilon)
        if outcome.applied is None:
            return self._online(method, state, taken, kept)
        if outcome.box is None:
            raise ValueError("Outcome.applied needs Outcome.box: the actions that there are")
        box, kept = outcome.box, kept._replace(applied=self._entry(outcome.applied))
        return self._online(f"{method}_applied", state, taken, kept, *box[:2], norm=box.norm)

    def _entry(self, action: Action) -> Action:
        """An action as the model has it: one of a single entry is a number to a guard."""
        structure: Any = self.system
        return np.reshape(action, (1,)) if structure.model.shapes[2] == (1,) else action

    def update_applied(self, state: Any, taken: Any, outcome: Outcome, box: Box, ops: Ops) -> Any:
        """`update` where something else was applied, of the actions in the box."""
        return super().update(state, taken, outcome._replace(box=box), ops)

    def defer_applied(self, state: Any, taken: Any, outcome: Outcome, box: Box, ops: Ops) -> Any:
        """`defer` where something else was applied, of the actions in the box."""
        return super().defer(state, taken, outcome._replace(box=box), ops)

    def weigh(
        self,
        opened: Any,
        prior: Action,
        action: Action,
        box: Box,
        ops: Ops = NUMPY,
        backup: int | None = None,
        part: float = 1.0,
    ) -> Weighed:
        """See `Structured.weigh`."""
        if ops is NUMPY:
            given = (self._entry(each) for each in (prior, action))
            found: Weighed = self._online(
                "weigh", opened, *given, *box[:2], norm=box.norm, backup=backup, part=part
            )
            return found
        return super().weigh(opened, prior, action, box, ops, backup, part)

    def resolved(self, opened: Any, ops: Ops = NUMPY) -> Any:
        """A round that was opened, with its numbers, to look at them."""
        return self._online("resolved", opened) if ops is NUMPY else opened

    def features(self, opened: Any, ops: Ops = NUMPY) -> tuple[Number, ...]:
        """See `Structured.features`."""
        if ops is NUMPY:
            found: tuple[Number, ...] = self._online("features", opened)
            return found
        return super().features(opened, ops)

    def to_dict(self) -> dict[str, Any]:
        """What tells this certificate from any other: the contract, the ranges and a digest of the traced functions."""
        return {
            "kind": "compiled",
            "contract": self.contract.to_dict(),
            "system": {"kind": "compiled", "digest": self._digest},
            "resolution": self.resolution,
        }

    def restored_gaps(self, entries: Any) -> Any:
        """The gaps that were saved as plain numbers and lists, checked."""
        return self._restored("gaps", self._layouts[0], entries)

    def restored_step(self, entries: Any) -> Any:
        """What closing an open round needs, saved as plain numbers and lists, checked."""
        return self._restored("step", self._layouts[1], entries)

    def _restored(self, name: str, layout: Layout, entries: Any) -> tuple[Any, ...]:
        """Vectors that were saved, checked; infinite slopes are allowed."""
        saved.require_length(name, entries, len(layout.lengths))
        found = tuple(np.asarray(each, dtype=float) for each in entries)
        for each, length in zip(found, layout.lengths, strict=True):
            if each.shape != (length,) or np.any(np.isnan(each)):
                raise ValueError(f"{name} must be vectors of {layout.lengths} numbers, got {entries!r}")
        return found

    @cached_property
    def _layouts(self) -> tuple[Layout, Layout]:
        """Of the gaps and of what closes a round: a guard carries each as a few vectors."""
        with jax.enable_x64(True):
            gaps = jax.eval_shape(self.system.start, 0.0)
        return layout_of(gaps), layout_of(Step(gaps.sides, gaps.radius, gaps.rounds))

    def _unpacked(self, value: Any) -> Any:
        """What a guard carries, as the structure knows it; what is known so already, unchanged."""
        if isinstance(value, Waiting):
            return value._replace(state=self._unpacked(value.state))
        if isinstance(value, StructuredState) and not _carried(value.gaps):
            return value._replace(gaps=unpacked(value.gaps, self._layouts[0]))
        if isinstance(value, Taken | Owed) and not _carried(value.step):
            return value._replace(step=unpacked(value.step, self._layouts[1]))
        return value

    @cached_property
    def _digest(self) -> str:
        structure: Any = self.system
        model: Model = structure.model
        n, nz, m, p = model.sizes
        with jax.enable_x64(True):
            like = [jnp.zeros(size) for size in (n, nz, m, p)]
            played = jax.make_jaxpr(structure.flat.played)(*like)
            policies = [
                jax.make_jaxpr(partial(structure.flat.policy, plan))(*like[:2])
                for plan in range(1 + len(model.backups))
            ]
        ranges = [
            np.asarray(end).tolist()
            for name in ("state", "action", "context", "draws")
            for end in model.box(name)
        ]
        band = None if model.band is None else [np.asarray(end).tolist() for end in model.band]
        # A traced program names its constants only; what is in them is added.
        constants = [np.asarray(each).tolist() for program in (played, *policies) for each in program.consts]
        text = f"{played} {policies} {constants} {ranges} {band} {structure.precision} {list(model.backups)}"
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _programs(self) -> Programs:
        return Programs()

    def _online(self, method: str, *given: Any, **options: Any) -> Any:
        """A step of the protocol, compiled, in float64, on NumPy values."""
        # Relative round-off is a plain number of the program, not one that it computes with.
        off = tuple(getattr(each, "epsilon", None) for each in given)
        given = tuple(
            each if known is None else each._replace(epsilon=0.0)
            for each, known in zip(given, off, strict=True)
        )
        step = partial(_step, self, method, off, options)
        return self._programs.run(step, (method, off, *options.items()), given)


class Waiting(NamedTuple):
    """A round that is opened in the program that makes use of it."""

    state: Any
    observation: Any
    epsilon: float


def _as_number(choice: Choice) -> Choice:
    """A choice whose action is a single entry, as a number."""
    return choice._replace(action=float(choice.action[0]))


def _packed(found: Any) -> Any:
    """What a program gives, as a guard carries it."""
    return jax.tree.map(lambda each: packed(each) if _carried(each) else each, found, is_leaf=_carried)


def _carried(value: Any) -> bool:
    return isinstance(value, Gaps | Step)


def _copied(observation: Any) -> Any:
    if isinstance(observation, list | tuple) and all(np.ndim(each) == 0 for each in observation):
        return np.array(observation, dtype=float)
    return jax.tree.map(lambda leaf: np.array(leaf, dtype=float), observation)


def _step(
    certificate: Compiled,
    method: str,
    off: tuple[float | None, ...],
    options: dict[str, Any],
    *given: Any,
) -> Any:
    """A step of the protocol, traced."""
    ops = online_jax_ops()
    if method == "start":
        return _packed(Structured.start(certificate, ops, *given))
    known = dict(options)
    given = tuple(
        certificate._unpacked(each if known_off is None else each._replace(epsilon=known_off))
        for each, known_off in zip(given, off, strict=True)
    )
    given = tuple(
        certificate.open(each.state, each.observation, ops, each.epsilon)
        if isinstance(each, Waiting)
        else each
        for each in given
    )
    if "norm" in known:
        *rest, low, high = given
        given = (*rest, Box(low, high, known.pop("norm")))
    return _packed(getattr(certificate, method)(*given, ops=ops, **known))


def compile(  # noqa: A001
    model: Model, contract: Contract, precision: Precision | None = None
) -> Compiled:
    """A certificate from a model: bring the functions and the ranges, not a proof.

    Args:
        model: The plant.
        contract: The promise.
        precision: How finely to look; the default is a good start.

    Raises:
        ValueError: A function uses an operation that cannot be bounded, which is named with its line; or what it gives
            does not fit the ranges.

    Example:
        >>> import jax.numpy as jnp
        >>> import tether
        >>> tank = tether.Model(
        ...     step=lambda x, z, a, w: jnp.clip(0.9 * x + z - a + w, 0.0, 10.0),  # level, inflow, outflow, leak
        ...     cost=lambda x, z, a, w: 1.0 + abs(0.9 * x + z - a + w - 5.0),
        ...     prior=lambda x, z: jnp.clip(0.9 * x + z - 5.0, 0.0, 4.0),
        ...     state=(0.0, 10.0),
        ...     action=(0.0, 4.0),
        ...     context=(0.0, 2.0),
        ...     draws=(-0.2, 0.0),
        ... )
        >>> certificate = tether.compile(tank, tether.Contract(lam=0.5, b=0.5, horizon=4, cost_floor=1.0))
        >>> guard = tether.Guard(certificate, prior=tank.policy, low=0.0, high=4.0)
        >>> decision = guard.act([5.0, 1.5], proposal=0.0)  # the level, the inflow
        >>> decision.prior_action, decision.intervened, 0.0 < decision.action < 1.0
        (1.0, True, True)
    """
    if not isinstance(model, Model):
        raise TypeError(f"model must be a tether.Model, got {model!r}")
    if not isinstance(contract, Contract):
        raise TypeError(f"contract must be a tether.Contract, got {contract!r}")
    if contract.continuing:
        raise ValueError(f"compile needs a contract with a last round, got horizon {contract.horizon!r}")
    if model.band is not None and len(model.band[0]) < contract.horizon:
        raise ValueError(
            f"band must have a range for each of {contract.horizon} rounds, got {len(model.band[0])}"
        )
    check(model)
    keep_programs()
    structure = CompiledStructure(model, contract.horizon, precision or Precision())
    if not structure.scale < math.inf:
        raise ValueError(
            f"the prior's cost must be bounded in the ranges of the model, got {structure.scale:g}; "
            "is something divided by 0 there, or a `where` undecided?"
        )
    if structure.least_cost < contract.cost_floor * (1.0 - 1e-6):
        raise ValueError(
            f"cost_floor must be at most what the prior pays anywhere in the ranges of the model, "
            f"got {contract.cost_floor!r} where it pays {structure.least_cost:g}"
        )
    return Compiled(contract, structure)
