"""Certificates that can say why an action is safe or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tether.core.certificate import Action, Observation

if TYPE_CHECKING:
    from tether.certificates.explain import Explanation


class Explaining:
    """Certificates whose bounds can be looked at one by one."""

    def explain(self, observation: Observation, action: Action, **options: Any) -> Explanation:
        """Which bound binds and what would enlarge the safe set: see `tether.certificates.explain.explain`."""
        from tether.certificates.explain import explain

        return explain(self, observation, action, **options)
