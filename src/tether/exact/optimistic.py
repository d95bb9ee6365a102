"""ACRL, exact: the paper's Algorithm 2 for a finite class of transition functions and a linear-mixture model.

Each episode plans (`tether.exact.planning`) for the most optimistic theta of a confidence set, plays the greedy policy
through the guard, and refits theta-hat by value-targeted regression. `learn` runs it for all seeds in one compiled
program; its inner function `_learn_piece` follows the algorithm box line by line.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri

from tether.core import validate
from tether.exact.grid import Problem, evaluate_on_grid
from tether.exact.mixture import Floats
from tether.exact.planning import evaluate_policy, evaluate_random, iterate_values
from tether.exact.playing import play_episode
from tether.exact.simplex import finest_denominator, fit_moments, simplex_lattice

Variant = Literal["optimistic", "certainty-equivalent", "counting", "random"]


def log_covering_number(value_range: float, dimension: int, alpha: float) -> float:
    """Logarithm of a number of thetas such that every E_theta[V] is within alpha of one of theirs.

    Thetas with denominator n: rounding by largest remainders moves theta by at most d / (2 n) in the 1-norm, and
    <features, theta - theta'> by at most value_range / 2 times that, because theta - theta' sums to 0.
    """
    denominator = math.ceil(dimension * value_range / (4.0 * alpha))
    terms = (math.log1p(denominator / j) for j in range(1, dimension))
    return sum(terms)


Form = Literal["printed", "corrected"]
"""Of Theorem 5.2 and its beta: as the paper prints them, or with Vbar where it has H or Vbar H (see
`tether.exact.theory`)."""


def confidence_radius(
    value_range: float, horizon: int, dimension: int, episodes: int, delta: float, *, form: Form = "printed"
) -> float:
    """beta_k of Theorem 5.2; the same for every k.

        printed     2 (Vbar H)^2 log(2 N / delta) + C Vbar H
        corrected   2 Vbar^2     log(2 N / delta) + C Vbar

    Both with N the covering number of the class Q, whose members are at most Vbar apart, at alpha = 1/(KH
    log(KH/delta)), and C = 2 (2 + sqrt(log(4 (KH)^2 / delta))) / log(KH / delta).

    Derivation of the corrected one. The lemma that the paper cites (its C.4, of Ayoub et al. 2020), in its general
    form, is for least squares over functions of size at most S, with noise that is sigma-sub-Gaussian given the past:
    with probability 1 - delta the truth is, after t observations and for all t at once, within

        beta = 8 sigma^2 log(2 N / delta) + 4 t alpha (S + sqrt(sigma^2 log(4 t (t + 1) / delta)))

    The target V(s') lies in an interval of length Vbar, so that sigma = Vbar / 2 (Hoeffding's lemma), and S = Vbar:
    what all values share cancels in a difference of two models. That is 2 Vbar^2 log(2 N / delta) + 2 Vbar t alpha (2
    + sqrt(log(4 t (t + 1) / delta))), which with t + 1 <= KH is at most the formula above. For rewards in [0, 1] the
    length is H, and it is the paper's Lemma C.4. Only the scale of the values enters twice; N is that of Q either
    way.

    Args:
        value_range: Vbar, an upper bound of the values if they are at least 0; of their range otherwise.
        horizon: H.
        dimension: d, of theta.
        episodes: K.
        delta: The probability that the guarantee may fail with.
        form: `"printed"` or `"corrected"`.
    """
    value_range = validate.number("value_range", value_range, above=0.0)
    validate.choice("form", form, get_args(Form))
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be between 0 and 1, got {delta!r}")
    plays = episodes * horizon
    alpha = 1.0 / (plays * math.log(plays / delta))
    constant = 2.0 * (2.0 + math.sqrt(math.log(4.0 * plays**2 / delta))) / math.log(plays / delta)
    log_n = log_covering_number(value_range, dimension, alpha)
    scaled = value_range * horizon if form == "printed" else value_range
    return 2.0 * scaled**2 * (math.log(2.0 / delta) + log_n) + constant * scaled


def ellipsoid_radius(noise_range: float, dimension: int, delta: float) -> float:
    """The beta of the classical confidence ellipsoid, for comparison with the printed one: a choice of `scale`.

    The noise of the regression has a variance of at most noise_range^2 / 4 (Popoviciu), and theta has d - 1 free
    coordinates, so that (noise_range^2 / 4) times the 1 - delta quantile of chi^2_{d-1} covers the true theta in each
    episode, asymptotically, if not in all of them at once as the printed radius does.
    """
    return 0.25 * noise_range**2 * float(chdtri(max(dimension - 1, 1), delta))


def counting_radius(dimension: int, delta: float) -> float:
    """The same for `variant="counting"`, whose noise is the difference of two distributions over the functions.

    Its covariance diag(g) - g g' has no eigenvalue above 1/2, in the place of noise_range^2 / 4.
    """
    return ellipsoid_radius(math.sqrt(2.0), dimension, delta)


def value_range(problem: Problem) -> float:
    """Vbar: the sum over the rounds of the range of the reward over all states and actions of the grid."""
    with jax.enable_x64(True):
        rewards = np.asarray(evaluate_on_grid(problem.system, problem.resolution)["reward"])
    return float(np.sum(rewards.max(axis=(1, 2)) - rewards.min(axis=(1, 2))))


class Surface(eqx.Module):
    """V_1 at each initial state as a function of theta, tabulated on a lattice of the simplex.

    It depends on the problem and not on the data, so it is made once and serves every episode of every seed. Between
    lattice points it is interpolated linearly (Kuhn's triangulation).
    """

    denominator: int = eqx.field(static=True)
    points: Any
    """[J, d] the lattice."""
    table: Any
    """[I, ...] for each initial state (denominator + 1) ** (d - 1) values by tail sums of theta; 0 off the simplex."""
    values: Any
    """[I, J] the value at each of them."""
    noise_range: Any
    """Largest difference of V_{h+1}(s') between two transition functions that any plan of the lattice meets when it
    is played; over 32 sequences in which every function is as likely, whatever the true theta is."""
    features: Any
    """[N, d] the features E[V(s') | s, a] = <features, theta> that those plays met."""

    def __call__(self, theta: Any, first: Any) -> Any:
        """The interpolated value at theta [d] from the initial state with the index `first`."""
        dimension = self.points.shape[1]
        tails = jnp.flip(jnp.cumsum(jnp.flip(theta)))[1:] * self.denominator
        lower = jnp.clip(jnp.floor(tails), 0.0, self.denominator)
        fractions = jnp.clip(tails - lower, 0.0, 1.0)
        order = jnp.argsort(-fractions, stable=True)
        steps = jnp.concat([jnp.ones(1), fractions[order], jnp.zeros(1)])
        corner = lower.astype(jnp.int32)
        total: Any = 0.0
        for i in range(dimension):
            total = total + (steps[i] - steps[i + 1]) * self.table[(first, *corner)]
            if i < dimension - 1:
                corner = jnp.minimum(corner.at[order[i]].add(1), self.denominator)
        return total


def make_surface(problem: Problem, points: int = 300) -> Surface:
    """Tabulate the value at each initial state on the finest lattice of the simplex with at most `points` points."""
    system, dimension = problem.system, problem.system.dimension
    denominator = finest_denominator(dimension, points)
    lattice = simplex_lattice(dimension, denominator)
    draws = np.random.default_rng(0).integers(len(system.transitions), size=(32, system.horizon))
    starts, ranges, features = _values_of(problem, lattice, draws)
    tails = np.rint(np.flip(np.cumsum(np.flip(lattice, axis=1), axis=1), axis=1)[:, 1:] * denominator)
    table = np.zeros((len(starts), *(denominator + 1,) * (dimension - 1)))
    table[(slice(None), *tails.astype(int).T)] = starts
    with jax.enable_x64(True):
        numbers = (lattice, table, starts, ranges.max(), features.reshape(-1, dimension))
        return Surface(denominator, *(jnp.asarray(each) for each in numbers))


def _values_of(problem: Problem, thetas: Floats, draws: Any = None) -> tuple[Floats, Floats, Floats]:
    """V_1 at each initial state of J thetas; the largest range of the noise, and the features, met in `draws` [N, H].

    [I, J], [J] and [J, N, H, d]; without draws no noise and no features are met. Episode n begins in the initial state
    n modulo I.
    """
    count, size = len(thetas), 16
    padded = np.concatenate([thetas, np.broadcast_to(thetas[:1], (-count % size, thetas.shape[1]))])
    sequences = np.zeros((0, problem.system.horizon), dtype=np.int64) if draws is None else draws
    with jax.enable_x64(True):
        batches = jnp.asarray(padded.reshape(-1, size, thetas.shape[1]))
        answers = _compiled_values_of(problem, batches, jnp.asarray(sequences))
        starts, ranges, features = (np.concatenate(np.asarray(each))[:count] for each in answers)
        return starts.T, ranges, features


@eqx.filter_jit
def _compiled_values_of(problem: Problem, batches: Any, draws: Any) -> Any:
    firsts = jnp.arange(len(draws)) % len(problem.system.initial)

    def meet(values: Any, theta: Any) -> tuple[Any, Any]:
        play_each: Any = jax.vmap(lambda first, each: play_episode(problem, values, theta, first, each))
        played = play_each(firsts, draws)
        return jnp.max(played.spread, initial=0.0), played.features

    def one_batch(thetas: Any) -> tuple[Any, Any, Any]:
        planned = iterate_values(problem, thetas)
        return planned.starts.T, *jax.vmap(meet, (-1, 0))(planned.values, thetas)

    return jax.lax.map(one_batch, batches)


def _pull(points: Any, centre: Any, gram: Any, beta: Any) -> Any:
    """Each point of the simplex [J, d], moved along the line to `centre` just into the confidence set around it."""
    step = points - centre
    distance = jnp.einsum("ji,ik,jk->j", step, gram, step)
    share = jnp.sqrt(beta / jnp.maximum(distance, beta))
    return centre + share[:, None] * step


def _most_optimistic(surface: Surface, gram: Any, estimate: Any, beta: Any, first: Any) -> Any:
    """The theta [d] of the confidence set with the highest interpolated value at the initial state `first`.

    Candidates: the estimate, the lattice pulled into the set and half-way there; then, twice, points between the best
    one so far and the others. The set is convex and so contains them all.
    """
    pulled = _pull(surface.points, estimate, gram, beta)
    candidates = jnp.concat([estimate[None], pulled, (pulled + estimate) / 2.0])
    value: Any = jax.vmap(lambda theta: surface(theta, first))
    best = candidates[jnp.argmax(value(candidates))]
    for share in (0.3, 0.1):
        nearby = jnp.concat([best[None], best + share * (pulled - best)])
        best = nearby[jnp.argmax(value(nearby))]
    return best


def optimism_gap(
    problem: Problem, gram: Any, estimate: Any, beta: float, chosen: Any, first: int = 0, points: int = 1000
) -> float:
    """How much V_1 at an initial state is gained over `chosen` by trying a dense lattice in the confidence set.

    Args:
        problem: The problem.
        gram: [d, d] sum of the outer products of the features.
        estimate: [d] theta-hat.
        beta: Squared radius of the set.
        chosen: [d] the theta that was taken for the most optimistic one.
        first: Index of the initial state that it was chosen for.
        points: Largest size of the lattice; it is pulled into the set, and half-way there too.
    """
    dimension = problem.system.dimension
    denominator = finest_denominator(dimension, points)
    with jax.enable_x64(True):
        centre = jnp.asarray(estimate, dtype=float)
        lattice = jnp.asarray(simplex_lattice(dimension, denominator))
        pulled = np.asarray(_pull(lattice, centre, jnp.asarray(gram), beta))
    tried = np.concatenate([np.atleast_2d(chosen), pulled, (pulled + np.asarray(estimate)) / 2.0])
    starts = _values_of(problem, tried)[0][first]
    return float(starts.max() - starts[0])


# Algorithm 2.


@dataclass(frozen=True)
class Learning:
    """What S seeds learnt in K episodes each; rewards and costs are of the continuous system."""

    variant: Variant
    beta: float
    """Squared radius of the confidence set."""
    firsts: NDArray[np.int64]
    """[S, K] index of the initial state that nature drew."""
    values: Floats
    """[S, K] value at that state, under the true theta, of the policy that each episode played."""
    greedy_values: Floats
    """[S, K] value of the greedy policy; other than `values` only where proposals were random."""
    optimistic_values: Floats
    """[S, K] value that the plan promised itself, V_1 under the chosen theta."""
    estimates: Floats
    """[S, K, d] theta-hat before each episode."""
    chosen: Floats
    """[S, K, d] the theta that each episode planned for."""
    grams: Floats
    """[S, K, d, d] the confidence set's quadratic form before each episode."""
    covered: NDArray[np.bool_]
    """[S, K] whether the true theta was in the confidence set."""
    rewards: Floats
    """[S, K, H]."""
    costs: Floats
    """[S, K, H]."""
    prior_costs: Floats
    """[S, K, H] of the prior, replayed on the same draws."""
    largest_spread: float
    """Largest range of the regression's noise that was met; known before each draw."""


class _Knowledge(NamedTuple):
    gram: Any
    """[S, d, d]."""
    moment: Any
    """[S, d]."""


def learn(
    problem: Problem,
    theta: Any,
    episodes: int,
    seeds: Sequence[int],
    *,
    variant: Variant = "optimistic",
    beta: float,
    surface: Surface | None = None,
    report: Callable[[int], None] = lambda _done: None,
) -> Learning:
    """Run Algorithm 2 for `episodes` episodes, all seeds at once, in one compiled program.

    Args:
        problem: The system behind its guard, on a grid.
        theta: [d] what nature draws with; the algorithm does not see it.
        episodes: K.
        seeds: Each has its own draws, the same for every variant.
        variant: `"optimistic"`, Algorithm 2; `"certainty-equivalent"`, plans for theta-hat; `"counting"`, optimistic,
            but fits theta-hat to which functions were drawn, and not to values, as the deep learner does
            (`tether.learn.model`); `"random"`, proposes uniformly random actions to the guard and fits theta-hat to
            what comes.
        beta: Squared radius of the confidence set, `scale * confidence_radius(...)`; for `"counting"` in the units of
            its own sum, `counting_radius(...)`.
        surface: From `make_surface`; made here if it is None.
        report: Called with the number of episodes done, after every piece of work.
    """
    true = problem.system.check_theta(theta)
    _check_learning(problem, episodes, variant, beta)
    surface = make_surface(problem) if surface is None else surface
    seeds = [validate.count("seed", seed, minimum=0) for seed in seeds]
    horizon, dimension = problem.system.horizon, problem.system.dimension
    # Pieces of one size share one compiled program; what is played beyond the last episode is dropped.
    piece = min(episodes, 50)
    padded = -(-episodes // piece) * piece
    draws = np.stack([problem.system.draw(true, seed, (padded, horizon)) for seed in seeds], axis=1)
    firsts = np.stack([problem.system.draw_initial(seed, (padded,)) for seed in seeds], axis=1)
    imposed = _imposed(problem, variant, seeds, padded, piece)
    pieces: list[Any] = []
    with jax.enable_x64(True):
        # One program serves every variant: they differ in data.
        flags = (variant in ("optimistic", "counting"), variant == "counting")
        numbers = (jnp.asarray(true), jnp.asarray(beta, dtype=float), *map(jnp.asarray, flags))
        knowledge = _Knowledge(
            jnp.zeros((len(seeds), dimension, dimension)), jnp.zeros((len(seeds), dimension))
        )
        for begin in range(0, padded, piece):
            now = tuple(jnp.asarray(each[begin : begin + piece]) for each in (firsts, draws, imposed))
            knowledge, seen = _learn_piece(problem, surface, numbers, knowledge, now)
            pieces.append(jax.tree.map(np.asarray, seen))
            report(min(begin + piece, episodes))
        uniform = np.asarray(evaluate_random(problem, numbers[0]))
    gathered = jax.tree.map(lambda *each: np.swapaxes(np.concatenate(each)[:episodes], 0, 1), *pieces)
    greedy_values, began = gathered.pop("greedy_values"), firsts[:episodes].T
    values = uniform[began] if variant == "random" else greedy_values
    spread = float(gathered.pop("spread").max())
    return Learning(variant, beta, began, values, greedy_values, largest_spread=spread, **gathered)


def _imposed(
    problem: Problem, variant: Variant, seeds: Sequence[int], episodes: int, piece: int
) -> NDArray[np.int64]:
    """[K, S, H] indices of the proposals to play: random ones of each seed, drawn piece by piece, or -1 for greedy."""
    horizon = problem.system.horizon
    if variant != "random":
        return np.full((episodes, len(seeds), horizon), -1)
    made = []
    for seed in seeds:
        rng = np.random.default_rng([1, seed])
        drawn = [
            rng.integers(problem.resolution.actions, size=(piece, horizon)) for _ in range(episodes // piece)
        ]
        made.append(np.concatenate(drawn))
    return np.stack(made, axis=1)


def _check_learning(problem: Problem, episodes: int, variant: str, beta: float) -> None:
    validate.choice("variant", variant, get_args(Variant))
    validate.count("episodes", episodes)
    validate.number("beta", beta, above=0.0)
    if problem.certificate is None:
        raise ValueError("Algorithm 2 plays through the guard; prepare the problem with a certificate")
    if problem.system.dimension > 12:
        raise ValueError(
            f"theta may have at most 12 entries (every support is tried), got {problem.system.dimension}"
        )


@eqx.filter_jit
def _learn_piece(problem: Problem, surface: Surface, numbers: Any, knowledge: Any, episodes: Any) -> Any:
    """Some episodes of Algorithm 2; comments give the lines of its box.

    Args:
        problem: The problem.
        surface: The value at the start as a function of theta.
        numbers: The true theta, beta, whether to be optimistic, and whether to count draws instead of targeting values.
        knowledge: The regression's sums before the first of these episodes.
        episodes: [K, S] and [K, S, H] what nature draws: the initial state and each round's transition function; and
            [K, S, H] indices of random proposals, -1 for greedy ones.
    """
    true, beta, hopeful, counting = numbers
    mixture = jnp.asarray(problem.system.mixture)

    def one_episode(known: _Knowledge, now: Any) -> tuple[_Knowledge, dict[str, Any]]:
        # Line 3: the initial state is seen.
        first, drawn, random = now
        # Line 10 of the episode before: theta-hat, and with it the confidence set.
        estimates = jax.vmap(fit_moments)(known.gram, known.moment)
        # Line 4: the most optimistic theta of the set.
        choose: Any = jax.vmap(
            lambda gram, estimate, each: _most_optimistic(surface, gram, estimate, beta, each)
        )
        chosen = jnp.where(hopeful, choose(known.gram, estimates, first), estimates)
        # Line 5: value iteration.
        planned = iterate_values(problem, chosen)
        # Lines 6 to 9: play the greedy policy through ACD and see where it leads.
        values = jnp.moveaxis(planned.values, -1, 0)
        play_each: Any = jax.vmap(functools.partial(play_episode, problem))
        played = play_each(values, chosen, first, drawn, random)
        # Line 10: the regression's sums.
        gram = jnp.einsum("shi,shj->sij", played.features, played.features)
        moment = jnp.einsum("shi,sh->si", played.features, played.target)
        # Counting: E[which function was drawn] = phi theta, an equation for each function in each round.
        gram = known.gram + jnp.where(counting, drawn.shape[1] * mixture.T @ mixture, gram)
        moment = known.moment + jnp.where(counting, jnp.sum(mixture[drawn], axis=1), moment)
        error, seeds = true - estimates, jnp.arange(len(estimates))
        seen = {
            "greedy_values": evaluate_policy(problem, planned.greedy, true)[first, seeds],
            "optimistic_values": planned.starts[first, seeds],
            "estimates": estimates,
            "chosen": chosen,
            "grams": known.gram,
            "covered": jnp.einsum("si,sij,sj->s", error, known.gram, error) <= beta,
            "rewards": played.reward,
            "costs": played.cost,
            "prior_costs": played.prior_cost,
            "spread": jnp.max(played.spread, axis=1),
        }
        return _Knowledge(gram, moment), seen

    return jax.lax.scan(one_episode, knowledge, episodes)
