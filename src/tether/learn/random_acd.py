"""Random+ACD: an untrained network behind the guard. Algorithm 1 (ACD), its line 3 fed by random weights."""

from __future__ import annotations

from tether.learn.learner import Method


class RandomACD(Method):
    """Play through the guard what a network with random weights proposes; nothing is learned."""

    name = "random+acd"
    title = "Random+ACD"
    guarded = True
    learns = False
