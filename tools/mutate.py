"""Break the code on purpose, one small change at a time, and see whether a test notices.

A mutant that no test notices, a *survivor*, shows either that a test is missing or that the change makes no difference.
The former gets a test, the latter an entry in `tools/survivors.toml` that says why.

Thousands fit in minutes because nothing is started for them: this process imports what is slow (JAX, SciPy, pytest) but
not `tether`, and for every mutant it forks a child that imports `tether` with that change and runs its tests: those
that execute the changed line first, the quickest of them first, until one fails. A survivor has passed all of them.

Before that, most are killed in a tenth of the time: one child for each file imports `tether` and collects the tests,
and its own children only exchange the code of the changed function. What was computed when something was imported is
not changed then, so that whatever survives, or cannot be exchanged, is looked at again as above.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import json
import os
import random
import runpy
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from children import (
    Changed,
    Ended,
    children,
    exchange,
    functions_of,
    jax_has_started,
    preload,
    prepare,
    run_items,
    run_tests,
    with_collected,
)
from mutants import Mutant, mutants, put
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

ROOT = Path(__file__).resolve().parents[1]
TESTS: dict[str, tuple[str, ...]] = {
    "src/tether/core/contract.py": ("tests/core/test_contract.py", "tests/core/test_schedule.py"),
    "src/tether/core/schedule.py": ("tests/core/test_schedule.py",),
    "src/tether/core/noise.py": ("tests/core/test_schedule.py",),
    "src/tether/core/raising.py": ("tests/core/test_raising.py",),
    "src/tether/core/fleet.py": ("tests/core/test_fleet.py",),
    "src/tether/core/fleet_ops.py": ("tests/core/test_fleet.py",),
    "src/tether/core/rows.py": ("tests/core/test_fleet.py",),
    "src/tether/core/monitor.py": ("tests/core/test_lipschitz_monitor.py", "tests/core/test_monitor.py"),
    "src/tether/core/projection.py": ("tests/core/test_projection.py",),
    "src/tether/core/sensitivity.py": (
        "tests/core/test_sensitivity.py",
        "tests/certificates/test_continuing.py",
    ),
    "src/tether/core/guard.py": (
        "tests/core/test_guard.py",
        "tests/core/test_fail_closed.py",
        "tests/core/test_saved_guard.py",
        "tests/core/test_monitor.py",
        "tests/core/test_own_certificate.py",
        "tests/core/test_plants_as_they_are.py",
        "tests/core/test_several.py",
        "tests/core/test_several_and_plants.py",
    ),
    "src/tether/core/saving.py": (
        "tests/core/test_guard.py",
        "tests/core/test_saved_guard.py",
        "tests/core/test_plants_as_they_are.py",
    ),
    "src/tether/core/plainly.py": ("tests/core/test_straight.py", "tests/core/test_guard.py"),
    "src/tether/core/reporting.py": (
        "tests/core/test_guard.py",
        "tests/core/test_monitor.py",
        "tests/core/test_several.py",
        "tests/core/test_several_and_plants.py",
    ),
    "src/tether/core/watch.py": (
        "tests/core/test_monitor.py",
        "tests/core/test_guard.py",
        "tests/core/test_plants_as_they_are.py",
    ),
    "src/tether/core/late.py": (
        "tests/core/test_plants_as_they_are.py",
        "tests/core/test_guard.py",
        "tests/core/test_fail_closed.py",
        "tests/core/test_own_certificate.py",
    ),
    "src/tether/core/overrides.py": ("tests/core/test_plants_as_they_are.py",),
    "src/tether/core/actuator.py": ("tests/core/test_plants_as_they_are.py",),
    "src/tether/core/standing.py": ("tests/core/test_plants_as_they_are.py", "tests/core/test_guard.py"),
    "src/tether/core/looking.py": ("tests/core/test_guard.py", "tests/certificates/test_switches.py"),
    "src/tether/core/meter.py": (
        "tests/core/test_several.py",
        "tests/core/test_guard.py",
        "tests/core/test_several_and_plants.py",
    ),
    "src/tether/core/several.py": ("tests/core/test_several.py",),
    "src/tether/core/finite.py": ("tests/core/test_finite.py",),
    "src/tether/certificates/switches.py": (
        "tests/certificates/test_switches.py",
        "tests/core/test_several_and_plants.py",
    ),
    "src/tether/core/decision.py": ("tests/core/test_guard.py",),
    "src/tether/core/actions.py": ("tests/core/test_actions.py",),
    "src/tether/core/turn.py": (
        "tests/core/test_actions.py",
        "tests/core/test_guard.py",
        "tests/core/test_fail_closed.py",
    ),
    "src/tether/core/convert.py": ("tests/core/test_convert.py",),
    "src/tether/core/audit.py": (
        "tests/core/test_audit.py",
        "tests/core/test_plants_as_they_are.py",
        "tests/core/test_schedule.py",
        "tests/core/test_several.py",
        "tests/core/test_several_and_plants.py",
    ),
    "src/tether/core/ops.py": ("tests/core/test_ops.py", "tests/core/test_fleet.py"),
    "src/tether/core/jax_ops.py": ("tests/core/test_ops.py",),
    "src/tether/core/certificate.py": ("tests/certificates/test_lipschitz_numbers.py",),
    "src/tether/core/saved.py": ("tests/core/test_saved.py",),
    "src/tether/core/keeping.py": ("tests/core/test_guard_journal.py", "tests/core/test_saved_guard.py"),
    "src/tether/core/journal/text.py": ("tests/core/test_journal_text.py",),
    "src/tether/core/journal/segment.py": ("tests/core/test_journal_segment.py",),
    "src/tether/core/journal/journal.py": ("tests/core/test_journal.py", "tests/core/test_guard_journal.py"),
    "src/tether/core/journal/diary.py": ("tests/core/test_guard_journal.py",),
    "src/tether/certificates/lipschitz.py": (
        "tests/certificates/test_lipschitz_numbers.py",
        "tests/certificates/test_continuing.py",
        "tests/core/test_raising.py",
    ),
    "src/tether/certificates/surplus.py": (
        "tests/certificates/test_lipschitz_numbers.py",
        "tests/certificates/test_continuing.py",
        "tests/core/test_raising.py",
        "tests/core/test_late_and_raised.py",
    ),
    "src/tether/certificates/ways.py": ("tests/certificates/test_structured_numbers.py",),
    "src/tether/certificates/structure.py": ("tests/certificates/test_structure.py",),
    "src/tether/certificates/structured.py": (
        "tests/certificates/test_structured_numbers.py",
        "tests/certificates/test_continuing.py",
        "tests/core/test_raising.py",
    ),
    "src/tether/certificates/search.py": (
        "tests/certificates/test_structured_numbers.py",
        "tests/certificates/test_continuing.py",
        "tests/core/test_raising.py",
    ),
    "src/tether/certificates/account.py": (
        "tests/certificates/test_structured_numbers.py",
        "tests/certificates/test_continuing.py",
        "tests/core/test_raising.py",
        "tests/core/test_late_and_raised.py",
    ),
    "src/tether/certificates/share.py": (
        "tests/certificates/test_share.py",
        "tests/certificates/test_structured_numbers.py",
    ),
    "src/tether/systems/carbon/structure.py": (
        "tests/systems/test_structure_numbers.py",
        "tests/systems/test_unseen.py",
    ),
    "src/tether/systems/inference/structure.py": (
        "tests/systems/test_structure_numbers.py",
        "tests/systems/test_unseen.py",
    ),
    "src/tether/systems/cooling/structure.py": ("tests/systems/test_cooling_numbers.py",),
    "src/tether/certificates/shadowing.py": ("tests/certificates/test_shadowing_numbers.py",),
    "src/tether/engines/pieces.py": ("tests/engines/test_engine.py", "tests/engines/test_folders.py"),
}
"""The files that are mutated, and where the tests are that must notice, beside a file's own doctests."""
Key = tuple[str, str, str, str, int]
"""File, function, original, mutated, and which of several: see `Mutant.key`."""
PATIENCE = 5.0
"""Processor time that a test may take beyond three times that of the slowest, seconds; after that it hangs."""
VERDICTS = ("killed", "timed out", "explained", "UNEXPLAINED")
EPILOG = """
a mutant that is right to survive has an entry in tools/survivors.toml:
  [[survivor]]
  file = "src/tether/core/projection.py"
  function = "length"
  original = "scale = xp.where(largest > 0.0, largest, 1.0)"
  mutated = "scale = xp.where(largest > 0.0, largest, 1.05)"
  why = "One sentence: why no test can tell, or none needs to."
and nth = 2 if the same statement stands a second time in the function. For survivors without an entry one is written
to OUT/unexplained.toml, to be copied and completed. An entry is stale if there is no such mutant, or if it is killed.

exit code: 0 if all are killed or explained, 1 if not or if an entry is stale, 2 if nothing could be judged.

examples:
  nice python tools/mutate.py                                      every file
  python tools/mutate.py --only src/tether/core/projection.py:length    one function
  python tools/mutate.py --sample 40                               a quick look, and how long all would take
  python tools/mutate.py --only src/tether/core/contract.py --list      what would be changed
"""


