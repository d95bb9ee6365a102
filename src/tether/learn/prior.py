"""The prior itself: the trusted policy that the promise compares with."""

from __future__ import annotations

from tether.learn.learner import Method


class Prior(Method):
    """Play pi+ in every round; nothing is learned."""

    name = "prior"
    title = "prior"
    learns = False
    plays_prior = True
