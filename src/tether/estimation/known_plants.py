"""Plants whose constants are known exactly, to judge `tether.estimate` by.

For state x [X], action a [A] (X = 1, 2 or 3, A = 1 or 2 by the seed) and draws that nobody observes:

    next state   x' = sat tanh(u / sat) + zeta_f,   u = F x + (1 + eta_f) B a        (elementwise, saturating)
    prior        pi(x) = r + alpha tanh(K x / alpha)
    cost         c = c0 + (1 + eta_c) g(x, a) + zeta_c
                 g = q1 bowl(x) + q2 softplus(k (v.x - t)) / k + q3 sqrt(1 + |a - r|^2) + q4 tanh(w.x) (y.(a - r))

bowl is |x|^2 / 2 (its slope grows with x) or sum log cosh x (its slope saturates). All numbers are drawn from the
seed. F has norm 0.5 to 0.95 before the coordinates are rescaled (so that the norm can be larger), the prior takes away
20 to 80 % of what the action reaches. Noise is additive (zeta, in state and cost) and multiplicative (eta, 5 to 25 % on
the effect of the action and on the cost), uniform or truncated normal. The prior is dithered uniformly, so that the
dither moves the next state by 15 to 40 % of what the noise does: what an operator can hide in the noise.

**What the truth is.** The claim is about the region that such operation visits, and operation 10 times as long as the
log is played to find it: at each (x, a) that it visits the slopes are exact (automatic differentiation), taken at the
worst draw in the support of the noise (eta_f at five points of it, both ends among them; the cost is linear in its
draw), and the largest counts. So the truth is larger than any slope of the log: it includes rarer states and the worst
draw at each of them. The cost floor is the smallest cost at a visited (x, a) over the support of the noise.
p(n) is the largest norm of dx_{h+n}/dx_h over every stretch of n <= 12 rounds of the undithered prior, in operation
twice as long as the log, with the draws that occurred. `carried` is the largest slope of the cost in the state under
the prior times the largest slope of the next state in the action, as the certificate multiplies them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ROUNDS = 100
LAGS = 12
LONGER = 10
"""The truth is sought in operation so many times as long as the log."""
FOLLOWED = 2
"""And p(n) in operation so many times as long, which costs more."""


class KnownPlant(NamedTuple):
    """The numbers of one plant."""

    F: Any
    B: Any
    K: Any
    sat: Any
    r: Any
    alpha: Any
    v: Any
    w: Any
    y: Any
    weights: Any
    """q1, q2, q3, q4, k, t."""
    quadratic: Any
    c0: Any
    eta_f: Any
    zeta_f: Any
    eta_c: Any
    zeta_c: Any
    normal: Any
    """Whether draws are truncated normal (at 2.5 standard deviations) rather than uniform."""
    dither: Any


class Truth(NamedTuple):
    """Exact constants over what operation visits."""

    immediate: float
    L_c_prior: float
    L_c_state: float
    L_f_action: float
    L_f_state: float
    L_pi: float
    cost_floor: float
    p: Floats
    """[LAGS + 1] p(0), p(1), ..."""
    cost_response: Floats
    """[LAGS + 1] the largest effect of a unit deviation on the cost of n rounds later, n = 0, 1, ..."""
    mean_cost: float

    @property
    def carried(self) -> float:
        """The product that the certificate uses."""
        return self.L_c_prior * self.L_f_action


def prior(plant: KnownPlant, x: Any) -> Any:
    """[A] the trusted action."""
    return plant.r + plant.alpha * jnp.tanh(plant.K @ x / plant.alpha)


def step(plant: KnownPlant, x: Any, a: Any, eta: Any) -> Any:
    """[X] the next state without its additive noise."""
    return plant.sat * jnp.tanh((plant.F @ x + (1.0 + eta) * (plant.B @ a)) / plant.sat)


def bare_cost(plant: KnownPlant, x: Any, a: Any) -> Any:
    """g(x, a)."""
    q1, q2, q3, q4, k, t = plant.weights
    bowl = jnp.where(plant.quadratic, 0.5 * jnp.sum(x**2), jnp.sum(jnp.logaddexp(x, -x) - jnp.log(2.0)))
    away = a - plant.r
    return (
        q1 * bowl
        + q2 * jax.nn.softplus(k * (plant.v @ x - t)) / k
        + q3 * jnp.sqrt(1.0 + away @ away)
        + q4 * jnp.tanh(plant.w @ x) * (plant.y @ away)
    )


def make_plant(seed: int) -> KnownPlant:
    """The plant of a seed."""
    random = np.random.default_rng([seed, 2311, 1568])
    X = 1 + seed % 3
    A = 1 if X == 1 else 1 + (seed // 3) % 2

    def unit(*shape: int) -> Floats:
        raw = random.standard_normal(shape)
        return np.asarray(raw / np.linalg.norm(raw, 2 if len(shape) == 2 else None))

    F = random.uniform(0.5, 0.95) * unit(X, X)
    B = random.uniform(0.5, 1.5) * unit(X, A)
    K = -random.uniform(0.2, 0.8) * np.linalg.pinv(B, rcond=0.2) @ F
    units = np.diag(random.uniform(0.6, 1.6, X))
    F, B, K = units @ F @ np.linalg.inv(units), units @ B, K @ np.linalg.inv(units)
    weights = np.array(
        [
            random.uniform(0.3, 1.5),
            random.uniform(0.0, 2.0),
            random.uniform(0.3, 1.5),
            random.uniform(-0.8, 0.8),
            random.uniform(1.0, 4.0),
            random.uniform(-0.5, 1.0),
        ]
    )
    plant = KnownPlant(
        F=F,
        B=B,
        K=K,
        sat=random.uniform(1.2, 3.0, X),
        r=random.uniform(-0.3, 0.3, A),
        alpha=random.uniform(0.4, 2.0, A),
        v=unit(X),
        w=unit(X),
        y=unit(A),
        weights=weights,
        quadratic=np.asarray(random.random() < 0.5),
        c0=np.asarray(0.0),
        eta_f=np.asarray(random.uniform(0.05, 0.25)),
        zeta_f=random.uniform(0.4, 1.0, X),
        eta_c=np.asarray(random.uniform(0.05, 0.25)),
        zeta_c=np.asarray(0.0),
        normal=np.asarray(random.random() < 0.5),
        dither=np.zeros(A),
    )
    # The size of the cost's additive noise is relative to what a first run shows.
    pilot = play(plant, episodes=50, seed=int(random.integers(2**31)))
    zeta_c = random.uniform(0.05, 0.4) * pilot["cost"].std()
    return plant._replace(
        dither=random.uniform(0.15, 0.4) * np.full(A, plant.zeta_f.mean() / np.linalg.norm(plant.B, 2)),
        zeta_c=np.asarray(zeta_c),
        c0=np.asarray(1.0 + zeta_c + 1.3 * abs(weights[3]) * float(np.linalg.norm(plant.alpha))),
    )


def play(plant: KnownPlant, episodes: int, seed: int) -> dict[str, Floats]:
    """A log of dithered prior operation, `episodes` of 100 rounds, as columns."""
    with jax.enable_x64(True):
        run = jax.device_get(_play(plant, _key(seed), episodes))
    state, action, planned, cost, after = (np.swapaxes(part, 0, 1) for part in run)
    log = {
        "episode": np.repeat(np.arange(episodes), ROUNDS),
        "round": np.tile(np.arange(1, ROUNDS + 1), episodes),
    }
    for name, values in (("state", state), ("prior", planned), ("action", action), ("next_state", after)):
        flat = values.reshape(episodes * ROUNDS, -1)
        log |= {f"{name}_{k + 1}": flat[:, k] for k in range(flat.shape[1])}
    return log | {"cost": cost.reshape(-1)}


def find_truth(plant: KnownPlant, episodes: int, seed: int) -> Truth:
    """The exact constants for a log of so many episodes: over operation that is longer and has other draws."""
    with jax.enable_x64(True):
        highest, lowest, total = jax.device_get(_survey(plant, _key(seed), LONGER * episodes))
        p, cost_response = jax.device_get(_follow(plant, _key(seed + 1), FOLLOWED * episodes))
    names = ("immediate", "L_c_prior", "L_c_state", "L_f_action", "L_f_state", "L_pi")
    largest = {name: float(value) for name, value in zip(names, highest, strict=True)}
    return Truth(
        **largest,
        cost_floor=float(lowest),
        p=np.asarray(p),
        cost_response=np.asarray(cost_response),
        mean_cost=float(total) / (LONGER * episodes * ROUNDS),
    )


def _key(seed: int) -> Any:
    return jax.random.key(seed, impl="rbg")  # much faster than the default on a processor


def _draw(plant: KnownPlant, key: Any, size: Any, shape: tuple[int, ...]) -> Any:
    """Noise of a given half-width."""
    return size * jax.lax.cond(
        plant.normal,
        lambda: jax.random.truncated_normal(key, -2.5, 2.5, shape) / 2.5,
        lambda: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0),
    )


def _round(plant: KnownPlant, x: Any, key: Any, dithered: bool) -> tuple[Any, ...]:
    """One round of many episodes: planned action, action, draw, cost and next state."""
    keys = jax.random.split(key, 5)
    count = len(x)
    planned = jax.vmap(partial(prior, plant))(x)
    dither = jax.random.uniform(keys[0], planned.shape, minval=-1.0, maxval=1.0) * plant.dither
    a = planned + dither if dithered else planned
    eta = _draw(plant, keys[1], plant.eta_f, (count,))
    after = jax.vmap(partial(step, plant))(x, a, eta) + _draw(plant, keys[2], plant.zeta_f, x.shape)
    bare = jax.vmap(partial(bare_cost, plant))(x, a)
    cost = (
        plant.c0
        + (1.0 + _draw(plant, keys[3], plant.eta_c, (count,))) * bare
        + _draw(plant, keys[4], plant.zeta_c, (count,))
    )
    return planned, a, eta, cost, after


def _start(plant: KnownPlant, key: Any, episodes: int) -> Any:
    return _draw(plant, key, plant.zeta_f, (episodes, len(plant.sat)))


@partial(jax.jit, static_argnums=2)
def _play(plant: KnownPlant, key: Any, episodes: int) -> Any:
    def advance(x: Any, key: Any) -> Any:
        planned, a, _, cost, after = _round(plant, x, key, dithered=True)
        return after, (x, a, planned, cost, after)

    keys = jax.random.split(key, ROUNDS + 1)
    return jax.lax.scan(advance, _start(plant, keys[0], episodes), keys[1:])[1]


@partial(jax.jit, static_argnums=2)
def _survey(plant: KnownPlant, key: Any, episodes: int) -> Any:
    """Largest slopes, smallest cost and the sum of costs over what dithered operation visits."""
    draws = plant.eta_f * jnp.linspace(-1.0, 1.0, 5)

    def slopes(x: Any, a: Any) -> tuple[Any, Any]:
        in_state, in_action = jax.grad(partial(bare_cost, plant), argnums=(0, 1))(x, a)
        reaction = jax.jacfwd(partial(prior, plant))(x)
        moved, pushed = jax.vmap(lambda eta: jax.jacfwd(partial(step, plant), argnums=(0, 1))(x, a, eta))(
            draws
        )
        steep = 1.0 + plant.eta_c
        bare = bare_cost(plant, x, a)
        largest = (
            steep * jnp.linalg.norm(in_action),
            steep * jnp.linalg.norm(in_state + in_action @ reaction),
            steep * jnp.linalg.norm(in_state),
            jnp.max(spectral_norm(pushed)),
            jnp.max(spectral_norm(moved)),
            spectral_norm(reaction),
        )
        least = plant.c0 + jnp.minimum(steep * bare, (1.0 - plant.eta_c) * bare) - plant.zeta_c
        return jnp.stack(largest), least

    def advance(carry: Any, key: Any) -> Any:
        x, highest, lowest, total = carry
        _, a, _, cost, after = _round(plant, x, key, dithered=True)
        steep, least = jax.vmap(slopes)(x, a)
        highest = jnp.maximum(highest, steep.max(axis=0))
        return (after, highest, jnp.minimum(lowest, least.min()), total + cost.sum()), None

    keys = jax.random.split(key, ROUNDS + 1)
    first = (_start(plant, keys[0], episodes), jnp.zeros(6), jnp.inf, 0.0)
    return jax.lax.scan(advance, first, keys[1:])[0][1:]


@partial(jax.jit, static_argnums=2)
def _follow(plant: KnownPlant, key: Any, episodes: int) -> Any:
    """p(n), and the largest effect of a deviation on the cost of n rounds later, along prior trajectories."""
    X, A = plant.B.shape

    def derivatives(x: Any, eta: Any) -> tuple[Any, Any, Any, Any]:
        a = prior(plant, x)
        closed = jax.jacfwd(lambda at: step(plant, at, prior(plant, at), eta))(x)
        pushed = jax.jacfwd(lambda act: step(plant, x, act, eta))(a)
        slope = jax.grad(lambda at: bare_cost(plant, at, prior(plant, at)))(x)
        now = jax.grad(lambda act: bare_cost(plant, x, act))(a)
        return closed, pushed, slope, now

    def advance(carry: Any, key: Any) -> Any:
        x, gaps, effects, p, cost_response = carry
        _, _, eta, _, after = _round(plant, x, key, dithered=False)
        closed, pushed, slope, now = jax.vmap(derivatives)(x, eta)
        # effects[:, n]: d x_h / d a_{h-1-n}; what they do to this round's cost is the response n + 1 rounds later.
        steep = 1.0 + plant.eta_c
        here = steep * jnp.linalg.norm(jnp.einsum("ex,enxa->ena", slope, effects), axis=2).max(axis=0)
        immediate = steep * jnp.linalg.norm(now, axis=1).max()
        cost_response = jnp.maximum(cost_response, jnp.concatenate([immediate[None], here]))
        gaps = jnp.einsum("exy,enyz->enxz", closed, gaps)
        p = jnp.maximum(p, jnp.concatenate([jnp.ones(1), spectral_norm(gaps).max(axis=0)]))
        identity = jnp.broadcast_to(jnp.eye(X), (episodes, 1, X, X))
        gaps = jnp.concatenate([identity, gaps[:, :-1]], axis=1)
        effects = jnp.einsum("exy,enya->enxa", closed, effects)
        effects = jnp.concatenate([pushed[:, None], effects[:, :-1]], axis=1)
        return (after, gaps, effects, p, cost_response), None

    keys = jax.random.split(key, ROUNDS + 1)
    gaps = jnp.zeros((episodes, LAGS, X, X)).at[:, 0].set(jnp.eye(X))
    first = (
        _start(plant, keys[0], episodes),
        gaps,
        jnp.zeros((episodes, LAGS, X, A)),
        jnp.zeros(LAGS + 1),
        jnp.zeros(LAGS + 1),
    )
    return jax.lax.scan(advance, first, keys[1:])[0][3:]


def spectral_norm(matrices: Any) -> Any:
    """Largest singular value of matrices [..., R, Z] with min(R, Z) <= 3, in closed form, which is fast for many."""
    rows, columns = matrices.shape[-2:]
    wide = matrices if rows <= columns else jnp.swapaxes(matrices, -1, -2)
    gram = wide @ jnp.swapaxes(wide, -1, -2)
    size = min(rows, columns)
    trace = jnp.trace(gram, axis1=-2, axis2=-1)
    if size == 1:
        return jnp.sqrt(trace)
    if size == 2:
        determinant = gram[..., 0, 0] * gram[..., 1, 1] - gram[..., 0, 1] ** 2
        return jnp.sqrt(0.5 * trace + jnp.sqrt(jnp.maximum(0.25 * trace**2 - determinant, 0.0)))
    centre = trace / 3.0
    rest = gram - centre[..., None, None] * jnp.eye(3)
    spread = jnp.sqrt(jnp.maximum(jnp.sum(rest**2, axis=(-2, -1)) / 6.0, 1e-300))
    angle = jnp.arccos(jnp.clip(0.5 * jnp.linalg.det(rest / spread[..., None, None]), -1.0, 1.0)) / 3.0
    return jnp.sqrt(centre + 2.0 * spread * jnp.cos(angle))
