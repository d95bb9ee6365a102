"""What `tether verify --certificate compiled` leaves behind."""

import json
import math

from tether.assure.inclusions import Inclusion
from tether.cli.verify import Options, _show_compiled


def test_a_bound_that_never_counted_has_no_slack_in_the_results(tmp_path):
    options = Options(system="carbon", certificate="compiled", out=tmp_path, loosen="all")
    found = {"now": Inclusion("now", 10, 0, 0.01), "box": Inclusion("box", 10, 0, math.inf)}
    assert _show_compiled(options, found) == 0
    kept = json.loads((tmp_path / "results.json").read_text())["inclusions"]
    assert [each["slack"] for each in kept] == [0.01, None]
    blunt = {"round (prior)": Inclusion("round (prior)", 10, 0, 0.3)}
    assert _show_compiled(options, blunt) == 1
    of_rounds = {"later (prior)": Inclusion("later (prior)", 10, 0, 0.3)}
    assert _show_compiled(options, of_rounds) == 0
