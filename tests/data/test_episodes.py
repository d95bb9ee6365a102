from __future__ import annotations

import numpy as np
import pytest

from tether.data import Episodes, add_clock, add_forecast, load_carbon


def episodes():
    return Episodes({"a": np.arange(12.0).reshape(4, 3), "b": np.zeros((4, 3, 2))}, start_hours=[0, 1, 2, 3])


def test_series_have_names_and_episodes_have_numbers():
    each = episodes()
    assert (len(each), each.horizon, each.names) == (4, 3, ("a", "b"))
    np.testing.assert_array_equal(each[1]["a"], [[3.0, 4.0, 5.0]])
    np.testing.assert_array_equal(each[-1]["a"], [[9.0, 10.0, 11.0]])
    np.testing.assert_array_equal(each[[0, 2]].start_hours, [0, 2])
    assert len(list(each)) == 4
    assert repr(each) == "Episodes(4 of 3 rounds: a, b)"


@pytest.mark.parametrize(
    ("series", "message"),
    [
        ({}, "at least one series"),
        ({"a": [1.0, 2.0]}, r"series 'a' must have shape \[N, H\] with N, H >= 1, got \(2,\)"),
        ({"a": np.zeros((0, 3))}, "N, H >= 1"),
        ({"a": np.zeros((2, 3)), "b": np.zeros((2, 4))}, r"'b' has \(2, 4\), 'a' has \(2, 3\)"),
        ({"a": [[1.0, np.nan]]}, r"series 'a' must be finite; at \(0, 1\) it is nan"),
    ],
)
def test_episodes_that_make_no_sense_are_refused(series, message):
    with pytest.raises(ValueError, match=message):
        Episodes(series)


def test_what_is_not_there_is_named():
    with pytest.raises(KeyError, match="no series 'c'; there are a, b"):
        episodes()["c"]
    with pytest.raises(IndexError, match="episode 4 of 4"):
        episodes()[4]
    with pytest.raises(ValueError, match=r"start_hours must have shape \[4\], got \(3,\)"):
        Episodes({"a": np.zeros((4, 3))}, start_hours=[0, 1, 2])


@pytest.mark.needs_data
def test_the_authors_windows_are_read_with_their_hours(shared):
    train = load_carbon(shared / "data" / "carbon", split="train")
    assert (len(train), train.horizon) == (2136, 24)
    assert train.names == ("demand", "renewables", "efficiency_noise", "drop_rate")
    assert train.start_hours[25] == 1
    assert len(load_carbon(str(shared / "data" / "carbon"))) == 1416


def test_a_folder_without_the_files_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is not a folder; expected one that holds demand\.mat"):
        load_carbon(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"demand\.mat not found; the folder must hold"):
        load_carbon(tmp_path)
    with pytest.raises(ValueError, match="split must be one of 'train', 'val', 'test', got 'dev'"):
        load_carbon(tmp_path, split="dev")


def test_a_damaged_or_foreign_file_is_named(tmp_path):
    from scipy.io import savemat

    (tmp_path / "demand.mat").write_bytes(b"not a matlab file" * 20)
    with pytest.raises(ValueError, match=r"demand\.mat is not a readable MATLAB file"):
        load_carbon(tmp_path)
    savemat(tmp_path / "demand.mat", {"weeks": np.zeros((2, 24))})
    with pytest.raises(ValueError, match=r"demand\.mat has no windows called 'test'; it holds: weeks"):
        load_carbon(tmp_path)


def test_clock_and_forecast_are_added_without_touching_the_rest():
    values = np.arange(12.0).reshape(2, 6)
    added = add_forecast(add_clock(Episodes({"demand": values}, [23, 0])), "demand", hours=2)
    assert added.names == ("demand", "clock_sin", "clock_cos", "demand_forecast")
    np.testing.assert_allclose(added["clock_cos"][0, :2], [np.cos(2 * np.pi * 23 / 24), 1.0])
    np.testing.assert_array_equal(added["demand_forecast"][1, 3:], [[10.0, 11.0], [11.0, 0.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="start_hours"):
        add_clock(Episodes({"demand": values}))
