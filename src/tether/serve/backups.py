"""The policies behind the names of a certificate's backups, for clients that have the certificate at hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tether.core.actions import Actions
from tether.core.certificate import Box, Certificate
from tether.core.ops import FLOAT32, NUMPY
from tether.core.projection import Norm


def backup_policies(
    certificate: Certificate,
    prior: Callable[[Any], Any],
    low: Any = None,
    high: Any = None,
    norm: Norm = "l2",
) -> dict[str, Callable[[Any], Any]]:
    """What each of the certificate's backups plays, by name: for `tether.Client(..., backups=...)`.

    Args:
        certificate: The one that the service has.
        prior: The prior.
        low: As in `tether.Guard`.
        high: As in `tether.Guard`.
        norm: As in `tether.Guard`.

    Example:
        >>> import tether
        >>> env = tether.envs.Carbon()
        >>> certificate = tether.Structured(env.contract(lam=2.0, b=2.0), env.structure)
        >>> policies = backup_policies(certificate, env.prior, env.low, env.high, env.norm)
        >>> {name: round(policy([3.0, 1.0, 0.0, 0.0]), 3) for name, policy in policies.items()}  # demand 3, no backlog
        {'prior': 3.75, 'clear': 5.0}
    """
    actions = Actions(low, high)
    box = Box(actions.low, actions.high, norm)
    return {
        name: partial(_play, certificate, prior, box, float(number))
        for number, name in enumerate(certificate.backup_names)
    }


def _play(
    certificate: Certificate, prior: Callable[[Any], Any], box: Box, number: float, observation: Any
) -> Any:
    trusted = prior(observation)
    if number == 0.0:
        return trusted
    ops = certificate.online_ops if isinstance(trusted, float) else NUMPY
    carried = certificate.start(ops, 0.0)._replace(backup=number)
    opened = certificate.open(carried, observation, ops, FLOAT32)
    return certificate.backup_action(opened, trusted, box, ops)
