from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[1] / "tools"

COUNTDOWN = '''
"""How long it takes to 10 if more than 10 passed: no mutant of this."""
from __future__ import annotations

LARGEST: float | None = 8.0


def clipped(number: float, low: float = 0.0) -> float:
    """Between `low` and the largest."""
    if number < low:
        return low
    if number != number:
        raise ValueError("expected a number, not %d" % 3)
    return min(number, LARGEST)


def countdown(steps):
    done = 0
    while steps > 0:
        steps -= 1
        done += 1
    return done
'''
TESTS = """
from hypothesis import given, strategies as st
from toy import clipped, countdown

def test_numbers_below_are_raised():
    assert (clipped(-1.0), clipped(0.5), clipped(0.5, low=0.7)) == (0.0, 0.5, 0.7)

@given(st.integers(0, 5))
def test_countdown_counts(steps):
    assert countdown(steps) == steps
"""
EXPLAINED = """
[[survivor]]
file = "src/toy.py"
function = "clipped"
original = "if number < low:"
mutated = "if number <= low:"
why = "Both are the same number then."

[[survivor]]
file = "src/toy.py"
function = "countdown"
original = "done = 0"
mutated = "done = 1"
why = "Stale, because a test tells."

[[survivor]]
file = "src/toy.py"
function = "countdown"
original = "done = 3"
mutated = "done = 4"
why = "Stale, because there is no such line."
"""


@pytest.fixture
def mutants(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    import mutants

    return mutants.mutants


def changes(found):
    return {each.mutated for each in found[1]}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("x = a < b", {"x = a <= b", "x = a >= b"}),
        ("x = a == b != c", {"x = a != b != c", "x = a == b == c"}),
        ("x = a + b", {"x = a - b"}),
        ("x = a ** 2", {"x = a * 2", "x = a ** 1", "x = a ** 3"}),
        ("x = 0.0", {"x = 1.0"}),
        ("x = 2.0", {"x = 1.9", "x = 2.1"}),
        (
            "x = 0 if a else 1",
            {"x = 0", "x = 1", "x = 1 if a else 1", "x = 0 if a else 0", "x = 0 if a else 2"},
        ),
        ("x = xp.maximum(a, b)", {"x = xp.minimum(a, b)", "x = a", "x = b"}),
        ("x = min(a, b, c)", {"x = max(a, b, c)", "x = min(b, c)", "x = min(a, c)", "x = min(a, b)"}),
        ("x = xp.where(a, b, c)", {"x = xp.where(a, c, b)", "x = b", "x = c"}),
        ("x = abs(a)", {"x = a"}),
        ("x = a.copy()", {"x = a"}),
        ("x = not a", {"x = a"}),
        ("x = a and b", {"x = a or b", "x = a", "x = b"}),
        ("x += a", {"x -= a", "pass"}),
        ("f(a)", {"pass"}),
        ("x = [a for a in b if c]", {"x = [a for a in b if True]"}),
        ("def f(x: float | None = None) -> int | str:\n    return x", {"return None"}),
        ("def f(x):\n    x = g(x)", {"pass"}),
        ("if a:\n    raise ValueError(f'{b + 1}', 2)", {"if True:", "if False:", "pass"}),
        ("'Text.'", set()),
        ("x = 'text' f'{a + 1}'", set()),
        ("warnings.warn('text', stacklevel=2)", {"pass"}),
        ("Number = int | float", set()),
    ],
)
def test_a_statement_has_these_mutants_and_no_others(mutants, statement, expected):
    assert changes(mutants(statement, "file.py")) == expected


def test_a_mutant_is_known_by_function_and_text_and_told_from_its_twin(mutants):
    source = "class A:\n    def f(self):\n        g(1)\n        g(1)\n"
    _, found = mutants(source, "file.py")
    _, moved = mutants(f"# A comment.\n\n{source}", "file.py")
    assert [each.key for each in moved] == [each.key for each in found]
    assert [each.lines[0] for each in moved] == [each.lines[0] + 2 for each in found]
    assert [each.key[1:] for each in found if each.mutated == "g(2)"] == [
        ("A.f", "g(1)", "g(2)", 1),
        ("A.f", "g(1)", "g(2)", 2),
    ]
    assert [each.change for each in found[:2]] == ["{g(1) => pass}", "g({1 => 0})"]


def mutate(folder, *arguments):
    """Run the tool on the toy: exit code, output, results."""
    for name, content in {
        "src/toy.py": COUNTDOWN,
        "tests/test_toy.py": TESTS,
        "tools/survivors.toml": EXPLAINED,
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib", "--doctest-modules"]\n',
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    call = (
        f"import sys; from pathlib import Path; sys.path.insert(0, {str(TOOLS)!r}); import mutate; "
        f"mutate.PATIENCE = 0.3; "
        f"sys.exit(mutate.main({list(arguments)}, Path({str(folder)!r}), {{'src/toy.py': ['tests/test_toy.py']}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", call], capture_output=True, text=True, check=False, timeout=300
    )
    results = folder / "out" / "mutation" / "results.json"
    return (
        done.returncode,
        done.stdout + done.stderr,
        json.loads(results.read_text()) if results.exists() else None,
    )


def test_mutants_are_killed_time_out_survive_or_are_explained(tmp_path):
    code, output, results = mutate(tmp_path, "--processes", "1")
    assert code == 1, output
    verdicts = {(each["function"], each["change"]): each["verdict"] for each in results["mutants"]}
    assert verdicts["clipped", "if number {< => >=} low:"] == "killed"
    assert verdicts["clipped", "if number {< => <=} low:"] == "explained"
    assert verdicts["clipped", "return {min(number, LARGEST) => number}"] == "UNEXPLAINED"
    assert verdicts["countdown", "steps {- => +}= 1"] == "timed out"
    assert results["counts"]["killed"] + results["counts"]["timed out"] > 10
    assert len(results["stale"]) == 2
    assert (
        "stale entry: src/toy.py countdown: 'done = 1' (killed: tests/test_toy.py::test_countdown_counts"
        in output
    )
    assert "stale entry: src/toy.py countdown: 'done = 4' (there is no such mutant)" in output
    assert "survived: src/toy.py:14 clipped  return {min(number, LARGEST) => number}" in output
    assert 'mutated = "return number"\nwhy = ""' in (tmp_path / "out/mutation/unexplained.toml").read_text()


def test_one_function_can_be_listed_and_what_cannot_be_judged_says_why(tmp_path):
    code, output, _ = mutate(tmp_path, "--only", "src/toy.py:countdown", "--list")
    assert code == 0
    assert "src/toy.py:20 countdown  steps -= {1 => 2}" in output
    assert "clipped" not in output
    code, output, _ = mutate(tmp_path, "--only", "src/other.py")
    assert (code, "--only must name one of src/toy.py, got src/other.py" in output) == (2, True)
