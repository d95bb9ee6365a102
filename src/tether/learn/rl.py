"""RL: the reward alone. Algorithm 2 without the guard: line 7 plays what the network says, line 5 knows no cost."""

from __future__ import annotations

from tether.learn.learner import Method


class RL(Method):
    """Maximise E[sum_h r_h] with neither guard nor cost.

    The loss is the one that `Method` has: minus the mean reward a round. What it learns depends neither on lam nor on
    b, so that it is trained once and judged by every contract. The paper measures the regret of all others against it.
    """

    name = "rl"
    title = "RL"
