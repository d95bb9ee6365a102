"""The study of the authors' network at a pace: what is shown of it."""

from __future__ import annotations

import io

from rich.console import Console

from commands import run
from tether.core.drawing import save
from tether.paper.studies.paced import Row, paced_figure, paced_table


def row(lam=2.0, b=2.0, seeds=(529.0, 531.0), tight=517.0):
    shares = {"tight": 0.5, "structured": 0.3, "paced": 0.8}
    rates = {**dict.fromkeys(shares, 0.0), "unguarded": 0.96}
    return Row(lam, b, 495.0, tight, 509.0, list(seeds), 539.0, shares, rates, [(1.0, 2.0)] * 2, [[0.0]] * 2)


def test_every_seed_must_be_above_tight():
    assert row().above_tight
    assert not row(tight=530.0).above_tight
    assert (row().paced, row().spread) == (530.0, 1.0)


def test_table_and_figure_show_every_setting(tmp_path):
    rows = [row(), row(lam=4.0, tight=540.0), row(b=6.0)]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(paced_table(rows))
    text = console.export_text()
    assert "530.0 ± 1.0 (0.80)" in text
    assert "96% | 0%" in text
    assert "2 of 3 settings" in " ".join(text.split())
    save(paced_figure(rows), tmp_path / "paced.png")
    assert (tmp_path / "paced.png").stat().st_size > 10_000


def test_a_folder_without_networks_is_one_line(monkeypatch, capsys, tmp_path):
    code, _, err = run(
        monkeypatch,
        capsys,
        "reproduce",
        "paced",
        "--paper",
        tmp_path,
        "--data",
        tmp_path,
        "--out",
        tmp_path / "out",
    )
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "networks_b2.npz not found" in err
