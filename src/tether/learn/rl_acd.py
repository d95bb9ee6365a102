"""RL+ACD: the network of RL behind the guard. Algorithm 1 (ACD), its line 3 fed by a policy that knows no guard."""

from __future__ import annotations

from tether.learn.learner import Method, Mode
from tether.learn.rl import RL


class RLACD(RL):
    """Learn as RL does, and play through the guard.

    Offline nothing is played while it learns: what `rl` learned serves, and one training does for both. Online the
    guard changes what is seen, and so what is learned.
    """

    name = "rl+acd"
    title = "RL+ACD"
    guarded = True

    def learned_by(self, mode: Mode) -> Method:
        """Offline `rl`."""
        return RL() if mode == "offline" else self