class Unusable(Exception):
    """Nothing can be judged, and why."""


@dataclass(frozen=True)
class Subject:
    """A file to mutate."""

    tree: ast.Module
    mutants: list[Mutant]
    tests: tuple[str, ...]
    """Where its tests are: its own doctests and files."""


@dataclass(frozen=True)
class Baseline:
    """What the tests do without a mutant."""

    seconds: Mapping[str, float]
    """Processor time of each test."""
    executing: Mapping[tuple[str, int], set[str]]
    """The tests that execute a line of a file."""

    def tests(self, files: Iterable[str]) -> list[str]:
        """Ids of the tests in these files, the quickest first."""
        wanted = tuple(f"{file}::" for file in files)
        return sorted(
            (test for test in self.seconds if test.startswith(wanted)), key=self.seconds.__getitem__
        )

    def times(self, files: Iterable[str]) -> list[float]:
        """Processor time of the tests in these files, ascending."""
        return [self.seconds[test] for test in self.tests(files)]

    def stages(self, mutant: Mutant, files: Sequence[str]) -> list[tuple[list[str], list[str], list[str]]]:
        """(files, tests to run, others of these files) one after the other: first what executes the changed lines."""
        first, last = mutant.lines
        near = set().union(*(self.executing.get((mutant.file, line), ()) for line in range(first, last + 1)))
        ordered = self.tests(files)
        parts = [test for test in ordered if test in near], [test for test in ordered if test not in near]
        return [
            (sorted({test.split("::")[0] for test in part}), part, rest)
            for part, rest in (parts, parts[::-1])
            if part
        ]


