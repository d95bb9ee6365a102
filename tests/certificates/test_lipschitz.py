"""The three rules against the paper's formulas, written out over the whole history."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tether.simulate.trees  # noqa: F401  (makes certificates PyTrees)
from tether import Contract, LipschitzCertificate, Sensitivity, geometric, table
from tether.core.ops import FLOATS, NUMPY, jax_ops

RULES = ("paper", "released", "tight")


class ByTheBook:
    """Corollary 4.2, the authors' code and condition (*), as sums over all rounds; nothing clever, nothing rounded."""

    def __init__(self, certificate):
        self.contract, self.bounds, self.rule = certificate.contract, certificate.bounds, certificate.rule
        self.d, self.c = [], []
        self.allowance = self.contract.earned

    def p(self, n):
        p = self.bounds.perturbation
        return p.scale * p.rho**n if hasattr(p, "rho") else p.values[n]

    def q(self, j, i):
        return self.bounds.immediate if i == j else self.bounds.carried * self.p(i - 1 - j)

    def gamma(self, j, n):
        return math.fsum(self.q(j, i) for i in range(n, self.contract.horizon + 1))

    def past(self, i, rounds):
        return math.fsum(self.q(j, i) * self.d[j - 1] for j in range(1, rounds + 1))

    def floor(self, i):
        return max(self.contract.cost_floor, self.c[i - 1] - self.past(i, i))

    def surplus(self):
        lam = self.contract.lam
        return math.fsum((1 + lam) * self.floor(i) - self.c[i - 1] for i in range(1, len(self.d) + 1))

    def radius(self):
        h, H = len(self.d) + 1, self.contract.horizon
        lam_eps, b = self.contract.lam * self.contract.cost_floor, self.contract.b
        if self.rule != "tight":
            return max(self.allowance, 0.0) / self.gamma(h, h)
        ratios = []
        for end in range(h, H + 1):
            spent = math.fsum(self.past(i, h - 1) for i in range(h, end + 1))
            slack = self.surplus() + (end - h + 1) * lam_eps + end * b - spent
            ratios.append(slack / math.fsum(self.q(h, i) for i in range(h, end + 1)))
        return max(min(ratios), 0.0)

    def update(self, deviation, cost):
        self.d.append(deviation)
        self.c.append(cost)
        h = len(self.d) + 1  # the round that comes
        lam_eps, b = self.contract.lam * self.contract.cost_floor, self.contract.b
        gone = math.fsum(self.gamma(i, h) * self.d[i - 1] for i in range(1, h))
        earlier = self.allowance + self.contract.earned - self.gamma(h - 1, h - 1) * deviation
        anew = self.surplus() - gone + lam_eps + (h * b if self.rule == "released" else b)
        self.allowance = max(earlier, anew)


@st.composite
def certificates(draw, longest=14):
    horizon = draw(st.integers(1, longest))
    rho = draw(st.one_of(st.floats(0.0, 1.4), st.sampled_from([0.0, 1.0, 1.0 - 1e-12])))
    p = draw(
        st.one_of(
            st.just(geometric(rho, draw(st.floats(1.0, 2.0)))),
            st.lists(st.floats(0.0, 2.0), min_size=horizon, max_size=horizon).map(lambda v: table([1.0, *v])),
        )
    )
    contract = Contract(
        lam=draw(st.sampled_from([0.0, 0.3, 2.0, 10.0])),
        b=draw(st.sampled_from([0.0, 0.5, 6.0])),
        horizon=horizon,
        cost_floor=draw(st.sampled_from([0.0, 1.0])),
    )
    bounds = Sensitivity(draw(st.floats(0.1, 40.0)), draw(st.floats(0.0, 10.0)), p)
    return LipschitzCertificate(contract, bounds, draw(st.sampled_from(RULES)))


SHARES = st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 50.0)), min_size=14, max_size=14)


