"""Run `spw-bench --smoke --json` and check what it prints: one JSON object a line with the keys that
scripts rely on, every promised case among them. Times mean nothing here and are not looked at.

usage: check_smoke.py SPW_BENCH
"""
import json
import math
import os
import subprocess
import sys

# with what each is held against
ALONE = """lookup/digest_256_keys decision/re_ask idle/pool_2_workers""".split()
ALONE += [f"nvme/{way}_{size}M_d{depth}{what}" for way in ("read", "write") for size in (1, 4)
          for depth in (1, 8, 32) for what in ("", "_cpu")] + ["nvme/read_1M_in_writes_queued"]
BESIDE = """step/64_news_10000_deferred step/64_news_64_woken
ring/drain lookup/256_keys_1M lookup/decide_256_keys_1M lookup/1000_keys_64k
lookup/1000_keys_1M lookup/1000_keys_8M lookup/shared_table_find pin/begin_64
decision/8192_full_2_sliding_all_hit decision/8192_worst table/shard_change_b96 resync/scan_1M
resync/replica_1M attach/1M_chunks copy/host_store copy/host_load
order/4096_stores_16_clients
wakeup/record_unwatched nvme/read_1M_d8_sum nvme/write_1M_d8_sum nvme/read_1M_in_writes""".split()
# these need two CPUs; ck_ring, and so its comparison, may be missing
TWO_CPUS_ALONE = """ring/per_round_trip_b1 ring/per_round_trip_b8 ring/per_round_trip_b32
lane/per_round_trip_b1""".split()
TWO_CPUS = """ring/publish_b32_one_reader ring/publish_b32_stopped_readers latency/update_one_way
latency/command_one_way lane/round_trip resync/scan_1M_written path/store_to_hit
path/hit_to_loaded""".split()
MAYBE_BESIDE = "ring/throughput_b1 ring/throughput_b8 ring/throughput_b32 lane/throughput_b1".split()
BESIDE_KEYS = ("against", "against_p50", "ratio")


def check_line(case, beside):
    """Complaints about one object; @beside None: it may have a peer."""
    wrong = [f"no {key}" for key in ("bench", "case", "unit") if not isinstance(case.get(key), str)]
    wrong += [f"{key} is {case.get(key)}" for key in ("p50", "p99", "max")
              if not isinstance(case.get(key), (int, float)) or not math.isfinite(case[key])
              or case[key] < 0]
    if not isinstance(case.get("n"), int) or case["n"] < 1:
        wrong.append(f"n is {case.get('n')}")
    if not wrong and not case["p50"] <= case["p99"] <= case["max"]:
        wrong.append("p50, p99 and max are out of order")
    has = [key for key in BESIDE_KEYS if key in case]
    if has and len(has) != len(BESIDE_KEYS):
        wrong.append(f"only {has} of {BESIDE_KEYS}")
    if beside is not None and bool(has) != beside:
        wrong.append("nothing to hold it against" if beside else "held against something")
    return wrong


def main():
    run = subprocess.run([sys.argv[1], "--smoke", "--json"], stdout=subprocess.PIPE, check=False)
    wrong = [] if run.returncode == 0 else [f"exit status {run.returncode}"]
    two = len(os.sched_getaffinity(0)) > 1
    expected = {name: beside for names, beside in (
        (ALONE, False), (BESIDE, True), (TWO_CPUS_ALONE if two else [], False),
        (TWO_CPUS if two else [], True), (MAYBE_BESIDE if two else [], None)) for name in names}
    seen = set()
    for line in run.stdout.decode().splitlines():
        try:
            case = json.loads(line)
        except ValueError:
            wrong.append(f"not JSON: {line}")
            continue
        name = f"{case.get('bench')}/{case.get('case')}"
        wrong += [f"{name}: {what}" for what in check_line(case, expected.get(name))]
        if name in seen:
            wrong.append(f"{name}: twice")
        seen.add(name)
    wrong += [f"{name}: missing" for name in expected if name not in seen]
    print("\n".join(wrong) or f"{len(seen)} cases")
    sys.exit(1 if wrong else 0)


main()
