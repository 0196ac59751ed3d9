import json

from typer.testing import CliRunner

from ecs_plugins.cli import app


def test_bench_frontier_writes_ratios_of_what_it_measured(tmp_path):
    arguments = ["bench", "frontier", "--out", str(tmp_path), "--decisions", "100"]
    done = CliRunner().invoke(app, [*arguments, "--counts", "100", "--writers", "2"])
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "frontier-bench.json").read_text())
    decision, ledger = result["decision"], result["ledger"]
    assert decision["cheapest_over_dict"] == decision["cheapest_us"] / decision["dict_lookup_us"]
    assert ledger["record_over_upsert"] == ledger["record_us"] / ledger["bare_upsert_us"]
    assert ledger["writers_p99_us"] >= ledger["writers_p50_us"] > 0
