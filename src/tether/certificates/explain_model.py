"""What `tether.certificates.explain` knows of a model: how it can be changed, and where the plant can go."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tether.certificates.structured import Structured
from tether.core.certificate import Observation


def changed(certificate: Structured, observation: Observation) -> Iterator[tuple[str, Structured]]:
    """The certificate with one thing changed at a time, and what; none for one that no model was compiled to."""
    structure: Any = certificate.system
    model, precision = getattr(structure, "model", None), getattr(structure, "precision", None)
    if model is None or precision is None:
        return

    def with_(**changes: Any) -> Structured:
        return dataclasses.replace(certificate, system=dataclasses.replace(structure, **changes))

    for field in dataclasses.fields(precision):
        value = getattr(precision, field.name)
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        more = value + 2 if field.name == "rounds" else 2 * value
        yield (
            f"{field.name} = {more} instead of {value}",
            with_(precision=dataclasses.replace(precision, **{field.name: more})),
        )
    _, z = structure.read(observation)
    for name, centre in (("draws", None), ("context", np.asarray(z))):
        low, high = model.box(name)
        for i in range(len(low)):
            if high[i] <= low[i] or (name == "context" and model.band is not None):
                continue
            middle = 0.5 * (low[i] + high[i]) if centre is None else centre[i]
            quarter = 0.25 * (high[i] - low[i])
            ends = low.copy(), high.copy()
            ends[0][i], ends[1][i] = max(low[i], middle - quarter), min(high[i], middle + quarter)
            shape = np.shape(np.asarray(getattr(model, name)[0]) + np.asarray(getattr(model, name)[1]))
            narrower = tuple(end.reshape(shape) for end in ends)
            yield (
                f"{name}[{i}] known to half its range of {high[i] - low[i]:.3g}",
                with_(model=dataclasses.replace(model, **{name: narrower})),
            )


def reached(model: Any, opened: Any, action: Any) -> dict[str, Any]:
    """Where both plants can be after this round, and how steep the prior's cost is there; enclosures in one piece."""
    import jax
    import jax.numpy as jnp

    from tether.certificates.intervals import Interval

    n, nz, _, p = model.sizes
    low, high = (np.asarray(end) for end in opened.gaps.prior.state[:2])
    draws = model.box("draws")

    def functions(of: Any) -> Any:
        shapes = model.shapes
        return [jnp.reshape(each, shape) for each, shape in zip(of, shapes, strict=True)]

    def moved(x: Any, z: Any, u: Any) -> Any:
        a = jnp.asarray(action, u.dtype)
        own, w, other = x, u[:p], u[p:]
        mine = model.step(*functions((own, z, a, w)))
        seen = functions((other, z, a, w))
        prior = model.step(*seen[:2], jnp.reshape(model.prior(*seen[:2]), model.shapes[2]), seen[3])
        mine, prior = jnp.reshape(mine, (-1,)), jnp.reshape(prior, (-1,))
        return jnp.concatenate([mine, mine - prior, prior])

    def paid(u: Any) -> Any:
        s, t, _, w = functions((u[:n], u[n : n + nz], jnp.zeros(model.sizes[2]), u[n + nz :]))
        return jnp.reshape(model.cost(s, t, jnp.reshape(model.prior(s, t), model.shapes[2]), w), (1,))

    def look(x: Any, z: Any) -> Any:
        over = Interval(jnp.concatenate([draws[0], low]), jnp.concatenate([draws[1], high]))
        after, _ = looked_at(partial(moved, x, z), over)
        own, gap, prior = (Interval(after.low[i : i + n], after.high[i : i + n]) for i in (0, n, 2 * n))
        both = jnp.minimum(own.low, prior.low), jnp.maximum(own.high, prior.high)
        context = model.box("context")
        region = Interval(*(jnp.concatenate([both[i], context[i], draws[i]]) for i in (0, 1)))
        _, steep = looked_at(paid, region)
        return own, gap, steep[:n, 0]

    with jax.enable_x64(True):
        own, gap, steep = (jax.tree.map(np.asarray, each) for each in jax.jit(look)(*opened.seen))
    return {
        "own next state, from": own.low.tolist(),
        "own next state, to": own.high.tolist(),
        "gap to the prior's next state, from": gap.low.tolist(),
        "gap to the prior's next state, to": gap.high.tolist(),
        "slope of the next cost under the prior, at most": steep.tolist(),
    }


def leaves(model: Any, parts: dict[str, Any], rounds: int) -> str:
    """Which entry of the own state can leave the range of the model under the prior, and how many rounds from now."""
    import jax
    import jax.numpy as jnp

    from tether.certificates.intervals import Interval

    n, nz, _, _ = model.sizes
    low, high = model.box("state")
    slack = 1e-6 * (high - low)
    context, draws = model.box("context"), model.box("draws")

    def moved(u: Any) -> Any:
        x, z, w = (
            jnp.reshape(each, shape)
            for each, shape in zip(
                (u[:n], u[n : n + nz], u[n + nz :]), (*model.shapes[:2], model.shapes[3]), strict=True
            )
        )
        return jnp.reshape(model.step(x, z, jnp.reshape(model.prior(x, z), model.shapes[2]), w), (-1,))

    @jax.jit
    def after(least: Any, most: Any) -> Any:
        over = Interval(
            jnp.concatenate([least, context[0], draws[0]]), jnp.concatenate([most, context[1], draws[1]])
        )
        return looked_at(moved, over)[0]

    least, most = (np.array(parts[f"own next state, {end}"]) for end in ("from", "to"))
    with jax.enable_x64(True):
        for ahead in range(1, rounds + 1):
            out = np.flatnonzero((least < low - slack) | (most > high + slack))
            if out.size:
                i = int(out[0])
                return (
                    f"After {ahead} round{'s' * (ahead > 1)} state[{i}] can be {least[i]:.4g} to {most[i]:.4g}, "
                    f"outside of the range {low[i]:.4g} to {high[i]:.4g} in which the model holds: widen it, or narrow "
                    "context or draws."
                )
            if ahead < rounds:
                least, most = (np.asarray(end) for end in after(least, most))
    return ""


def looked_at(function: Any, box: Any) -> tuple[Any, Any]:
    """(range [m], size of the slopes [d, m]) of a function of [d] over a box, in one piece."""
    import jax.numpy as jnp

    from tether.certificates.programs import Program, dense, enclose

    program = Program(function, box.low.shape[0], jnp.float64)
    found, inside = enclose(program, box)
    slope = dense(inside, program.sizes)
    return found, jnp.maximum(abs(slope.low), abs(slope.high))
