"""A worker has cores that no other worker has, and has them for good."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tether.engines import pinning

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="workers are pinned on Linux only"),
]

WORKER = """
import json, os, sys
from tether.engines.pinning import pin
first = pin(1)
sys.modules["jax"] = None  # as if it were imported
print(json.dumps([first, pin(1), sorted(os.sched_getaffinity(0))]), flush=True)
input()
"""


def test_workers_have_different_cores_as_long_as_there_are_any_and_then_share_all(tmp_path):
    options = {"stdin": -1, "stdout": -1, "text": True, "env": os.environ | {"TMPDIR": str(tmp_path)}}
    allowed = sorted(os.sched_getaffinity(0))
    workers = [subprocess.Popen([sys.executable, "-c", WORKER], **options) for _ in range(len(allowed) + 1)]
    try:
        told = [json.loads(worker.stdout.readline()) for worker in workers]
    finally:
        for worker in workers:
            worker.communicate("\n")
    assert all(first == again == truly for first, again, truly in told)
    assert sorted(first for first, _, _ in told) == sorted([*([core] for core in allowed), allowed])


def test_a_process_that_has_imported_jax_is_too_late(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", sys)
    monkeypatch.setattr(pinning, "_pinned", [])
    with pytest.raises(RuntimeError, match="before JAX is imported"):
        pinning.pin(1)