@settings(max_examples=300, deadline=None)
@given(certificate=certificates(), rounds=SHARES)
def test_radii_are_those_of_the_sums_over_the_whole_history(certificate, rounds):
    book = ByTheBook(certificate)
    ops = certificate.online_ops
    assert ops is (FLOATS if hasattr(certificate.bounds.perturbation, "rho") else NUMPY)
    state = certificate.start(ops)
    for share, extra in rounds[: certificate.contract.horizon]:
        radius, expected = certificate.radius(state, ops), book.radius()
        scale = (state.magnitude + certificate.contract.horizon) / certificate.bounds.immediate
        assert radius <= expected * (1 + 1e-12) + 1e-12 * scale  # rounded inward ...
        assert radius == pytest.approx(expected, rel=1e-8, abs=1e-8 * scale)  # ... by very little
        deviation, cost = share * radius, certificate.contract.cost_floor + extra
        state = certificate.close(state, deviation, cost, ops)
        book.update(deviation, cost)


@settings(max_examples=300, deadline=None)
@given(certificate=certificates(), rounds=SHARES)
def test_for_the_same_history_paper_is_within_released_within_tight(certificate, rounds):
    nested = [dataclasses.replace(certificate, rule=rule) for rule in RULES]
    states = [each.start() for each in nested]
    for share, extra in rounds[: certificate.contract.horizon]:
        radii = [float(each.radius(state)) for each, state in zip(nested, states, strict=True)]
        room = 1e-8 * (states[0].magnitude + certificate.contract.horizon) / certificate.bounds.immediate
        assert 0.0 <= radii[0] <= radii[1] * (1 + 1e-8) + room
        assert radii[1] <= radii[2] * (1 + 1e-8) + room
        # The history is made by the largest of the three: the order holds for any history.
        deviation, cost = share * radii[2], certificate.contract.cost_floor + extra
        states = [each.close(s, deviation, cost) for each, s in zip(nested, states, strict=True)]


@settings(max_examples=200, deadline=None)
@given(certificate=certificates(), rounds=SHARES)
def test_whatever_was_played_the_prior_stays_safe(certificate, rounds):
    """Recursive feasibility: the margin with which every later bound is kept by the prior never becomes negative."""
    book = ByTheBook(dataclasses.replace(certificate, rule="tight"))
    state = certificate.start()
    for share, extra in rounds[: certificate.contract.horizon]:
        h = len(book.d) + 1
        for end in range(h, certificate.contract.horizon + 1):
            spent = math.fsum(book.past(i, h - 1) for i in range(h, end + 1))
            earned = (end - h + 1) * book.contract.lam * book.contract.cost_floor + end * book.contract.b
            assert book.surplus() + earned - spent >= -1e-9 * (state.magnitude + 1.0)
        deviation, cost = share * float(certificate.radius(state)), certificate.contract.cost_floor + extra
        state = certificate.close(state, deviation, cost)
        book.update(deviation, cost)


@pytest.mark.parametrize("rule", RULES)
def test_a_table_of_powers_is_geometric(rule):
    contract = Contract(1.0, 2.0, 20, 1.0)
    as_number = LipschitzCertificate(contract, Sensitivity(3.0, 2.0, geometric(0.7)), rule)
    as_table = LipschitzCertificate(
        contract, Sensitivity(3.0, 2.0, table([0.7**n for n in range(19)])), rule
    )  # fmt: skip
    rng = np.random.default_rng(0)
    number, tabled = as_number.start(), as_table.start()
    for _ in range(20):
        radius = as_number.radius(number)
        assert as_table.radius(tabled) == pytest.approx(radius, rel=1e-9)
        deviation, cost = radius * rng.random(), 1.0 + rng.exponential()
        number, tabled = as_number.close(number, deviation, cost), as_table.close(tabled, deviation, cost)


