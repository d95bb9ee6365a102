"""Forked children that run tests: what is slow is imported once, and what may be changed only in the child."""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.machinery
import importlib.util
import inspect
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings

MEMORY = 6_000_000_000
"""Bytes that a child may allocate: a mutant can ask for any number of rounds."""
OPTIONS = (
    "-x", "-q", "--no-header", "--tb=native", "-p", "no:cacheprovider",
    "-m", "not slow",  # for thousands of mutants
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # plugins are imported before the fork
)  # fmt: skip
Task = TypeVar("Task")


def prepare() -> None:
    """What every child needs: the same examples every time, found failures not made smaller, no plugins to look for."""
    settings.register_profile(
        "mutation",
        max_examples=50,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutation")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = (
        False  # what the first child compiles, tests included, thousands of others only read
    )


def preload(names: Iterable[str]) -> None:
    """Import what the tests import, so that no child needs to; JAX must not have computed anything before a fork."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            try:
                importlib.import_module(name)
            except Exception:  # some can only be imported by the package that they belong to
                continue
    if jax_has_started():
        raise RuntimeError("a package used JAX while it was imported, and a fork would inherit its locks")
    gc.collect()
    gc.freeze()  # no child goes through, and so copies, all that was imported


def jax_has_started() -> bool:
    """Whether JAX has computed anything, so that a fork would inherit its locks."""
    return bool(getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", bool)())


class Changed(importlib.machinery.SourceFileLoader):
    """Imports one module from a syntax tree, ahead of all other finders."""

    def __init__(self, name: str, path: Path, tree: ast.Module) -> None:
        super().__init__(name, str(path))
        self._tree = tree

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        """Answer for the one module only."""
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_code(self, fullname: str) -> Any:  # noqa: ARG002
        """The tree, compiled; nothing is read from or written to a cache."""
        return compile(self._tree, self.path, "exec", dont_inherit=True)


class _Watch:
    """A pytest plugin: runs tests in an order, all but the `others` after them, and keeps what happened."""

    def __init__(
        self, order: Sequence[str], others: Iterable[str], traced: Iterable[str], limit: float
    ) -> None:
        self.places = {test: place for place, test in enumerate(order)}
        self.others, self.traced, self.limit = frozenset(others), frozenset(traced), limit
        self.seconds: dict[str, float] = {}
        self.executed: dict[str, list[tuple[str, int]]] = {}
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [each for each in items if each.nodeid not in self.others]
        items.sort(key=lambda each: self.places.get(each.nodeid, len(self.places)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[Any]:
        """One test, with a limit on its processor time, which does not depend on what else the machine does."""
        lines: set[tuple[str, int]] = set()

        def trace(frame: Any, event: str, argument: Any) -> Any:  # noqa: ARG001
            if frame.f_code.co_filename not in self.traced:
                return None
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            return trace

        signal.setitimer(signal.ITIMER_PROF, self.limit)  # its signal ends the process
        began = time.process_time()
        if self.traced:
            sys.settrace(trace)
        try:
            return (yield)
        finally:
            if self.traced:
                sys.settrace(None)
            self.seconds[item.nodeid] = time.process_time() - began
            self.executed[item.nodeid] = sorted(lines)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            message = getattr(getattr(report.longrepr, "reprcrash", None), "message", str(report.longrepr))
            self.failed += [report.nodeid, message.strip().split("\n")[0]]

    pytest_collectreport = pytest_runtest_logreport


def run_tests(
    files: Iterable[str],
    order: Sequence[str] = (),
    others: Iterable[str] = (),
    traced: Iterable[str] = (),
    limit: float = 0.0,
) -> dict[str, Any]:
    """Run tests until one fails.

    Args:
        files: Where the tests are.
        order: Ids of the tests to run first, in this order; then all that are not in it, as they come.
        others: Ids of tests not to run.
        traced: Files of which the executed lines are recorded.
        limit: Processor seconds for a test, after which this process ends; 0 for none.

    Returns:
        `failed` (test and message; empty if none did), `seconds` and `executed` of each test.
    """
    watch = _Watch(order, others, traced, limit)
    code = pytest.main([*OPTIONS, *files], plugins=[watch])
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and not watch.failed:
        watch.failed = ["pytest", f"exit code {int(code)}"]
    return {"failed": watch.failed[:2], "seconds": watch.seconds, "executed": watch.executed}


def with_collected(files: Sequence[str], then: Callable[[dict[str, Any], _Watch], None]) -> str:
    """Collect the tests of these files and, in the middle of pytest, hand them over by id; an error, or nothing."""
    watch = _Watch((), (), (), 0.0)

    class Handover:
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(self, session: Any) -> bool:
            if not watch.failed:
                then({item.nodeid: item for item in session.items}, watch)
            return True

    pytest.main([*OPTIONS, *files], plugins=[watch, Handover()])
    return ": ".join(watch.failed[:2])


def run_items(items: Iterable[Any], watch: _Watch, limit: float) -> list[str]:
    """Run collected tests until one fails: that test and what it said, or nothing."""
    watch.limit = limit
    for item in items:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        if watch.failed:
            break
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    return watch.failed[:2]


def functions_of(paths: Iterable[str]) -> dict[tuple[str, str, int], list[types.FunctionType]]:
    """All functions of these files that there are, by path, qualified name and first line."""
    wanted = frozenset(paths)
    found: dict[tuple[str, str, int], list[types.FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is types.FunctionType and each.__code__.co_filename in wanted:
            found.setdefault(_place(each.__code__), []).append(each)
    return found


def exchange(code: types.CodeType, function: str, known: Mapping[tuple[str, str, int], Any]) -> bool:
    """Give the outermost function of a qualified name its code in a newly compiled module; whether that can be done.

    Everyone who has imported the function has it changed, as it stays the same object.
    """
    for name in function.split("."):
        inner = [each for each in code.co_consts if isinstance(each, types.CodeType) and each.co_name == name]
        if len(inner) != 1:  # a statement of a class or module, or a property with a setter
            return False
        (code,) = inner
        if code.co_flags & inspect.CO_OPTIMIZED:  # a function; the body of a class is none
            break
    else:
        return False
    there = known.get(_place(code), ())
    if not there or any(each.__code__.co_freevars != code.co_freevars for each in there):
        return False
    for each in there:
        each.__code__ = code
    return True


def _place(code: types.CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


@dataclass
class Ended:
    """What a child left behind."""

    said: dict[str, Any] | None
    """What its work returned; None if it was ended before that."""
    end: str
    """Empty, or the name of the signal that ended it, or "wall clock"."""
    seconds: float
    """Processor time."""


def children(
    tasks: Iterable[Task],
    work: Callable[[Task], dict[str, Any]],
    processes: int,
    patience: Callable[[Task], float],
) -> Iterator[tuple[Task, Ended]]:
    """Do each task's work in a child of its own, so many at a time; they come back in the order in which they end.

    Args:
        tasks: What to do.
        work: Called in the child; what it returns must fit JSON.
        processes: How many children at a time.
        patience: Seconds by the clock after which a task's child is stopped.
    """
    waiting = ((each,) for each in tasks)
    running: dict[int, tuple[Task, int, float, bytearray]] = {}
    try:
        while True:
            while len(running) < processes and (one := next(waiting, None)):
                pid, pipe = _fork(*one, work)
                running[pipe] = *one, pid, time.monotonic() + patience(*one), bytearray()
            if not running:
                return
            ready, _, _ = select.select(list(running), [], [], 1.0)
            for pipe in list(running):
                task, pid, deadline, said = running[pipe]
                chunk = os.read(pipe, 1 << 20) if pipe in ready else None
                if chunk:
                    said += chunk
                elif chunk == b"" or time.monotonic() > deadline:
                    del running[pipe]
                    yield task, _reap(pid, pipe, said, late=chunk is None)
    finally:
        for pipe, (_, pid, _, said) in running.items():
            _reap(pid, pipe, said, late=True)


def _fork(task: Task, work: Callable[[Task], dict[str, Any]]) -> tuple[int, int]:
    """Start a child; its process id, and where to read what it says."""
    sys.stdout.flush()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of threads: those of BLAS, which survive a fork
        pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    code = 1
    try:
        os.close(read)
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        try:
            answer = work(task)
        except BaseException:
            answer = {"error": traceback.format_exc()}
        said = json.dumps(answer).encode()
        while said:
            said = said[os.write(write, said) :]
        code = 0
    finally:
        os._exit(code)


def _reap(pid: int, pipe: int, said: bytearray, late: bool) -> Ended:
    if late:
        os.killpg(pid, signal.SIGKILL)
    os.close(pipe)
    _, status, usage = os.wait4(pid, 0)
    end = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else ""
    if end or late:
        return Ended(None, "wall clock" if late else end, usage.ru_utime + usage.ru_stime)
    answer = json.loads(said) if said else {"error": f"a child ended with exit code {os.WEXITSTATUS(status)}"}
    if "error" in answer:  # not the tests' but ours: a verdict would be wrong
        raise RuntimeError(answer["error"])
    return Ended(answer, "", usage.ru_utime + usage.ru_stime)
