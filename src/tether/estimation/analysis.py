"""From what was kept of a log to the constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial import cKDTree

from tether.estimation.estimates import MEANINGS, Estimate, Estimates, Impulse
from tether.estimation.extremes import Tail, fit_tail
from tether.estimation.local_slopes import Field, contraction_norm, fit_field, norms, shrink
from tether.estimation.log_summary import LogSummary
from tether.estimation.response import COST, NEXT_STATE, Direction, Response, fit_response

Floats = NDArray[np.float64]


class Analysis:
    """Every constant from the sample of a log and what else its summary holds."""

    def __init__(
        self,
        summary: LogSummary,
        confidence: float,
        safety: float,
        times: float,
        seed: int,
        known: Mapping[str, float],
    ) -> None:
        self.known = known
        self.summary, self.confidence, self.safety = summary, confidence, safety
        columns = summary.columns
        rows = summary.sample.result()
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        sizes = [1, 1, len(columns.state), len(columns.context), len(columns.action), len(columns.prior)]
        order, cost, self.state, context, self.action, self.prior, self.next_state = np.split(
            rows, np.cumsum(sizes), axis=1
        )
        self.order, self.cost = order[:, 0].astype(np.int64), cost[:, 0]
        # The sample is a part of the log: the same return period is more of its lengths.
        self.times = times * summary.rows / len(rows)
        self.requested_times = times
        self.random = np.random.default_rng(seed)
        self.quantile = float(stats.norm.ppf(confidence))
        self.warnings: list[str] = []
        self.slopes: dict[str, Floats] = {}
        self.tails: dict[str, Tail] = {}
        self.context = context[:, np.ptp(context, axis=0) > 0.0]
        still = np.ptp(self.state, axis=0) <= 0.0
        if np.any(still):
            name = columns.state[int(np.argmax(still))]
            raise ValueError(
                f"state column {name!r} never varies; leave it out, or log operation in which it does"
            )
        conditions = np.hstack([self.state, self.context])
        self.places = (conditions - conditions.mean(axis=0)) / conditions.std(axis=0)
        self.conditions = conditions

    def run(self) -> Estimates:
        """Estimate every constant of the guard from the log."""
        prior_field, deviation, dither_missing = self._prior_and_deviation()
        response = fit_response(
            self.places,
            self.conditions,
            deviation,
            np.column_stack([self.cost, self.next_state]),
            prior_field,
            self.random,
            states=self.state.shape[1],
            dithered=not dither_missing,
            tail=self._tail(order=False),
        )
        found = self._slopes(response, prior_field, dither_missing)
        impulse = self.summary.impulse()
        found["rho"], scale = self._contraction(response, found["L_f_action"], impulse)
        found["cost_floor"] = self._floor(response.least_costs)
        for name, value in self.known.items():
            found[name] = Estimate(name, value, value, value, value, 0, "known: given, not estimated")
        if "rho" in self.known:
            scale = 1.0
        self._check_log(found)
        warnings = [*self.warnings, *(text for each in found.values() for text in each.warnings)]
        return Estimates(
            constants={name: found[name] for name in MEANINGS},
            scale=scale,
            impulse=impulse,
            columns=self.summary.columns,
            rows=self.summary.rows,
            # Without a column of next states the last round of each episode was left out.
            rounds=self.summary.longest_episode + (0 if self.summary.columns.next_state else 1),
            confidence=self.confidence,
            safety=self.safety,
            times=self.requested_times,
            warnings=tuple(dict.fromkeys(warnings)),
            mean_cost=float(self.cost.mean()),
            actions=float(np.linalg.norm(np.ptp(self.action, axis=0))),
            slopes=self.slopes,
            tails=self.tails,
        )

    def _slopes(self, response: Response, prior_field: Field, dither_missing: str) -> dict[str, Estimate]:
        """The constants that are slopes of one round; those in an action need a dither."""
        found: dict[str, Estimate] = {}

        def add(name: str, direction: Direction, of: slice) -> None:
            found[name] = self._supremum(name, response.field, *response.steepest(direction, of))

        add("L_c_prior", "state", COST)
        found["L_pi"] = self._prior_slope(prior_field)
        if dither_missing:
            for name in ("immediate", "L_f_action", "L_c_state", "L_f_state", "carried"):
                found[name] = self._unidentified(name, dither_missing)
            return found
        add("immediate", "action", COST)
        add("L_f_action", "action", NEXT_STATE)
        add("L_c_state", "state, action held", COST)
        add("L_f_state", "state, action held", NEXT_STATE)
        found["carried"] = self._carried(found["L_c_prior"], found["L_f_action"])
        return found

    def _tail(self, *, order: bool = True) -> dict[str, Any]:
        options: dict[str, Any] = {"times": self.times, "confidence": self.confidence}
        return options | ({"order": self.order} if order else {})

    def _prior_and_deviation(self) -> tuple[Field, Floats, str]:
        """The prior's local slopes, the deviation of every row, and why actions say nothing if they do not."""
        logged = bool(self.summary.columns.prior)
        target = self.prior if logged else self.action
        prior_field = fit_field(self.places, self.conditions, target, self.random)
        if logged:
            deviation = self.action - self.prior
        else:
            deviation = self.action - prior_field.level(self.conditions)
            self.warnings.append(
                "the prior's action is not logged: it was taken to be the mean action at each state, and p(n) could "
                "not be checked against impulse responses; add a column prior"
            )
        spread = self.action.std(axis=0)
        size = np.where(spread > 0.0, spread, np.abs(self.action).mean(axis=0) + 1e-300)
        flat = deviation.std(axis=0) < (1e-6 if logged else 1e-2) * size
        if not np.any(flat):
            return prior_field, deviation, ""
        place = int(np.argmax(flat))
        name = self.summary.columns.action[place]
        return (
            prior_field,
            deviation,
            f"{name} never varies independently of the state, so what an action does cannot be told from what the "
            "state does; add a dither: play the prior's action plus a uniform random number of about "
            f"+-{0.2 * size[place]:.2g} and log both",
        )

    def _unidentified(self, name: str, why: str) -> Estimate:
        return Estimate(name, None, None, None, None, 0, "not identified", (why,))

    def _supremum(self, name: str, field_: Field, matrices: Floats, deviations: Floats) -> Estimate:
        """The largest norm of local slopes, extrapolated."""
        lengths, errors = norms(matrices, deviations)
        return self._extrapolate(name, field_, lengths, errors, self.safety)

    def _extrapolate(
        self, name: str, field_: Field, lengths: Floats, errors: Floats, safety: float
    ) -> Estimate:
        everywhere = field_.interpolate(lengths)
        tail = fit_tail(everywhere, **self._tail())
        steep = lengths >= np.quantile(lengths, 0.95)
        error = float(np.median(errors[steep]))
        self.slopes[name], self.tails[name] = everywhere, tail
        high = tail.upper + self.quantile * error
        warnings = []
        if error > 0.25 * tail.level:
            warnings.append(
                f"{name} is known to +-{100 * error / tail.level:.0f} % only: log more rounds, or, where it is the "
                "slope in an action, a larger dither"
            )
        return Estimate(
            name=name,
            value=tail.level,
            low=max(float(np.max(everywhere)) - self.quantile * error, 0.0),
            high=high,
            recommended=safety * high,
            evidence=len(everywhere),
            method=(
                f"{len(lengths)} local fits of {field_.neighbours} rows; tail of {tail.peaks} peaks, "
                f"shape {tail.shape:.2f}; standard error {error:.2g}"
            ),
            warnings=tuple(warnings),
        )

    def _carried(self, cost: Estimate, gain: Estimate) -> Estimate:
        """Slope of the cost in the state under the prior, times that of the next state in the action."""
        numbers = [
            float(one) * float(other)
            for one, other in ((cost.value, gain.value), (cost.low, gain.low), (cost.high, gain.high))
            if one is not None and other is not None
        ]
        value, low, high = numbers
        return Estimate(
            "carried",
            value,
            low,
            high,
            self.safety * high,
            min(cost.evidence, gain.evidence),
            "L_c_prior * L_f_action",
            (),
        )

    def _contraction(
        self, response: Response, gain: Estimate, impulse: Impulse | None
    ) -> tuple[Estimate, float]:
        """p(n) = scale * rho^n from closed-loop slopes of one round, checked against impulse responses."""
        field_ = response.field
        jacobians, errors = response.steepest("state", NEXT_STATE)
        change, condition = contraction_norm(jacobians[: field_.drawn])
        inverse = np.linalg.inv(change)
        turned = change @ jacobians @ inverse
        spread = np.sqrt(change**2 @ errors**2 @ inverse**2)
        lengths, deviations = norms(turned, spread)
        found = self._extrapolate("rho", field_, lengths, deviations, 1.0)
        assert found.high is not None
        assert found.value is not None
        rho = stretch(found.high, self.safety)
        warnings = list(found.warnings)
        if rho >= 1.0:
            warnings.append(
                f"rho is {rho:.3g}: gaps may grow under the prior, or the log is too short or too noisy to see that "
                "they do not; the guard will leave little freedom"
            )
        if impulse is not None and gain.recommended is not None:
            needed = slowest_decay(impulse, gain.recommended * condition)
            if needed > rho:
                warnings.append(
                    f"deviations last longer than one round's slopes say (rho {rho:.3g}, seen {needed:.3g}): the "
                    "logged state is not the whole state; log what else changes"
                )
                rho = needed
        method = found.method + (
            "" if condition <= 1.0 + 1e-9 else f"; in coordinates of condition {condition:.2f}"
        )
        made = Estimate(
            "rho", found.value, found.low, found.high, rho, found.evidence, method, tuple(warnings)
        )
        return made, max(condition, 1.0)

    def _prior_slope(self, prior_field: Field) -> Estimate:
        """The slope of the prior: exact pairs if its action was logged, else the slope of the mean action."""
        states = self.state.shape[1]
        slopes = prior_field.slopes.mean[..., :states]
        errors = np.sqrt(prior_field.slopes.variance[..., :states])
        if not self.summary.columns.prior:
            mean, left = shrink(prior_field, prior_field.slopes.mean, prior_field.slopes.variance)
            return self._supremum("L_pi", prior_field, mean[..., :states], left[..., :states])
        found = self._supremum("L_pi", prior_field, slopes, errors)
        assert found.value is not None
        assert found.low is not None
        assert found.high is not None
        rate, steepest = self._pairs(found.value)
        if rate > 3.0:
            warning = (
                "the prior's action is not a function of the logged state and context (near states have actions that "
                f"are {rate:.0f} times as far apart as its slope allows): log what else it sees"
            )
            return Estimate(
                **(
                    asdict(found)
                    | {"warnings": (*found.warnings, warning), "method": found.method + "; noisy prior"}
                )
            )
        # A slope between two logged pairs is exact, and no Lipschitz constant is below it.
        value, high = max(found.value, steepest), max(found.high, steepest)
        method = f"{found.method}; steepest of the exact pairs {steepest:.4g}"
        return Estimate(
            "L_pi",
            value,
            max(found.low, steepest),
            high,
            self.safety * high,
            found.evidence,
            method,
            found.warnings,
        )

    def _pairs(self, slope: float) -> tuple[float, float]:
        """How far apart the prior's actions of nearest neighbours are, beside `slope`; and the steepest exact pair."""
        _, near = cKDTree(self.places).query(self.places, k=2)
        other = near[:, 1]
        distance = np.linalg.norm(self.conditions - self.conditions[other], axis=1)
        moved = np.linalg.norm(self.prior - self.prior[other], axis=1)
        told = distance > 1e-4 * float(np.linalg.norm(self.conditions.std(axis=0)))
        if not np.any(told):
            return 0.0, 0.0
        ratios = moved[told] / distance[told]
        rate = float(np.median(ratios)) / slope if slope > 0.0 else 0.0
        # With context the two differ in more than the state, and their slope is not the one in the state.
        return (rate, float(ratios.max())) if not self.context.shape[1] else (0.0, 0.0)

    def _floor(self, reached: Floats) -> Estimate:
        """The lower end of the costs: of those logged, and of the fitted level less the largest draw."""
        lowest = self.summary.lowest.result()
        costs, order = lowest[:, 0], lowest[:, 1].astype(np.int64)
        smallest, median = float(costs[0]), float(np.median(self.cost))
        tied = int(np.count_nonzero(costs <= smallest + 1e-12 * max(abs(smallest), 1.0)))
        if tied >= 20:
            recommended, warnings = self._sound_floor(smallest)
            return Estimate(
                "cost_floor",
                smallest,
                smallest,
                smallest,
                recommended,
                tied,
                f"{tied} rounds cost exactly this",
                warnings,
            )
        share = min(1.0, (len(costs) - 1) / self.summary.rows)
        tail = fit_tail(
            -costs,
            order=order,
            share=1.0,
            times=self.requested_times,
            confidence=self.confidence,
            peaks=min(400, len(costs) - 2),
        )
        worst = fit_tail(-reached, **self._tail())
        low = min(-tail.upper, -worst.upper)
        self.slopes["cost_floor"], self.tails["cost_floor"] = -costs, tail
        recommended, warnings = self._sound_floor(median - self.safety * (median - low))
        return Estimate(
            name="cost_floor",
            value=-tail.level,
            low=low,
            high=smallest,
            recommended=recommended,
            evidence=self.summary.rows,
            method=(
                f"tail of the {tail.peaks} lowest peaks of {share:.2%} of the costs; fitted level less the largest "
                f"draw {-worst.level:.4g}; the depth below the median times {self.safety:g}"
            ),
            warnings=warnings,
        )

    def _sound_floor(self, floor: float) -> tuple[float, tuple[str, ...]]:
        if float(self.cost.min()) < 0.0:
            return 0.0, (
                f"costs go down to {float(self.cost.min()):.4g}: a contract needs costs of at least 0; add a constant "
                "to them",
            )
        return max(floor, 0.0), ()

    def _check_log(self, found: Mapping[str, Estimate]) -> None:
        """Warnings about the log as a whole."""
        summary = self.summary
        if summary.consecutive < 0.2 * summary.rows:
            self.warnings.append(
                f"only {summary.consecutive} of {summary.rows} rows follow the row before them: sort the log by "
                "episode and round so that p(n) can be checked"
            )
        elif summary.moved > 0.01 * summary.consecutive:
            self.warnings.append(
                f"in {summary.moved} rows the next state is not the state of the next row: check the columns"
            )
        if summary.deviations and found["immediate"].identified:
            follows = summary.dither_follows_state()
            if follows > 0.05 + 4.0 / math.sqrt(summary.rows):
                self.warnings.append(
                    f"the deviation from the prior goes with the state (correlation {follows:.2f}): impulse responses "
                    "are then biased; a dither must be drawn independently"
                )


def stretch(rho: float, safety: float) -> float:
    """Rho with its reach 1 / (1 - rho) longer by the factor `safety`; above 1 its growth is.

    Example:
        >>> round(stretch(0.8, 1.25), 3)
        0.84
    """
    return 1.0 - (1.0 - rho) / safety if rho < 1.0 else 1.0 + (rho - 1.0) * safety


def slowest_decay(impulse: Impulse, first: float) -> float:
    """The smallest rho with which first * rho^n stays above every measured response that is told from noise."""
    seen = impulse.state - 3.0 * impulse.state_error
    rates = [(value / first) ** (1.0 / n) for n, value in enumerate(seen) if n > 0 and value > 0.0]
    return max(rates, default=0.0)