@dataclass(frozen=True)
class Judged:
    """A mutant and what became of it."""

    mutant: Mutant
    verdict: str
    """killed, timed out, explained or UNEXPLAINED."""
    by: str
    """The test that failed, and how; or the explanation."""
    seconds: float
    """Processor time."""


def main(
    arguments: Sequence[str] | None = None, root: Path = ROOT, tests: Mapping[str, Sequence[str]] = TESTS
) -> int:
    """The command; its exit code."""
    options = _parser().parse_args(arguments)
    console = Console(width=max(110, Console().width), highlight=False, markup=False, soft_wrap=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no child is left behind
    os.chdir(root)
    sys.path.insert(0, str(root / "src"))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])
    try:
        return _run(options, root, tests, console)
    except Unusable as error:
        print(f"mutate: error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", metavar="FILE[:FUNCTION]", help="mutate this only; may be repeated"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="so many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="children at a time (default: cores)"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="only what was UNEXPLAINED in OUT's results: after new tests or entries",
    )
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    parser.add_argument("--out", type=Path, default=Path("out/mutation"), help="folder (default %(default)s)")
    return parser


def _run(
    options: argparse.Namespace, root: Path, tests: Mapping[str, Sequence[str]], console: Console
) -> int:
    chosen = _chosen(options.only, tests)
    subjects = {
        file: Subject(*mutants((root / file).read_text(encoding="utf-8"), file), (file, *tests[file]))
        for file in chosen
    }
    found = [each for subject in subjects.values() for each in subject.mutants]
    wanted = [each for each in found if _wanted(each, chosen[each.file])]
    if options.again:
        unexplained = _unexplained(options.out / "results.json")
        wanted = [each for each in wanted if each.key in unexplained]
    if not wanted:
        raise Unusable("there is no such mutant: `--list` shows what there is")
    if options.list:
        for each in wanted:
            console.print(f"{_where(each)}  {each.change}")
        console.print(f"{len(wanted)} mutants")
        return 0
    entries = _entries(root / "tools" / "survivors.toml")
    # In no order, so that what is done says how long the rest takes.
    drawn = random.Random(options.seed).sample(wanted, min(len(wanted), options.sample or len(wanted)))
    baseline = _baseline(root, subjects, console)
    began = time.monotonic()
    judged = _judged(drawn, subjects, baseline, entries, options.processes, console)
    took = time.monotonic() - began
    killed = {each.mutant.key: each.by for each in judged if each.verdict in ("killed", "timed out")}
    gone = {key for key in entries if key[0] not in tests} | (
        {key for key in entries if key[0] in subjects} - {each.key for each in found}
    )
    stale = [
        (key, "there is no such mutant" if key in gone else f"killed: {killed[key]}")
        for key in entries
        if key in gone or key in killed
    ]
    _report(judged, stale, console)
    estimate = _estimate(judged, len(wanted), options.processes)
    console.print(f"{took:.0f} s with {options.processes} processes; {estimate}")
    _write(judged, stale, took, options)
    return int(bool(stale) or any(each.verdict == "UNEXPLAINED" for each in judged))


