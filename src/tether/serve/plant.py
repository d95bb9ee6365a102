"""What a plant is to the service: its certificate, its prior, its bounds and its limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from tether.core import convert, validate
from tether.core.actions import Actions, bound_from_json, bound_to_json
from tether.core.certificate import Action, Certificate, Observation
from tether.core.guard import Guard
from tether.core.monitor import Monitor
from tether.core.ops import FLOAT32, NUMPY, quietly
from tether.core.projection import Norm
from tether.core.saved import certificate_from_dict

_LIMITS = ("open_episodes", "remember", "longest_gap")


class Said:
    """Stands for the prior inside of a guard: it says what the prior has said, which is in the journal."""

    def __init__(self) -> None:
        self.action: Any = None

    def __call__(self, _: Observation) -> Action:
        """What was said."""
        return self.action


class ServedGuard(Guard):
    """A guard whose breaches are told in the answers and events, not as warnings."""

    @property
    def action_shape(self) -> tuple[int, ...] | None:
        """The shape of an action; None before the prior's first one."""
        return self._actions.shape

    def backup_played(self, observation: Observation, prior: Action, applied: Action) -> bool:
        """Put the carried backup's action in the place of what was decided in the open round, if that was applied.

        A client that got no answer plays the backup of the answer before. That is safe because of what is carried, and
        `observe(applied=...)` alone could not tell: it asks whether an action would be safe if nothing were.
        """
        certificate: Any = self.certificate
        if not hasattr(certificate, "weigh"):
            return False  # the backup's action is safe as any other is
        with self._turn.lock:
            ops = self._ops if isinstance(prior, float) else NUMPY
            try:
                with quietly(ops):
                    opened = certificate.open(self._state, observation, self._ops, self._epsilon)
                    backup = certificate.backup_action(opened, prior, self._box, ops)
                    taken = certificate.weigh(opened, prior, backup, self._box, ops).taken
                played = self._actions.near(self._actions.usable(applied), backup, self._epsilon)
            except Exception:  # then nothing is known of the backup
                return False
            if not played or self._state.breached or getattr(taken, "breached", False):
                return False
            self._taken, self._decided = convert.plain_tuple(taken), self._actions.usable(backup)
            self._watch.plays(observation, backup)
            return True

    @property
    def carried_backup(self) -> str:
        """What keeps the promise from the next round on, after a round that was closed."""
        return self.certificate.backup_names[int(getattr(self._state, "backup", 0.0))]

    def _warn(self, message: str) -> None:
        pass


@dataclass(frozen=True)
class Plant:
    """One plant of a service.

    Args:
        certificate: The contract and what is known of the system.
        prior: The trusted policy, `prior(observation) -> action`; None if the client sends its action with each `act`.
        low: As in `tether.Guard`.
        high: As in `tether.Guard`.
        norm: As in `tether.Guard`.
        monitor: As in `tether.Guard`; a function of what it is shown, since it is shown it again at recovery.
        resolution: As in `tether.Guard`.
        policies: How a client plays each of the certificate's backups by itself, by the backup's name; told with every
            answer. Anything that the client understands, such as `{"prior": "hold 20 degrees"}`.
        open_episodes: How many episodes may be open at once.
        remember: For how many closed rounds of an episode a repeated request gets its answer again.
        longest_gap: How many rounds may wait for the report of an earlier one.

    Example:
        >>> from tether import Contract, LipschitzCertificate, Sensitivity, geometric
        >>> certificate = LipschitzCertificate(
        ...     Contract(lam=0.5, b=1.0, horizon=3, cost_floor=1.0), Sensitivity(2.0, 1.0, geometric(0.5))
        ... )
        >>> Plant(certificate, prior=lambda temperature: 20.0 - temperature, low=-10.0, high=10.0).open_episodes
        16
    """

    certificate: Certificate
    prior: Callable[[Observation], Action] | None = None
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    norm: Norm = "l2"
    monitor: Monitor | None = None
    resolution: float = FLOAT32
    policies: Mapping[str, str] = field(default_factory=dict)
    open_episodes: int = 16
    remember: int = 32
    longest_gap: int = 1000

    def __post_init__(self) -> None:
        if self.prior is not None and not callable(self.prior):
            raise TypeError(f"prior must be callable as prior(observation) -> action, got {self.prior!r}")
        for name in _LIMITS:
            validate.count(name, getattr(self, name))
        self.guard()  # refuses what no guard can be made of

    def guard(self) -> ServedGuard:
        """A guard for an episode of this plant; its prior is a `Said`."""
        return ServedGuard(
            self.certificate, Said(), self.low, self.high, self.norm, self.monitor, resolution=self.resolution
        )

    @property
    def only_prior(self) -> bool:
        """Whether the prior is the only backup, so that it is safe in every round."""
        return tuple(self.certificate.backup_names) == ("prior",)

    def policy(self, backup: str | None) -> str | None:
        """How the client plays a backup."""
        return None if backup is None else self.policies.get(backup, backup)

    def to_dict(self) -> dict[str, Any]:
        """What must be the same for a journal to be gone on with, fit for JSON."""
        actions = Actions(self.low, self.high)
        return {
            "certificate": self.certificate.to_dict(),
            "low": bound_to_json(actions.low),
            "high": bound_to_json(actions.high),
            "norm": self.norm,
            "resolution": self.resolution,
            "monitored": self.monitor is not None,
            "policies": dict(self.policies),
        }

    def limits(self) -> dict[str, int]:
        """What may be changed from one start to the next, fit for JSON."""
        return {name: getattr(self, name) for name in _LIMITS}

    @classmethod
    def from_dict(cls, saved: dict[str, Any], limits: dict[str, int]) -> Plant:
        """The plant that `to_dict` and `limits` described, but for its prior, which is not needed to do things again.

        Raises:
            ValueError: It had a monitor, or its certificate is of a kind that no installed package can make.
        """
        if saved["monitored"]:
            raise ValueError("it has a monitor, which is not saved with it")
        return cls(
            certificate_from_dict(saved["certificate"]),
            low=bound_from_json(saved["low"], -math.inf),
            high=bound_from_json(saved["high"], math.inf),
            norm=saved["norm"],
            resolution=saved["resolution"],
            policies=saved["policies"],
            open_episodes=limits["open_episodes"],
            remember=limits["remember"],
            longest_gap=limits["longest_gap"],
        )
