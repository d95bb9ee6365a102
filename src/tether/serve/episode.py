"""One episode of a plant as the service keeps it: the guard, the rounds that wait, and what was answered.

The account is the guard's. It moves on round by round; a round enters it when both what was asked and what came of it
are known. Where a later round is asked before that, there is a *gap*: the later round waits, and is answered with the
backup. What waits enters the account as soon as nothing before it is missing.

Everything here is a function of the requests in their order, the prior's answers among them: the same requests lead to
the same episode, bit for bit. That is what makes the journal enough.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from tether.core import convert
from tether.core.decision import Decision
from tether.serve.memory import Key, Memory
from tether.serve.plant import Plant, Said, ServedGuard
from tether.serve.replies import Answer, Full, Receipt, Refused, Reply, Unknown

SHOWN = 48
"""How many of the last rounds are kept to be looked at."""
_PLANTS = ("certificate", "low", "high", "norm", "resolution", "monitored")
"""What a saved guard says that is the plant's."""


class Asked(NamedTuple):
    """What `act` was asked with."""

    observation: Any
    proposal: Any
    prior: Any


class Came(NamedTuple):
    """What `observe` was told of a round."""

    cost: Any
    revealed: Mapping[str, Any] | None = None
    applied: Any = None
    reward: Any = None
    next_observation: Any = None
    override: str | None = None


@dataclass
class Waiting:
    """A round that is not in the account, because an earlier one is not."""

    asked: Asked
    came: Came | None = None