def _chosen(only: Sequence[str] | None, tests: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The files to mutate, and of each the functions: none named means all."""
    chosen: dict[str, list[str]] = {}
    for each in only or tests:
        file, _, function = each.partition(":")
        if file not in tests:
            raise Unusable(
                f"--only must name one of {', '.join(tests)}, got {file}; a new file needs a line in TESTS"
            )
        chosen.setdefault(file, []).append(function)
    return chosen


def _wanted(mutant: Mutant, functions: Sequence[str]) -> bool:
    return any(not each or f"{mutant.function}.".startswith(f"{each}.") for each in functions)


def _unexplained(path: Path) -> set[Key]:
    """The keys of the mutants that the results in a file leave unexplained."""
    if not path.exists():
        raise Unusable(f"--again needs the results of an earlier run, and there is no {path}")
    results = json.loads(path.read_text(encoding="utf-8"))["mutants"]
    return {_key(each) for each in results if each["verdict"] == "UNEXPLAINED"}


def _key(entry: Mapping[str, Any]) -> Key:
    return entry["file"], entry["function"], entry["original"], entry["mutated"], entry.get("nth", 1)


def _where(mutant: Mutant) -> str:
    return f"{mutant.file}:{mutant.lines[0]} {mutant.function}"


def _entries(path: Path) -> dict[Key, str]:
    """The explanations of `survivors.toml` by the key of their mutant."""
    if not path.exists():
        return {}
    entries: dict[Key, str] = {}
    for each in tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", []):
        missing = [name for name in ("file", "function", "original", "mutated", "why") if not each.get(name)]
        if missing:
            raise Unusable(f"an entry of {path} lacks {', '.join(missing)}: {each}")
        if _key(each) in entries:
            raise Unusable(f"two entries of {path} are for the same mutant: {each}")
        entries[_key(each)] = each["why"]
    return entries


def _module(file: str) -> str:
    """The name by which a file below `src` is imported."""
    parts = Path(file).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _baseline(root: Path, subjects: Mapping[str, Subject], console: Console) -> Baseline:
    """Run the tests twice without a mutant: which lines does each execute, and how long does it take?

    The second time they run in the order of their time, after all that is slow to import has been, as for a mutant: if
    any fails then, it would fail for every mutant.
    """
    files = list(dict.fromkeys(file for each in subjects.values() for file in each.tests))
    paths = {str(root / file): file for file in subjects}
    if (root / "tests" / "conftest.py").exists():
        runpy.run_path(str(root / "tests" / "conftest.py"))  # JAX reads what it sets when it is imported
    prepare()

    def tests(order: Sequence[str]) -> dict[str, Any]:
        for file in subjects:  # before its doctests do, so that there is one of each
            importlib.import_module(_module(file))
        result = run_tests(files, order, traced=() if order else paths)
        loaded = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
        return result | {
            "loaded": [name for name, path in loaded.items() if path and not path.startswith(str(root))]
        }

    said = _without_mutant(tests, (), console)
    executing: dict[tuple[str, int], set[str]] = {}
    for test, lines in said["executed"].items():
        for path, line in lines:
            executing.setdefault((paths[path], line), set()).add(test)
    # What the tests compiled is there for the mutants, but what a mutant compiles is of no use to anybody.
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "1e9"
    preload(said["loaded"])
    order = Baseline(said["seconds"], executing).tests(files)
    baseline = Baseline(_without_mutant(tests, order, console)["seconds"], executing)
    for file, subject in subjects.items():
        if not baseline.tests(subject.tests):
            raise Unusable(f"{file} has no tests in {', '.join(subject.tests)}")
    return baseline


def _without_mutant(
    tests: Callable[[Sequence[str]], dict[str, Any]], order: Sequence[str], console: Console
) -> dict[str, Any]:
    ((_, ended),) = children([order], tests, 1, lambda _: 3600.0)
    if ended.said is None:
        raise Unusable(f"the tests did not come to an end without a mutant: {ended.end}")
    if ended.said["failed"]:
        raise Unusable("a test fails without a mutant: " + ": ".join(ended.said["failed"]))
    console.print(f"without a mutant: {len(ended.said['seconds'])} tests pass, {ended.seconds:.1f} s")
    return ended.said


def _judged(
    drawn: Sequence[Mutant],
    subjects: Mapping[str, Subject],
    baseline: Baseline,
    entries: Mapping[Key, str],
    processes: int,
    console: Console,
) -> list[Judged]:
    """Every mutant's verdict, in the order of the lines."""
    times = {file: baseline.times(subject.tests) for file, subject in subjects.items()}

    def work(mutant: Mutant) -> dict[str, Any]:
        """In the child: import the mutated file, and test it."""
        put(mutant.place)
        module, subject = _module(mutant.file), subjects[mutant.file]
        sys.meta_path.insert(0, Changed(module, Path(mutant.file).resolve(), subject.tree))
        # Whichever test comes first may have to compile for the others.
        limit = PATIENCE + 3.0 * times[mutant.file][-1]
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            importlib.import_module(module)
        except Exception as error:
            return {"failed": ["import", repr(error)]}
        failed: list[str] = []
        for files, order, others in baseline.stages(mutant, subject.tests):
            failed = failed or run_tests(files, order, others, limit=limit)["failed"]
        return {"failed": failed}

    def patience(mutant: Mutant) -> float:
        """For one that waits for ever; long, because a busy machine must not look like it."""
        return 300.0 + 60.0 * sum(times[mutant.file])

    found: list[Judged] = []
    for file, subject in subjects.items():
        mine = [each for each in drawn if each.file == file]
        found += [
            Judged(each, *_verdict(ended, None), ended.seconds)
            for each, ended in _quickly(mine, subject, baseline, processes, times[file])
        ]
        console.print(f"{file}: {len(mine)} mutants, {_counted(found)} so far at once")
    done, everything = {each.mutant.key for each in found}, len(drawn)
    drawn = [each for each in drawn if each.key not in done]
    columns = TextColumn("mutants"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # Refreshed by hand: a thread of its own could hold a lock at a fork.
    with Progress(
        *columns, TextColumn("{task.description}"), console=console, transient=True, auto_refresh=False
    ) as progress:
        shown = progress.add_task("", total=everything, completed=len(found))
        for mutant, ended in children(drawn, work, processes, patience):
            found.append(Judged(mutant, *_verdict(ended, entries.get(mutant.key)), ended.seconds))
            progress.update(shown, advance=1, description=_counted(found), refresh=True)
            if len(found) % 100 == 0 and not console.is_terminal:  # a log has no bar
                console.print(f"{len(found)} of {everything}: {_counted(found)}")
    return sorted(found, key=lambda each: (each.mutant.file, each.mutant.lines, each.mutant.key))


def _quickly(
    wanted: Sequence[Mutant], subject: Subject, baseline: Baseline, processes: int, times: Sequence[float]
) -> list[tuple[Mutant, Ended]]:
    """Those of one file's mutants that tests collected once notice in an exchanged function, and how they ended."""
    if not wanted:
        return []
    path = Path(wanted[0].file).resolve()
    ordered = baseline.tests(subject.tests)
    limit = PATIENCE + 3.0 * times[-1]

    def judge(items: Mapping[str, Any], watch: Any) -> list[list[Any]]:
        if jax_has_started():  # tests that compute with it when they are collected cannot be forked
            return []
        known = functions_of([str(path)])
        gc.freeze()

        def work(mutant: Mutant | None) -> dict[str, Any]:
            if mutant is None:  # a control: nothing is exchanged, and nothing may fail
                return {"failed": run_items([items[test] for test in ordered], watch, 0.0)}
            put(mutant.place)
            code = compile(subject.tree, str(path), "exec", dont_inherit=True)
            if mutant.original.startswith(("def ", "@", "class ")) or not exchange(
                code, mutant.function, known
            ):
                return {"failed": []}
            stages = baseline.stages(mutant, subject.tests)
            return {
                "failed": run_items([items[test] for _, part, _ in stages for test in part], watch, limit)
            }

        ((_, control),) = children([None], work, 1, lambda _: 3600.0)
        if control.said is None or control.said["failed"] or not set(ordered) <= set(items):
            return []
        ended = children(list(enumerate(wanted)), lambda each: work(each[1]), processes, lambda _: 600.0)
        return [[each[0], end.said, end.end, end.seconds] for each, end in ended]

    def collected(_: None) -> dict[str, Any]:
        importlib.import_module(_module(wanted[0].file))
        judged: list[list[Any]] = []
        complaint = with_collected(subject.tests, lambda items, watch: judged.extend(judge(items, watch)))
        return {"judged": judged, "complaint": complaint}

    ((_, ended),) = children([None], collected, 1, lambda _: 1e6)
    said = ended.said or {"judged": []}
    return [
        (wanted[index], Ended(said, end, seconds))
        for index, said, end, seconds in said["judged"]
        if (said["failed"] if said is not None else end != "wall clock")  # who only waits is asked again
    ]


def _verdict(ended: Ended, why: str | None) -> tuple[str, str]:
    """What became of a mutant, and by which test or for which reason."""
    if ended.end in ("SIGPROF", "wall clock"):
        return "timed out", "it did not come to an end"
    if ended.said is None:
        return "killed", f"the process ended by {ended.end}"
    if ended.said["failed"]:
        return "killed", ": ".join(ended.said["failed"])
    return ("explained", why) if why else ("UNEXPLAINED", "")


def _estimate(judged: Sequence[Judged], mutants: int, processes: int) -> str:
    """How long so many mutants take on cores that do nothing else, from those that were judged."""
    each = sum(each.seconds for each in judged) / len(judged)
    minutes = each * mutants / processes / 60.0
    return f"{each:.2f} s of processor time a mutant, {minutes:.1f} min for {mutants} if no core is shared"


def _counted(judged: Iterable[Judged]) -> str:
    counts = Counter(each.verdict for each in judged)
    return ", ".join(f"{counts.get(each, 0)} {each}" for each in VERDICTS)


def _report(judged: Sequence[Judged], stale: Sequence[tuple[Key, str]], console: Console) -> None:
    for each in judged:
        if each.verdict == "UNEXPLAINED":
            console.print(f"survived: {_where(each.mutant)}  {each.mutant.change}")
    for key, why in stale:
        console.print(f"stale entry: {key[0]} {key[1]}: {key[3]!r} ({why})")
    files = dict.fromkeys(each.mutant.file for each in judged)
    for file in files:
        there = [each for each in judged if each.mutant.file == file]
        console.print(f"{file}: {len(there)} mutants: {_counted(there)}")
    console.print(f"{len(judged)} mutants: {_counted(judged)}; {len(stale)} stale entries")


def _write(
    judged: Sequence[Judged], stale: Sequence[tuple[Key, str]], took: float, options: argparse.Namespace
) -> None:
    """Results with what is needed to get them again, and entries for what is unexplained."""
    from tether.core.output import prepare_folder, provenance, write_json  # no child is forked after this

    folder = prepare_folder(options.out)
    git = [_output("git", "rev-parse", "HEAD"), _output("git", "status", "--porcelain")]
    write_json(
        folder / "results.json",
        {
            "provenance": provenance(shlex.join([Path(sys.executable).name, *sys.argv]))
            | {"commit": git[0], "changed_files": git[1].splitlines(), "processes": options.processes},
            "seconds": took,
            "counts": Counter(each.verdict for each in judged),
            "stale": [list(key) for key, _ in stale],
            "mutants": [
                {
                    "file": each.mutant.file,
                    "line": each.mutant.lines[0],
                    "function": each.mutant.function,
                    "original": each.mutant.original,
                    "mutated": each.mutant.mutated,
                    "nth": each.mutant.nth,
                    "change": each.mutant.change,
                    "verdict": each.verdict,
                    "by": each.by,
                    "seconds": each.seconds,
                }
                for each in judged
            ],
        },
    )
    entries = "\n".join(_entry(each.mutant) for each in judged if each.verdict == "UNEXPLAINED")
    (folder / "unexplained.toml").write_text(entries, encoding="utf-8")


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _entry(mutant: Mutant) -> str:
    """An entry of `survivors.toml` that still needs its reason."""
    values = {
        "file": mutant.file,
        "function": mutant.function,
        "original": mutant.original,
        "mutated": mutant.mutated,
    }
    nth = [f"nth = {mutant.nth}"] if mutant.nth > 1 else []
    texts = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    return "\n".join(["[[survivor]]", *texts, *nth, 'why = ""', ""])


if __name__ == "__main__":
    sys.exit(main())