@settings(max_examples=150, deadline=None)
@given(
    rho=st.one_of(st.floats(0.0, 0.9999), st.sampled_from([1.0 - 1e-10, 1.0 - 1e-6, 0.999])),
    base=st.floats(0.0, 100.0),
    slope=st.one_of(st.just(0.0), st.floats(1e-9, 10.0)),
    memory_share=st.floats(0.0, 1.0),
    remaining=st.integers(1, 3000),
)
def test_bisection_finds_the_least_ratio_over_a_long_horizon(rho, base, slope, memory_share, remaining):
    p, immediate, carried = geometric(rho), 2.0, 3.0
    k = np.arange(1, remaining + 1)
    # As much memory as leaves every numerator at least 0, which is what a kept promise means.
    memory = memory_share * float(np.min((base + k * slope) / (carried * p.sum_over(k, NUMPY))))
    ratios = (base + k * slope - carried * p.carried_deviation_over(memory, k, NUMPY)) / (
        immediate + carried * p.sum_over(k - 1, NUMPY)
    )
    found = p.least_ratio(base, slope, immediate, carried, memory, remaining, 3000, NUMPY)
    assert found == pytest.approx(ratios.min(), rel=1e-9, abs=1e-10 * (base + slope * remaining))


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e-90, 1e90])
def test_the_least_ratio_does_not_depend_on_the_unit_of_cost(size):
    p = geometric(0.4)
    for base, slope, immediate, carried, memory in (
        (1.0, 0.05, 1.0, 3.0, 0.3), (5.0, 0.0, 3.0, 3.15, 1.2), (2.0, 1.0, 1.0, 40.0, 0.05),
    ):  # fmt: skip
        costs = (size * base, size * slope, size * immediate, size * carried)
        found = p.least_ratio(*costs, memory, 20.0, 20, FLOATS)
        assert found == pytest.approx(
            p.least_ratio(base, slope, immediate, carried, memory, 20.0, 20, FLOATS)
        )


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_one_compiled_program_serves_every_lam_and_b(rule):
    def radius_after(certificate):
        state = certificate.start(jax_ops(), jnp.zeros(()))
        state = certificate.close(state, 0.01, 1.5, jax_ops())
        return certificate.radius(state, jax_ops())

    def make(lam, b):
        bounds = Sensitivity(31.0, 2.875, geometric(0.25))
        return LipschitzCertificate(Contract(lam, b, 24, 1.0), bounds, rule)

    grid = [(lam, b) for lam in (0.0, 2.0, 10.0) for b in (2.0, 6.0)]
    with jax.enable_x64(True):
        stacked = jax.tree.map(lambda *leaves: jnp.asarray(leaves), *[make(*each) for each in grid])
        together = jax.jit(jax.vmap(radius_after))(stacked)
    for (lam, b), radius in zip(grid, together, strict=True):
        state = make(lam, b).start()
        state = make(lam, b).close(state, 0.01, 1.5)
        assert radius == pytest.approx(make(lam, b).radius(state), rel=1e-12)


def test_memory_does_not_grow_with_the_rounds_when_p_is_geometric():
    certificate = LipschitzCertificate(Contract(1.0, 1.0, 10_000), Sensitivity(1.0, 1.0, geometric(0.5)))
    state = certificate.start(FLOATS)
    for _ in range(100):
        state = certificate.close(state, 0.01, 1.0, FLOATS)
    assert all(type(field) in (float, bool) for field in state)


@pytest.mark.parametrize("cost", [math.nan, math.inf, -math.inf, 0.999, -1.0])
def test_after_a_cost_that_cannot_be_only_the_prior_is_safe(cost):
    certificate = LipschitzCertificate(Contract(1.0, 1.0, 5, 1.0), Sensitivity(1.0, 1.0, geometric(0.5)))
    state = certificate.close(certificate.start(), 0.1, cost)
    assert state.breached
    assert certificate.radius(state) == 0.0
    later = certificate.close(state, 0.0, 2.0)
    assert later.breached
    assert certificate.radius(later) == 0.0
    assert math.isfinite(later.surplus)


@pytest.mark.parametrize("p", [geometric(0.25, 1.5), table([1.0, 2.0, 0.1])])
def test_a_certificate_is_described_exactly(p):
    certificate = LipschitzCertificate(Contract(0.1, 1 / 3, 4, 0.7), Sensitivity(31.0, 2.875, p), "released")
    assert LipschitzCertificate.from_dict(certificate.to_dict()) == certificate