class Episode:
    """An open or ended episode.

    Attributes:
        memory: What was answered.
        waiting: The rounds in the gap, by round.
        decided: What the guard has decided for the round that is open; None if none is.
        asked: What it was asked then.
        backup: What is to be played from the next round on.
        rounds: The last rounds, to be looked at.
        cost: Sum of the costs in the account.
    """

    def __init__(self, plant_name: str, name: str, plant: Plant) -> None:
        self.plant_name, self.name, self.plant = plant_name, name, plant
        self.guard = plant.guard()
        self.memory = Memory(name)
        self.waiting: dict[int, Waiting] = {}
        self.rounds: deque[dict[str, Any]] = deque(maxlen=SHOWN)
        self.decided: Any = None
        self.asked: Asked | None = None
        self.backup = "prior"
        self.cost = 0.0

    # What is looked at.

    @property
    def open_round(self) -> bool:
        """Whether the guard has decided a round that has no outcome yet."""
        return self.decided is not None

    @property
    def over(self) -> bool:
        """Whether nothing more can be asked."""
        return self.guard.round > self.guard.horizon and not self.waiting

    def breach(self) -> str | None:
        """What contradicted the assumptions."""
        return None if self.guard.breach is None else self.guard.breach.detail

    def receipt(self, number: int) -> Receipt:
        """What is known after a request that is not for an action."""
        backup = None if self.waiting and not self.plant.only_prior else self.backup
        return Receipt(
            self.plant_name,
            self.name,
            number,
            self.guard.round,
            backup,
            self.plant.policy(backup),
            self.over,
            self.breach(),
        )

    # What moves it on. Everything is checked before anything is changed.

    def act(self, number: int, asked: Asked, held: bool) -> Answer:
        """Decide a round, or answer with the backup if an earlier one is missing."""
        horizon, now = self.guard.horizon, self.guard.round
        if not 1 <= number <= horizon:
            raise Refused(f"round must be from 1 to the horizon {horizon}, got {number}")
        if number < now + self.open_round:
            raise Unknown(
                f"round {number} is closed, longer ago than the {self.plant.remember} rounds that are remembered; "
                f"the account waits for round {now}"
            )
        self._check_prior(asked)
        if number > now or self.open_round or self.waiting:
            return self._wait(number, asked)
        return self._decide(number, asked, held)

    def observe(self, number: int, came: Came) -> Receipt:
        """Put what came of a round into the account, and whatever waited for it."""
        waits = self.waiting.get(number)
        is_open = self.open_round and number == self.guard.round
        if waits is None and not is_open:
            closed = number < self.guard.round
            raise Unknown(
                f"round {number} is closed, longer ago than the {self.plant.remember} rounds that are remembered"
                if closed
                else f"round {number} of episode {self.name!r} has not been asked; send act for it, then observe again"
            )
        self._check_outcome(came)
        if waits is not None and came.applied is None:
            raise Refused(
                f"round {number} was asked before round {self.guard.round} was reported, or too late: say with applied "
                "what was really played"
            )
        if waits is not None:
            waits.came = came
        else:
            self._close(came)
        self._catch_up()
        return self.receipt(number)

    def report(self, number: int, cost: Any) -> Receipt:
        """The cost of a round that was closed without one."""
        if cost is None:
            raise Refused(f"round {number} waits for its cost already; report it once it is known")
        waits = self.waiting.get(number)
        if waits is not None and waits.came is not None and waits.came.cost is None:
            waits.came = waits.came._replace(cost=cost)
        elif number in self.guard.pending:
            self.guard.report(number, cost)
            self._paid(number, cost)
        else:
            raise Unknown(f"round {number} of episode {self.name!r} does not wait for a cost")
        return self.receipt(number)

    def remember(self, key: Key, content: bytes, reply: Reply) -> None:
        """Keep what was answered, and now and then forget what is longer ago than is asked for again."""
        self.memory.remember(key, content, reply)
        if len(self.memory) > 4 * self.plant.remember + 2 * len(self.waiting) + 8:
            self.memory.forget(self.guard.round - self.plant.remember)

    def _check_prior(self, asked: Asked) -> None:
        """The guard counts a prior that gives no action as a breach; here the round is simply not begun."""
        shape = self._shape
        if self._usable(asked.prior) is None:
            expected = "number or vector" if shape is None else f"action of shape {shape}"
            raise Refused(
                f"the prior's action is {convert.text(asked.prior)}, expected a finite {expected}; "
                "no action is known to be safe"
            )

    def _check_outcome(self, came: Came) -> None:
        if came.applied is not None and self._usable(came.applied) is None:
            raise Refused(f"applied must be a finite action, got {convert.text(came.applied)}")
        if came.override is not None and (not isinstance(came.override, str) or came.applied is None):
            raise Refused(
                f"override says who decided otherwise, and needs what was applied, got {came.override!r}"
            )
        if came.cost is None and not hasattr(self.plant.certificate, "defer"):
            raise Refused("this certificate cannot close a round without its cost; send it when it is known")
        if came.revealed is not None:
            try:
                convert.revealed_arrays(came.revealed, self.plant.certificate.revealed_names)
            except ValueError as error:
                raise Refused(str(error)) from error

    @property
    def _shape(self) -> tuple[int, ...] | None:
        """Of the actions: as the guard knows it, else that of the first prior's action that waits; None before it."""
        if self.guard.action_shape is None and self.waiting:
            waits = next(iter(self.waiting.values()))
            return tuple(np.shape(waits.asked.prior))
        return self.guard.action_shape

    def _usable(self, action: Any) -> Any:
        """An action as a float or [n]; None if it is none."""
        shape = self._shape
        if shape is None:
            try:
                shape = np.shape(action)
            except ValueError:  # lists of different lengths
                return None
        return convert.as_action(action, shape) if len(shape) < 2 and 0 not in shape else None

    def _decide(self, number: int, asked: Asked, held: bool) -> Answer:
        decision = self._ask_guard(asked, asked.prior if held else asked.proposal)
        breached = self.guard.breach is not None
        reason = "operator" if held and not breached else str(decision.reason)
        intervened = decision.intervened if not held else not _same(decision.action, asked.proposal)
        answer = self._answer(number, decision, reason, intervened)
        self._show(answer, asked.proposal)
        return answer

    def _ask_guard(self, asked: Asked, proposal: Any) -> Decision:
        cast(Said, self.guard.prior).action = asked.prior
        decision = self.guard.act(asked.observation, proposal)
        self.decided, self.asked, self.backup = _plain(decision.action), asked, decision.backup
        return decision

    def _answer(self, number: int, decision: Decision, reason: str, intervened: bool) -> Answer:
        return Answer(
            self.plant_name,
            self.name,
            number,
            _plain(decision.action),
            _plain(decision.prior_action),
            reason,
            intervened,
            _finite(decision.deviation),
            _finite(decision.radius),
            _finite(decision.margin),
            self.backup,
            self.plant.policy(self.backup),
            self.guard.round,
            self.breach(),
        )

    def _wait(self, number: int, asked: Asked) -> Answer:
        """The backup, because the account is not whole; the round waits until it is."""
        if len(self.waiting) >= self.plant.longest_gap:
            raise Full(
                f"{len(self.waiting)} rounds of episode {self.name!r} wait for the report of round {self.guard.round}; "
                "send that first"
            )
        prior = _plain(asked.prior)
        action = prior if self.plant.only_prior or self.guard.breach is not None else None
        self.waiting[number] = Waiting(asked)
        backup = None if action is None else "prior"
        answer = Answer(
            self.plant_name,
            self.name,
            number,
            action,
            prior,
            "gap",
            not _same(action, asked.proposal),
            None,
            None,
            None,
            backup,
            self.plant.policy(backup),
            self.guard.round,
            self.breach(),
        )
        self._show(answer, asked.proposal)
        return answer

    def _catch_up(self) -> None:
        """Put the rounds that waited into the account, as far as nothing before them is missing."""
        while not self.open_round:
            waits = self.waiting.get(self.guard.round)
            if waits is None or waits.came is None:
                return
            del self.waiting[self.guard.round]
            self._ask_guard(waits.asked, self._wish(waits.asked, waits.came.applied))
            self._close(waits.came)

    def _wish(self, asked: Asked, played: Any) -> Any:
        """What to propose so that the guard decides what was played.

        If an answer that was played had been lost with the end of the journal, the proposal of then leads to it again.
        """
        cast(Said, self.guard.prior).action = asked.prior
        _, reached = self.guard.reach(asked.observation, asked.proposal)
        return asked.proposal if _same(reached, played) else played

    def _close(self, came: Came) -> None:
        options: dict[str, Any] = {}
        as_decided = came.applied is None or (came.override is None and _same(self.decided, came.applied))
        if not (as_decided or self._backup_played(came)):
            options = {"applied": self._usable(came.applied), "override": came.override}
        number = self.guard.round
        self.guard.observe(
            came.cost, came.revealed, next_observation=came.next_observation, reward=came.reward, **options
        )
        self.decided = self.asked = None
        self.backup = self.guard.carried_backup
        if came.cost is not None:
            self._paid(number, came.cost)
        if came.applied is not None:
            self._note(number, "applied", _plain(came.applied))

    def _backup_played(self, came: Came) -> bool:
        """Whether the client played the backup of before, which is safe; then that is what was decided."""
        if self.asked is None or came.override is not None:
            return False
        prior = self._usable(self.asked.prior)
        return self.guard.backup_played(self.asked.observation, prior, came.applied)

    def _paid(self, number: int, cost: Any) -> None:
        paid = _finite(convert.as_number(cost))
        self.cost += paid or 0.0
        self._note(number, "cost", paid)

    def _note(self, number: int, name: str, value: Any) -> None:
        """Add to what is shown of a round."""
        for shown in reversed(self.rounds):
            if shown["round"] == number:
                shown[name] = value
                return

    def _show(self, answer: Answer, proposal: Any) -> None:
        names = ("round", "action", "prior_action", "reason", "intervened", "radius", "margin")
        shown = {name: getattr(answer, name) for name in names}
        self.rounds.append(shown | {"proposal": proposal, "cost": None, "applied": None})

    def status(self) -> dict[str, Any]:
        """What there is to see, fit for JSON."""
        margin = self.rounds[-1]["margin"] if self.rounds else None
        return {
            "episode": self.name,
            "round": max([self.guard.round, *self.waiting]),
            "account": self.guard.round,
            "horizon": self.guard.horizon,
            "cost": self.cost,
            "margin": margin,
            "backup": self.backup,
            "breach": self.breach(),
            "waiting": len(self.waiting),
            "rounds": list(self.rounds),
        }

    # How it is kept.

    def to_json(self) -> dict[str, Any]:
        """All of it, fit for `text.dumps`; what the plant says is left out."""
        guard = {name: value for name, value in self.guard.state_dict().items() if name not in _PLANTS}
        return {
            "guard": guard,
            "memory": self.memory.to_json(),
            "waiting": [
                [number, list(each.asked), None if each.came is None else list(each.came)]
                for number, each in self.waiting.items()
            ],
            "rounds": list(self.rounds),
            "decided": self.decided,
            "asked": None if self.asked is None else list(self.asked),
            "backup": self.backup,
            "cost": self.cost,
        }

    @classmethod
    def restored(cls, plant_name: str, name: str, plant: Plant, saved: dict[str, Any]) -> Episode:
        """What `to_json` gave."""
        episode = cls(plant_name, name, plant)
        guard = {**episode.guard.state_dict(), **saved["guard"]}
        episode.guard = ServedGuard.from_state_dict(guard, Said(), plant.certificate, monitor=plant.monitor)
        episode.memory.restore(saved["memory"])
        for number, asked, came in saved["waiting"]:
            episode.waiting[number] = Waiting(Asked(*asked), None if came is None else Came(*came))
        episode.rounds.extend(saved["rounds"])
        episode.asked = None if saved["asked"] is None else Asked(*saved["asked"])
        episode.decided, episode.backup, episode.cost = saved["decided"], saved["backup"], saved["cost"]
        return episode


def _plain(action: Any) -> Any:
    """An action as plain numbers."""
    return action.tolist() if hasattr(action, "tolist") else action


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _same(first: Any, second: Any) -> bool:
    """Whether two actions are the same numbers; what is no action is the same as nothing."""
    try:
        return bool(np.array_equal(convert.as_array(first), convert.as_array(second)))
    except Exception:  # whatever was proposed
        return False
