"""What a certificate is: the protocol that the guard, the rollout and the Gymnasium wrapper talk to.

A certificate turns a contract and what is known of a system into safe actions. It has no state of its own: it is handed
its state and returns the next one, so that one object serves any number of episodes, on floats, in NumPy or compiled.
Nothing in the guard or in the rollout asks which class it is; one of your own is as good as those of this package.

A round of the protocol, with h - 1 rounds closed before it:

    state                                      what is remembered; before the first round `start(ops, zero)`
    opened = open(state, observation, ops)     what is seen is known, the action is not
    choice = choose(opened, proposal, prior, box, ops)
    ... the plant plays choice.action ...
    state  = update(state, choice.taken, Outcome(cost, ...), ops)

**Fail closed.** Whatever is handed in, `choose` must return an action that keeps the promise or set `breached`; numbers
that are not finite, or beyond `ops.limit`, must lead to a breach, never to freedom.

**What was really done.** `Outcome.applied` is what the plant played, if it is not what was decided. The account is kept
with it. If it was not safe, that is an *override*, somebody else's decision and no breach: the state is `overridden`
(a certificate that knows overrides has this field), and `choose` plays the prior and says so until what it plays is
known to be safe again. From there on the promise holds in every round, with the costs of the override in it.

**Costs that are late or missing.** A `Deferring` certificate can close a round without its cost, which then counts as
what it could be at worst, and take the difference back when the cost comes, in any order:

    state, owed = defer(state, choice.taken, Outcome(nan, ...), ops)
    state = settle(state, owed, Outcome(cost), ops)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from tether.core.contract import Contract
from tether.core.ops import Array, Flag, Number, Ops
from tether.core.projection import Norm

Action: TypeAlias = Any
"""A number, or [n]."""
Observation: TypeAlias = Any
"""Whatever the plant shows; a certificate that reads it says what it must be, [o] as a rule."""


CERTIFICATE_PARTS = (
    "contract", "feature_names", "backup_names", "revealed_names", "online_ops", "start", "open", "choose",
    "backup_action", "update", "features", "feature_units", "to_dict", "restore",
)  # fmt: skip
"""What a guard needs of a `Certificate`."""
STATE_PARTS = ("rounds", "breached", "_replace", "_asdict")
"""What a guard needs of a `State`."""


class Box(NamedTuple):
    """The actions that there are, and how they are measured."""

    low: Number
    """Lower bounds, a number or [n]; minus infinity for none."""
    high: Number
    """Upper bounds, a number or [n]; infinity for none."""
    norm: Norm
    """Of a deviation from the prior's action."""


class Outcome(NamedTuple):
    """What is known of a round once it is over."""

    cost: Number
    """The round's cost, cost units; with several contracts one for each, in their order."""
    applied: Action | None = None
    """What was really played, inside the box, where that is not what was decided; None if it is."""
    revealed: Mapping[str, Array] | None = None
    """Disturbances of the round by name, where they are observed afterwards; None if they are not known."""
    next_observation: Observation | None = None
    """What is seen next, if it is known already."""
    reward: Number | None = None
    """The round's reward, if it is known."""
    epsilon: float = 0.0
    """Relative round-off of these numbers where they come from; that of the computation counts in any case."""
    box: Box | None = None
    """The box that `choose` was given, if something is `applied`."""


class Choice(NamedTuple):
    """What a certificate makes of a proposal."""

    action: Action
    """What to play."""
    deviation: Number
    """||action - prior||, action units."""
    radius: Number
    """The largest deviation that is safe; where the safe set is no ball, on the way to the proposal."""
    margin: Number
    """How far below its bound J_h stays at least, cost units."""
    backup: Number
    """Which of the certificate's `backup_names` keeps the promise from the next round on, by its place."""
    taken: Any
    """What `update` needs: a tuple of numbers, arrays and tuples of them."""
    breached: Flag
    """Whether an assumption is known to be breached, so that only the prior is played."""
    overridden: Flag = False
    """Whether nothing is known to be safe because of an override, so that only the prior is played."""
    binding: Number = -1.0
    """With several contracts: which of them kept the action from being the proposal, by its place; -1 if none did."""


class Weighed(NamedTuple):
    """What a certificate makes of one very action, which it does not move."""

    left: Number
    """At least 0 if the action is safe; the unit is the certificate's own. NaN is not safe."""
    taken: Any
    """What `update` needs if the action is played."""
    margin: Number
    """How far below its bound J_h stays at least if it is played, cost units."""
    breached: Flag
    """Whether an assumption is known to be breached, so that nothing is safe."""


