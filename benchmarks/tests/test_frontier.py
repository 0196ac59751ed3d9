import json


def test_bench_frontier_writes_ratios(bench, tmp_path):
    arguments = ["frontier", "--out", tmp_path, "--decisions", "100"]
    bench(*arguments, "--counts", "100", "--writers", "2")
    result = json.loads((tmp_path / "frontier-bench.json").read_text())
    decision, ledger = result["decision"], result["ledger"]
    assert decision["cheapest_over_dict"] == decision["cheapest_us"] / decision["dict_lookup_us"]
    assert ledger["record_over_upsert"] == ledger["record_us"] / ledger["bare_upsert_us"]
    assert ledger["writers_p99_us"] >= ledger["writers_p50_us"] > 0
