"""Which extra of the package brings which module, and what to say where one is missing.

`pip install tether-rl` brings NumPy only, which is all that the guard needs.
"""

from __future__ import annotations

EXTRAS = {
    "cvxpy": "limit",
    "equinox": "learn",
    "gridstatus": "caiso",
    "gymnasium": "gym",
    "httpx": "serve",
    "isal": "data",
    "jax": "learn",
    "jaxlib": "learn",
    "matplotlib": "learn",
    "minari": "minari",
    "msgspec": "serve",
    "optax": "learn",
    "pandas": "bench",
    "polars": "data",
    "prometheus_client": "serve",
    "ray": "ray",
    "rich": "learn",
    "scipy": "learn",
    "stable_baselines3": "sb3",
    "starlette": "serve",
    "tensorboardX": "tensorboard",
    "torch": "sb3",
    "typer": "cli",
    "uvicorn": "serve",
    "uvloop": "serve",
}
"""The extra that brings a module; pyproject.toml lists what is in an extra, and why."""


def missing(what: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """What to raise where `what` cannot do without a module of an extra: the extra by name, and how to get it.

    Args:
        what: What was asked for, such as `tether train`.
        error: Of the import that failed; it is returned as it is if no extra brings the module.

    Example:
        >>> print(missing("tether.rollout", ModuleNotFoundError("No module named 'jax'", name="jax")))
        tether.rollout needs tether-rl[learn]: pip install 'tether-rl[learn]'
    """
    extra = EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None:
        return error
    return ModuleNotFoundError(
        f"{what} needs tether-rl[{extra}]: pip install 'tether-rl[{extra}]'", name=error.name
    )
