"""Whether the functions of a model are what it says they are, before anything is compiled."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tether.certificates.model import Model

TRIED = 4096
"""States and contexts in which the prior's action is looked at: corners first, then random ones."""
_ELSEWHERE = tuple(str(Path(module.__file__ or "").parent) for module in (jax, np, sys.modules["tether"]))


def check(model: Model) -> None:
    """Trace every function of a model, and look at what the prior plays.

    Raises:
        TypeError: A function cannot be traced by JAX.
        ValueError: A function fails or gives something of another shape, or the prior leaves the range of actions.
    """
    x, z, a, w = model.shapes
    with jax.enable_x64(True):
        _traced("step", model.step, (x, z, a, w), x, "the next state")
        _traced("cost", model.cost, (x, z, a, w), (), "a number")
        _traced("prior", model.prior, (x, z), a, "an action")
        for name, backup in model.backups.items():
            _traced(f"the backup {name!r}", backup, (x, z), a, "an action")
        for name, policy in {"prior": model.prior, **model.backups}.items():
            _inside(model, name, policy)


def _traced(
    name: str,
    function: Callable[..., Any],
    shapes: tuple[tuple[int, ...], ...],
    expected: tuple[int, ...],
    what: str,
) -> None:
    given = [np.zeros(shape) for shape in shapes]
    try:
        found = jax.eval_shape(lambda *arguments: jnp.asarray(function(*arguments)), *given)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise TypeError(
            f"{name} asks for the value of a number that is not known before the plant runs{_line(error)}: write it "
            f"with jax.numpy, and comparisons with jnp.where, jnp.maximum or jnp.clip"
        ) from None
    except Exception as error:
        arguments = ", ".join(f"{each} {shape}" for each, shape in zip("xzaw", shapes, strict=False))
        raise ValueError(
            f"{name} raised {type(error).__name__}: {error}{_line(error)}; it was given {arguments}"
        ) from None
    if found.shape != expected:
        raise ValueError(
            f"{name} must give {what} of shape {expected}, as the ranges say; got shape {found.shape}"
        )


def _line(error: BaseException) -> str:
    """Where in the user's code an error came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((*_ELSEWHERE, "<"))]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def _inside(model: Model, name: str, policy: Callable[..., Any]) -> None:
    """Refuse a policy that leaves the range of actions somewhere."""
    n, nz, _, _ = model.sizes
    low, high = (np.concatenate([model.box(part)[i] for part in ("state", "context")]) for i in (0, 1))
    shares = np.random.default_rng(0).uniform(size=(TRIED, n + nz))
    corners = min(TRIED // 2, 2 ** (n + nz))
    shares[:corners] = (np.arange(corners)[:, None] >> np.arange(n + nz)) & 1
    points = low + shares * (high - low)

    def played(u: Any) -> Any:
        return jnp.reshape(
            policy(jnp.reshape(u[:n], model.shapes[0]), jnp.reshape(u[n:], model.shapes[1])), (-1,)
        )

    found = np.asarray(jax.vmap(played)(jnp.asarray(points)))
    least, most = model.box("action")
    slack = 1e-6 * (1.0 + np.abs(found))
    wrong = np.flatnonzero(np.any(~((found >= least - slack) & (found <= most + slack)), axis=1))
    if wrong.size:
        i = int(wrong[0])
        raise ValueError(
            f"{name} must play actions in the range {_text(least)} to {_text(most)}, got {_text(found[i])} for the "
            f"state {_text(points[i, :n])}{f' and the context {_text(points[i, n:])}' if nz else ''}: cut it with "
            f"jnp.clip"
        )


def _text(values: Any) -> str:
    numbers = [f"{each:.6g}" for each in np.ravel(values)]
    return numbers[0] if len(numbers) == 1 else f"[{', '.join(numbers)}]"
