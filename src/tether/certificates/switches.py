"""Certificates for finite sets of actions: the safe set is a mask, with the prior's action always in it.

**Sound.** Every action of the set is weighed by the certificate inside, with the prior from the next round on, and what
is played was found safe or is what the prior plays. The prior is the only backup: what another one would play need not
be in the set. So the prior is carried from the start, its action is always safe, and the mask is never empty.

Nothing is asked of the prior but that it plays actions of the set. It jumps from one to another, so that what is
claimed of the perturbation under the prior must hold for *this* prior, jumps included. Where the prior only looks at
what no action changes (a load, the weather, the clock), both trajectories see the same jumps, and they do no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tether.core import saved, validate
from tether.core.certificate import Action, Box, Choice, Observation, Outcome, Weighing
from tether.core.contract import Contract
from tether.core.finite import FiniteActions
from tether.core.ops import FLOATS, NUMPY, Number, Ops
from tether.core.projection import length


@dataclass(frozen=True)
class Switches:
    """A certificate for a finite set of actions.

    `tether.Guard` and `tether.gym.Guarded` then take and give the actions' names (`FiniteActions.number`), and have the
    mask of the safe ones; in `tether.rollout` actions are values of the set, and a proposal counts as the nearest.

    Args:
        certificate: What is known of the system, for actions with these values or points.
        actions: The set.

    Example:
        >>> from tether import Contract, FiniteActions, Guard, LipschitzCertificate, Sensitivity, geometric
        >>> bounds = Sensitivity(immediate=1.0, carried=0.5, perturbation=geometric(0.5))
        >>> certificate = LipschitzCertificate(Contract(lam=0.5, b=1.0, horizon=24, cost_floor=2.2), bounds)
        >>> steps = FiniteActions([0.0, 1.0, 2.0, 3.0])  # kW
        >>> guard = Guard(Switches(certificate, steps), prior=lambda load: 2)
        >>> guard.mask(1.7).tolist()
        [True, True, True, True]
        >>> guard.act(1.7, proposal=0).action
        0
        >>> guard.observe(4.0)
        >>> guard.mask(1.7).tolist(), guard.act(1.7, proposal=0).action
        ([False, True, True, True], 1)
    """

    certificate: Weighing
    actions: FiniteActions

    tree_numbers: ClassVar[tuple[str, ...]] = ("certificate",)
    backup_names: ClassVar[tuple[str, ...]] = ("prior",)

    def __post_init__(self) -> None:
        if not isinstance(self.actions, FiniteActions):
            raise TypeError(f"actions must be tether.FiniteActions, got {self.actions!r}")
        validate.parts(
            "the certificate", self.certificate, ("weigh", "contract"), "tether.core.certificate.Weighing"
        )
        for each in (self.certificate, *getattr(self.certificate, "certificates", ())):
            if getattr(each, "tolerance", 0.0) > 0.0:
                raise ValueError(
                    f"an action of a finite set is played as it is: the certificate inside must have no tolerance, got "
                    f"{getattr(each, 'tolerance', 0.0)!r}"
                )

    @property
    def contract(self) -> Contract:
        """The promise; of several the first."""
        return self.certificate.contract

    @property
    def contracts(self) -> Any:
        """The promises by name, if there are several; else None."""
        return getattr(self.certificate, "contracts", None)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Those of the certificate inside."""
        return self.certificate.feature_names

    @property
    def revealed_names(self) -> tuple[str, ...]:
        """Those of the certificate inside."""
        return self.certificate.revealed_names

    @property
    def online_ops(self) -> Ops:
        """That of the certificate inside."""
        return self.certificate.online_ops

    def start(self, ops: Ops = NUMPY, zero: Number = 0.0) -> Any:
        """The state is that of the certificate inside."""
        return self.certificate.start(ops, zero)

    def open(self, state: Any, observation: Observation, ops: Ops = NUMPY, epsilon: float = 0.0) -> Any:
        """Begin a round with what is seen."""
        return self.certificate.open(state, observation, ops, epsilon)

    def mask(self, opened: Any, prior: Action, ops: Ops = NUMPY) -> Any:
        """[n] which actions are safe where the prior plays the value `prior`; that is always one of them."""
        place, _ = self._place(prior, ops)
        return self._mask(opened, place, ops)

    def choose(self, opened: Any, proposal: Action, prior: Action, box: Box, ops: Ops = NUMPY) -> Choice:  # noqa: ARG002
        """The safe action of the set nearest to the proposal, the one with the smallest number of equally near ones."""
        arrays, points = _arrays(ops), self._points(ops)
        trusted, is_member = self._place(prior, ops)
        usable = arrays.isfinite(proposal - prior)
        if self.actions.shape:
            usable = arrays.all(usable)
        wish, _ = self._place(arrays.where(usable, proposal, prior), ops)
        wish = arrays.where(usable, wish, trusted)
        safe = self._mask(opened, trusted, ops)
        away = arrays.where(safe, self._apart(points, points[wish], arrays), np.inf)
        place = _first_least(away, arrays)

        weighed = self._weigh(opened, points[trusted], points[place], ops, part=0.5)
        kept = arrays.logical_or(place == trusted, weighed.left >= 0.0)
        covered = arrays.logical_and(is_member, kept)
        breached = arrays.logical_or(weighed.breached, arrays.logical_not(covered))
        values = arrays.asarray(self.actions.value_array)
        action = arrays.where(breached, prior, values[place])
        if ops is FLOATS:
            action, breached = float(action), bool(breached)
        deviation = length(points[place] - points[trusted], self.actions.norm, arrays)
        binding = self._binding(opened, points[trusted], wish, place, ops)
        return Choice(
            action, deviation, deviation, weighed.margin, 0.0 * deviation, weighed.taken, breached,
            binding=binding,
        )  # fmt: skip

    def backup_action(self, opened: Any, prior: Action, box: Box, ops: Ops) -> Action:  # noqa: ARG002
        """The prior's action, which is always safe."""
        return prior

    def update(self, state: Any, taken: Any, outcome: Outcome, ops: Ops = NUMPY) -> Any:
        """Close a round in which an action was `taken`."""
        return self.certificate.update(state, taken, outcome, ops)

    def features(self, opened: Any, ops: Ops = NUMPY) -> tuple[Number, ...]:
        """Those of the certificate inside."""
        return self.certificate.features(opened, ops)

    def feature_units(self) -> tuple[float, ...]:
        """Typical sizes of the features."""
        return self.certificate.feature_units()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that describe the certificate, fit for JSON."""
        return {
            "kind": "switches",
            "certificate": self.certificate.to_dict(),
            "actions": self.actions.to_dict(),
        }

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Switches:
        """The certificate that `to_dict` described, if the one inside can be made."""
        inside: Any = saved.certificate_from_dict(description["certificate"])
        return cls(inside, FiniteActions.from_dict(description["actions"]))

    def restore(self, state: dict[str, Any], taken: Any) -> tuple[Any, Any]:
        """The state and the open round that were saved as plain numbers and lists, checked."""
        return self.certificate.restore(state, taken)

    def _points(self, ops: Ops) -> Any:
        return _arrays(ops).asarray(self.actions.point_array)

    def _apart(self, points: Any, point: Any, ops: Ops) -> Any:
        """[n] how far each of the points is from one."""
        away = points - point
        return length(away if away.ndim > 1 else away[:, None], self.actions.norm, ops)

    def _place(self, value: Action, ops: Ops) -> tuple[Any, Any]:
        """(the number of the action whose value is nearest, whether it is this one but for round-off)."""
        arrays = _arrays(ops)
        away = arrays.asarray(self.actions.value_array) - value
        away = length(away if away.ndim > 1 else away[:, None], "linf", arrays)
        size = float(np.max(np.abs(self.actions.value_array)))
        return _first_least(away, arrays), arrays.min(away) <= 64.0 * arrays.epsilon(away) * size

    def _mask(self, opened: Any, trusted: Any, ops: Ops) -> Any:
        arrays, points = _arrays(ops), self._points(ops)
        prior = points[trusted]

        def allowed(point: Any) -> Any:
            weighed = self._weigh(opened, prior, point, ops)
            return arrays.logical_and(weighed.left >= 0.0, arrays.logical_not(weighed.breached))

        same = arrays.arange(self.actions.n) == trusted
        return arrays.logical_or(ops.over(allowed, points), same)

    def _weigh(self, opened: Any, prior: Any, point: Any, ops: Ops, part: float = 1.0) -> Any:
        """What the certificate inside makes of a point, with the prior from the next round on."""
        prior, point = self._plain(prior, ops), self._plain(point, ops)
        return self.certificate.weigh(opened, prior, point, self._box, self._inside(ops), 0, part)

    def _inside(self, ops: Ops) -> Ops:
        """What the certificate inside computes with: points may be vectors where values are numbers."""
        return ops if self.actions.point_array.ndim == 1 else _arrays(ops)

    def _plain(self, point: Any, ops: Ops) -> Any:
        return float(point) if self._inside(ops) is FLOATS else point

    @property
    def _box(self) -> Box:
        points = self.actions.point_array
        low, high = np.min(points, axis=0), np.max(points, axis=0)
        return (
            Box(low, high, self.actions.norm) if low.ndim else Box(float(low), float(high), self.actions.norm)
        )

    def _binding(self, opened: Any, prior: Any, wish: Any, place: Any, ops: Ops) -> Any:
        """Of several contracts the first that does not allow what was wished, if that is not played; else -1."""
        forbidding = getattr(self.certificate, "forbidding", None)
        if forbidding is None:
            return -1.0
        prior, wished = self._plain(prior, ops), self._plain(self._points(ops)[wish], ops)
        first = forbidding(opened, prior, wished, self._box, self._inside(ops))
        return _arrays(ops).where(wish == place, -1.0, first)


def _arrays(ops: Ops) -> Ops:
    """What sets of actions are computed with."""
    return NUMPY if ops is FLOATS else ops


def _first_least(numbers: Any, ops: Ops) -> Any:
    """The place of the smallest number; the first of equal ones."""
    count = numbers.shape[0]
    ahead = ops.where(numbers <= ops.min(numbers), count - ops.arange(count), 0)
    return count - ops.max(ahead)