class State(Protocol):
    """What every certificate remembers; a NamedTuple of numbers, arrays and tuples of them."""

    @property
    def rounds(self) -> Number:
        """Number of closed rounds, h - 1."""

    @property
    def breached(self) -> Flag:
        """Whether something contradicted the contract or the certificate; from then on only the prior is played."""

    def _replace(self, **fields: Any) -> Any:
        """A copy with other fields, as NamedTuple has it."""


class Certificate(Protocol):
    """What the guard, the rollout and the wrapper need; see the module for the order of calls.

    For `tether.train` and grids of (lam, b) it must be a dataclass with a field `contract`; the other fields must be
    hashable.
    """

    @property
    def contract(self) -> Contract:
        """The promise that the certificate keeps: lam, b, horizon and cost floor."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the numbers that `features` returns, in their order."""

    @property
    def backup_names(self) -> tuple[str, ...]:
        """What may be played from any round on to keep the promise; the first is `"prior"`."""

    @property
    def revealed_names(self) -> tuple[str, ...]:
        """Disturbances that `update` makes use of if they are revealed; () if none."""

    @property
    def online_ops(self) -> Ops:
        """What the state is computed with online: `FLOATS` if all of it is single numbers, else `NUMPY`."""

    def start(self, ops: Ops, zero: Number) -> Any:
        """The `State` before the first round; `zero` carries the number type that later states have."""

    def open(self, state: Any, observation: Observation, ops: Ops, epsilon: float = 0.0) -> Any:
        """Begin a round with what is seen; `epsilon` is its relative round-off where it comes from."""

    def choose(self, opened: Any, proposal: Action, prior: Action, box: Box, ops: Ops) -> Choice:
        """The safe action to play instead of `proposal`, where the prior would play `prior`, inside the box."""

    def backup_action(self, opened: Any, prior: Action, box: Box, ops: Ops) -> Action:
        """What the backup that is carried plays in this round: safe whatever is proposed."""

    def update(self, state: Any, taken: Any, outcome: Outcome, ops: Ops) -> Any:
        """The state after the round in which `taken` was played."""

    def features(self, opened: Any, ops: Ops) -> tuple[Number, ...]:
        """The state as a learner can use it, in a round that was opened; one number for each of `feature_names`."""

    def feature_units(self) -> tuple[float, ...]:
        """Typical sizes of the features."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings that tell this certificate from any other, fit for JSON."""

    def restore(self, state: dict[str, Any], taken: Any) -> tuple[Any, Any]:
        """The state and the open round's `taken` (or None) that were saved as plain numbers and lists.

        Raises:
            ValueError: No episode could have led there.
        """


class Deferring(Certificate, Protocol):
    """A certificate that can wait for costs."""

    def defer(self, state: Any, taken: Any, outcome: Outcome, ops: Ops) -> tuple[Any, Any]:
        """The state after a round whose cost is not known, and what `settle` needs once it is.

        What is owed is a tuple of numbers, arrays and tuples of them. `Outcome.cost` is not looked at.

        Raises:
            NotImplementedError: The certificate cannot say what the cost could be at worst.
        """

    def settle(self, state: Any, owed: Any, outcome: Outcome, ops: Ops) -> Any:
        """The state once the cost of a deferred round is known; any number of rounds may have been closed since."""

    def restored_owed(self, saved: list[Any]) -> Any:
        """What is owed, from plain numbers and lists.

        Raises:
            ValueError: No round can have owed this.
        """


class Weighing(Certificate, Protocol):
    """A certificate that can also say of a given action whether it is safe, as several at once and finite sets need."""

    def weigh(
        self,
        opened: Any,
        prior: Action,
        action: Action,
        box: Box,
        ops: Ops,
        backup: int | None = None,
        part: float = 1.0,
    ) -> Weighed:
        """Whether `action` is safe if backup number `backup` is played from the next round on.

        Without a backup the best of them counts; what is `taken` then carries what was carried before. `part` of the
        reserve for round-off is kept: what was found safe with all of it is looked at again with a part, as a compiler
        may compute it twice in different ways.
        """


def accepted_cost(contract: Contract, cost: Number, epsilon: float, ops: Ops) -> tuple[Flag, Number]:
    """(whether the contract allows such a cost at all, the cost to compute with).

    A cost is finite, below `ops.limit`, and not below the floor by more than round-off of the type in which it came:
    np.float32(0.7) is a cost of 0.7. What is not accepted is replaced by the floor.
    """
    floor, own = contract.cost_floor, ops.epsilon(cost)
    rounding = 4.0 * (epsilon if epsilon > own else own)
    possible = ops.logical_and(cost >= floor * (1.0 - rounding), cost <= ops.limit(cost))
    return possible, ops.where(possible, ops.maximum(cost, floor), floor)
