"""Load of the server."""

import json

import pytest


@pytest.mark.slow
def test_a_server_answers_despite_misbehaving_clients(bench, tmp_path):
    out = tmp_path / "load.json"
    bench("server-load", "--clients", "4", "--minutes", "0.05", "--pause", "0.1", "--out", out)
    found = json.loads(out.read_text())
    assert set(found["statuses"]) == {"200"}
    assert set(found["others"]) == {"silent", "endless", "leaving"}
    assert 0 < found["small p50 (ms)"] <= found["small p99 (ms)"]
