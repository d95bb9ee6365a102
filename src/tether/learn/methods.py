"""The methods: one object each, in a file of its own."""

from __future__ import annotations

from tether.learn.acrl import ACRL
from tether.learn.crl import CRL
from tether.learn.learner import Method
from tether.learn.prior import Prior
from tether.learn.random_acd import RandomACD
from tether.learn.rl import RL
from tether.learn.rl_acd import RLACD

METHODS: tuple[Method, ...] = (Prior(), RandomACD(), RL(), RLACD(), CRL(), ACRL())
"""In the order of the paper's figures."""


def method_of(method: str | Method) -> Method:
    """The method with this name; a method is returned as it is.

    Raises:
        ValueError: If no method has this name.
        TypeError: If it is neither a name nor a method.

    Example:
        >>> method_of("rl+acd").title, method_of("rl+acd").guarded
        ('RL+ACD', True)
    """
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        raise TypeError(f"method must be a name or a tether.learn.learner.Method, got {method!r}")
    by_name = {each.name: each for each in METHODS}
    if method not in by_name:
        raise ValueError(f"method must be one of {', '.join(map(repr, by_name))}, got {method!r}")
    return by_name[method]
