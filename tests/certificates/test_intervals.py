"""What each operation does to ranges and slopes, against dense samples of the operation itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tether.certificates.enclosures import CannotBound
from tether.certificates.intervals import UNARY, Interval, meet, outward, times, unrounded
from tether.certificates.primitives import RULES
from tether.certificates.programs import Program, dense, enclose

ONE = {
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "sqrt": jnp.sqrt,
    "tanh": jnp.tanh,
    "logistic": jax.nn.sigmoid,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "square": jnp.square,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "atan": jnp.arctan,
    "cbrt": jnp.cbrt,
    "sign": jnp.sign,
}
POSITIVE = {"log": 1e-3, "log1p": -0.99, "sqrt": 0.0}
"""From where on the function is a number."""
MATRIX = np.array([[1.0, -2.0], [0.5, 3.0]])
SEVERAL = {
    "add": lambda u: u[:1] + u[1:],
    "sub": lambda u: u[:1] - u[1:],
    "mul": lambda u: u[:1] * u[1:],
    "div": lambda u: u[:1] / (5.0 + u[1:]),
    "neg": lambda u: -u,
    "max": lambda u: jnp.maximum(u[:1], u[1:]),
    "min": lambda u: jnp.minimum(u[:1], u[1:]),
    "clamp": lambda u: jax.lax.clamp(jnp.asarray(-1.0, u.dtype), u, u[0]),
    "abs": lambda u: abs(u),
    "integer_pow": lambda u: jnp.concatenate([u**3, u**4, (5.0 + u) ** -2]),
    "pow": lambda u: jnp.concatenate([(5.0 + u[:1]) ** (0.1 * u[1:]), u**2.0]),
    "not": lambda u: jnp.where(~(u > 0.5), u, -u),
    "and": lambda u: jnp.where((u > 0.5) & (u < 2.0), u, -u),
    "or": lambda u: jnp.where((u > 0.5) | (u < -2.0), u, -u),
    "select_n": lambda u: jnp.where(u > 1.0, 3.0, 7.0),
    "convert_element_type": lambda u: (u >= 1.0).astype(u.dtype) * 2.0,
    "round": lambda u: jnp.round(u) + jax.lax.round(u),
    "dot_general": lambda u: jnp.asarray(MATRIX, u.dtype) @ u * (u @ u),
    "reduce_sum": lambda u: jnp.sum(u * u)[None],
    "reduce_max": lambda u: jnp.max(u)[None],
    "reduce_min": lambda u: jnp.min(u)[None],
    "concatenate": lambda u: jnp.concatenate([u * u, u]),
    "stack": lambda u: jnp.stack([u[0] * u[1], u[0]]),
    "pad": lambda u: jnp.pad(u * u, (1, 1)),
    "rem": lambda u: jax.lax.rem(u, jnp.full_like(u, 0.75)),
    "gather": lambda u: (u * u)[np.array([1, 0])],
    "dynamic_slice": lambda u: jax.lax.dynamic_slice(u * u, (1,), (1,)),
    "cumsum": lambda u: jnp.cumsum(u * u),
    "single numbers": lambda u: jnp.concatenate(
        [
            u[0] * u,
            u[1] + u * u,
            jnp.maximum(u[0], u),
            u / (5.0 + u[0]),
            jnp.where(u[0] > 0.3, u, u[1]),
            u - u[0],
        ]
    ),
    "scan": lambda u: jax.lax.scan(lambda c, v: (0.5 * c + v, c * v), u[0], u)[1],
    "norms": lambda u: jnp.concatenate(
        [
            jnp.linalg.norm(jnp.asarray(MATRIX, u.dtype) @ u - 1.0)[None],
            jnp.sqrt((u[:1] - 0.5) ** 2 + u[1:] ** 2 + 0.25),
            jnp.sqrt(jnp.square(u[:1]) + u[1:] ** 2),
            jnp.linalg.norm(jnp.stack([u, u * u]), axis=0),
        ]
    ),
}
QUICKLY = {"xla_backend_optimization_level": 0}
"""Compiling takes all of the time."""
WIDTHS = (0.0, 1e-3, 0.3, 2.0)


def bounded(program, box):
    """`enclose` as one program, as certificates use it: operation by operation it would be some sixty of them."""
    return jax.jit(lambda box: enclose(program, box), compiler_options=QUICKLY)(box)


def told(program, box):
    """What a program of one result tells of it, ranges and slopes; as one program too."""
    return jax.jit(lambda box: program.enclosed(box, True)[0], compiler_options=QUICKLY)(box)


def drawn_boxes(start, dimensions, count=24):
    """[count, d] ends: any, at whole and half numbers (kinks and jumps), of all widths, single numbers among them."""
    rng = np.random.default_rng(1)
    low = rng.uniform(start, 3.0, (count, dimensions))
    low[::3] = np.maximum(np.round(2.0 * low[::3]) / 2.0, start)
    return low, low + rng.choice(WIDTHS, (count, dimensions))


def require_held(function, low, high, dtype, tolerance=0.0):
    """Over every box ranges hold all samples, and f(u) - f(v) is in slopes (u - v)."""
    low, high = (np.asarray(each, dtype) for each in (low, high))
    rng = np.random.default_rng(0)
    share = np.concatenate([rng.integers(0, 2, (8, low.shape[1])), rng.random((32, low.shape[1]))])
    points = np.clip(low[:, None] + share * (high - low)[:, None], low[:, None], high[:, None]).astype(float)
    with jax.enable_x64(True):
        program = Program(function, low.shape[1], dtype)
        boxes = Interval(jnp.asarray(low), jnp.asarray(high))

        def looked_at(box, samples):
            best, found = enclose(program, box)
            # Slopes [d, m] for every input, and samples [n, m] in float64.
            return best, found, dense(found, program.sizes), jax.vmap(function)(samples)

        compiled = jax.jit(jax.vmap(looked_at), compiler_options=QUICKLY)
        best, found, slope, values = compiled(boxes, jnp.asarray(points))
        values = np.asarray(values)
    for bound in (best, found.range):
        ends = [np.asarray(end, float)[:, None] for end in bound]
        slack = tolerance * (1.0 + abs(values))
        bad = ~((ends[0] <= values + slack) & (values <= ends[1] + slack))
        assert not np.any(bad), (low[np.any(bad, (1, 2))][0], high[np.any(bad, (1, 2))][0])
    if not found.slopes:
        return
    with np.errstate(invalid="ignore"):
        away = (points[:, :, None] - points[:, None])[..., None]  # [B, n, n, d, 1]
        ends = [np.asarray(end, float)[:, None, None] for end in slope]
        moved = [np.where(away == 0.0, 0.0, away * end) for end in ends]
        rise = values[:, :, None] - values[:, None]
        slack = 1e-12 * (1.0 + abs(values).max())  # of the samples themselves
        bad = ~(np.minimum(*moved).sum(axis=3) <= rise + slack) | ~(
            rise <= np.maximum(*moved).sum(axis=3) + slack
        )
        where = np.any(bad, (1, 2, 3))
        assert not np.any(where), (low[where][0], high[where][0], "slopes")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(ONE))
def test_a_function_of_one_number_stays_in_its_range_and_between_its_slopes(name, dtype):
    require_held(ONE[name], *drawn_boxes(POSITIVE.get(name, -4.0), 1), dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(SEVERAL))
def test_an_operation_stays_in_its_range_and_between_its_slopes(name, dtype):
    require_held(SEVERAL[name], *drawn_boxes(-4.0, 2), dtype)


def test_every_operation_that_has_a_rule_is_looked_at():
    assert set(UNARY) == set(ONE)
    assert set(RULES) <= {*SEVERAL, "add_any"}


@pytest.mark.parametrize("name", sorted(ONE))
def test_ranges_and_slopes_of_one_number_are_not_too_wide_by_much(name):
    """So that what is shrunk by 5 % no longer holds: bounds are as tight as samples show, to 2 %."""
    with jax.enable_x64(True):
        low, high = max(POSITIVE.get(name, 0.1), 0.1), 0.9
        box = Interval(jnp.asarray([low]), jnp.asarray([high]))
        points = np.linspace(low, high, 2001)
        values = np.asarray(ONE[name](jnp.asarray(points)))
        rule = UNARY[name]
        found = [np.ravel(np.asarray(end)) for end in rule.range(box)]
        assert np.allclose(found, [[values.min()], [values.max()]], rtol=1e-9, atol=1e-9)
        slopes = np.diff(values) / np.diff(points)
        if np.ptp(values) > 0.0 and not name.startswith(("floor", "ceil", "sign")):
            found = [np.ravel(np.asarray(end)) for end in rule.slope(box)]
            assert np.allclose(found, [[slopes.min()], [slopes.max()]], rtol=2e-2)


def test_products_sums_and_quotients_are_as_wide_as_they_must_be():
    with jax.enable_x64(True):
        box = Interval(jnp.asarray([1.0, -2.0]), jnp.asarray([2.0, 3.0]))
        for name, ends in {"mul": (-4.0, 6.0), "add": (-1.0, 5.0), "sub": (-2.0, 4.0)}.items():
            (found,) = Program(SEVERAL[name], 2, np.float64).enclosed(box, True)
            assert np.allclose(np.ravel(found.range), ends, rtol=1e-9)
        slope = dense(Program(SEVERAL["mul"], 2, np.float64).enclosed(box, True)[0], (1, 1))
        assert np.allclose(np.asarray(slope.low)[:, 0], [-2.0, 1.0])
        assert np.allclose(np.asarray(slope.high)[:, 0], [3.0, 2.0])


def test_the_mean_value_form_sees_that_a_number_cancels_itself():
    with jax.enable_x64(True):
        program = Program(lambda u: u - 0.9 * u, 1, np.float64)
        best, _ = bounded(program, Interval(jnp.asarray([1.0]), jnp.asarray([2.0])))
    assert 0.1 - 1e-9 <= float(best.high[0]) <= 0.21
    assert float(best.low[0]) >= 0.0


@pytest.mark.parametrize(
    ("function", "most"),
    [
        (lambda u: jnp.linalg.norm(u)[None], 1.0),
        (lambda u: jnp.sqrt(1.0 + u[:1] ** 2 + u[1:] ** 2), 1.0),
        (lambda u: jnp.sqrt(u[:1] ** 2 + jnp.square(3.0 * u[1:])), 3.0),
        (lambda u: jnp.sqrt(jnp.abs(u[:1]) + u[1:] ** 2), np.inf),  # no norm
        (lambda u: jnp.sqrt(1.0 - u[:1] ** 2 + u[1:] ** 2), np.inf),
        (lambda u: jnp.sqrt(u[:1] * u[1:]), np.inf),
    ],
)
def test_a_distance_has_slopes_where_a_root_has_none(function, most):
    with jax.enable_x64(True):
        program = Program(function, 2, np.float64)
        found = told(program, Interval(jnp.full(2, -1.0), jnp.full(2, 1.0)))
        ends = dense(found, program.sizes)
        assert np.max(np.abs(ends.high)) == pytest.approx(most)
        away = told(program, Interval(jnp.asarray([3.0, 4.0]), jnp.asarray([3.0, 4.0])))
        if most == 1.0:
            assert np.ravel(dense(away, program.sizes).high) == pytest.approx([0.6, 0.8], abs=0.02)


@pytest.mark.parametrize("function", [lambda u: u[:1] / u[1:]])
def test_nothing_is_known_of_a_quotient_whose_divisor_may_be_zero(function):
    program = Program(function, 2, np.float32)
    for low, high in ([-1.0, 1.0], [0.0, 1.0], [-1.0, 0.0]):
        box = Interval(jnp.asarray([1.0, low]), jnp.asarray([2.0, high]))
        best, _ = bounded(program, box)
        assert not np.isfinite(best.low[0]) or not np.isfinite(best.high[0])


def test_a_jump_between_constants_has_infinite_slopes():
    box = Interval(jnp.asarray([0.0]), jnp.asarray([2.0]))
    for function in (
        lambda u: jnp.where(u > 1.0, 3.0, 7.0),
        lambda u: (u > 1.0).astype(u.dtype),
        lambda u: jnp.floor(u),
    ):
        (found,) = Program(function, 1, np.float32).enclosed(box, True)
        assert np.max(np.abs(np.asarray(found.slopes[0]))) == np.inf


def test_what_is_not_a_number_never_decides():
    nothing = Interval(jnp.asarray([jnp.nan]), jnp.asarray([jnp.nan]))
    for function in (
        lambda u: jnp.where(u > 1.0, u, 7.0),
        lambda u: jnp.where(u <= 1.0, u, 7.0),
        lambda u: jnp.where(u == 1.0, u, 7.0),
        lambda u: jnp.where(u == 1.0, 7.0, u),
        lambda u: jnp.maximum(u, 0.0),
        lambda u: jnp.log(u),
        lambda u: jnp.clip(jnp.exp(u), 0.0, 1.0),
    ):
        found = Program(function, 1, np.float32).enclosed(nothing, True)[0].range
        assert not (
            np.isfinite(found.low[0]) and np.isfinite(found.high[0]) and found.low[0] == found.high[0]
        )
        assert not found.high[0] - found.low[0] <= 1e30 or np.isnan(found.high[0])


def test_a_whole_power_of_a_negative_number_is_not_taken_for_that_of_a_positive_one():
    box = Interval(jnp.asarray([-2.0]), jnp.asarray([1.0]))
    for function in (lambda u: jax.lax.pow(u, jnp.full_like(u, 2.0)), lambda u: jnp.power(u, 2.0)):
        best, _ = bounded(Program(function, 1, np.float32), box)
        assert float(best.high[0]) >= 4.0


def test_a_remainder_just_below_a_whole_multiple_is_not_taken_for_zero():
    with jax.enable_x64(True):
        box = Interval(jnp.asarray([0.9]), jnp.asarray([0.9]))
        best, _ = bounded(Program(lambda u: jax.lax.rem(u, jnp.full_like(u, 0.1)), 1, np.float64), box)
    assert float(best.high[0]) >= 0.9 % 0.1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ends_are_rounded_outward(dtype):
    from fractions import Fraction

    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        a, b = (rng.normal(size=50).astype(dtype) * 10.0 ** rng.integers(-8, 8, 50) for _ in range(2))
        a, b = a.astype(dtype), b.astype(dtype)
        first, second = Interval(jnp.asarray(a), jnp.asarray(a)), Interval(jnp.asarray(b), jnp.asarray(b))
        product = times(first, second)
        summed = outward(first.low + second.low, first.high + second.high)
    for found, exact in ((product, lambda x, y: x * y), (summed, lambda x, y: x + y)):
        for low, high, x, y in zip(*map(np.asarray, found), a, b, strict=True):
            true = exact(Fraction(float(x)), Fraction(float(y)))
            assert Fraction(float(low)) < true < Fraction(float(high))


def test_what_two_bounds_allow_is_the_smaller_and_never_empty():
    found = meet(Interval(jnp.asarray(0.0), jnp.asarray(2.0)), Interval(jnp.asarray(1.0), jnp.asarray(3.0)))
    assert (float(found.low), float(found.high)) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("sort", lambda u: jnp.sort(u)),
        ("int32", lambda u: u.astype(jnp.int32).astype(u.dtype)),
        ("index", lambda u: u[jnp.argmax(u)][None]),
        ("while", lambda u: jax.lax.while_loop(lambda v: v[0] > 0.0, lambda v: v - 1.0, u)),
        ("padding", lambda u: jax.lax.pad(u, u[0], [(1, 0, 0)])),
        ("remainder", lambda u: jax.lax.rem(u[:1], u[1:])),
    ],
)
def test_an_operation_that_cannot_be_bounded_is_named_with_its_line(name, function):
    box = Interval(jnp.asarray([0.0, 1.0]), jnp.asarray([1.0, 2.0]))
    wanted = "argmax|index" if name == "index" else name
    with pytest.raises(CannotBound, match=rf"({wanted}).*test_intervals\.py, line \d+"):
        Program(function, 2, np.float32).enclosed(box, True)


@pytest.mark.parametrize(
    "bent",
    [
        lambda v: jnp.maximum(v, 0.0),
        lambda v: jnp.minimum(0.0, v),
        lambda v: jnp.clip(v, -1.0, 0.0),
        abs,
        lambda v: jnp.where(v >= 0.0, v, 0.0),
        lambda v: jnp.where(v < 0.0, 1.0, 2.0),
        lambda v: jnp.floor(v),
    ],
)
@pytest.mark.parametrize("box", [(0.0, 1.0), (-1.0, 0.0), (0.0, 0.0)])
def test_a_search_that_does_not_round_sees_both_sides_of_a_kink_that_rounding_reaches(bent, box):
    """A box that ends at the kink but for round-off: the slopes jump there, far more than any reserve pays for."""

    def slopes():
        with jax.enable_x64(True):
            program = Program(lambda u: bent(3.0 * u[0] - 2.0 * u[0])[None], 1, np.float64)
            ends = Interval(*(jnp.asarray([end]) for end in box))
            return dense(program.enclosed(ends, True)[0], (1,))

    checked = slopes()
    with unrounded():
        searched = slopes()
    assert float(searched.low[0, 0]) <= float(checked.low[0, 0]) + 1e-12
    assert float(searched.high[0, 0]) >= float(checked.high[0, 0]) - 1e-12
