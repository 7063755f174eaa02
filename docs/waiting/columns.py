#!/usr/bin/env python3
"""From the JSON lines of `spillway replay --compare --json` to what gnuplot and Markdown read.

usage: columns.py plot KEY FILE...     lines of: policy, KEY of each file
       columns.py table FILE           a Markdown table, a row a policy
       columns.py seeds FILE...        a Markdown table of the mean first token: a row a policy, a
                                       column a file, named by its own name
"""
import json
import os
import sys

ROWS = [
    ("first token, mean", lambda r: f"{r['ttft_mean_s']:.2f} s"),
    ("p50", lambda r: f"{r['ttft_p50_s']:.2f} s"),
    ("p99", lambda r: f"{r['ttft_p99_s']:.1f} s"),
    ("deferred", lambda r: f"{100 * r['deferred_share']:.2f} %"),
    ("wait, mean", lambda r: f"{r['wait_mean_s']:.2f} s"),
    ("p99", lambda r: f"{r['wait_p99_s']:.1f} s"),
    ("recomputed", lambda r: f"{r['recomputed_tokens']:,}"),
    ("hit rate", lambda r: f"{100 * r['hit_blocks'] / r['blocks']:.2f} %"),
    ("ETA error, mean", lambda r: f"{r['eta_error_mean_s']:.3f} s"),
    ("p50", lambda r: f"{r['eta_error_p50_s']:.3f} s"),
    ("p90", lambda r: f"{r['eta_error_p90_s']:.2f} s"),
    ("of the wait", lambda r: f"{100 * r['eta_error_share']:.1f} %"),
    ("waits", lambda r: f"{r['eta_waits']:,} + {r['eta_unknown']}"),
]


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.startswith("{")]


def row(cells):
    print("| " + " | ".join(cells) + " |")


def table(reports, columns):
    row(["policy"] + [name for name, _ in columns])
    row(["---"] + ["---:"] * len(columns))
    for report in reports:
        row([report["policy"]] + [text(report) for _, text in columns])


def seeds(paths):
    reports = [read(path) for path in paths]
    row(["policy"] + [os.path.basename(path).rsplit(".", 1)[0] for path in paths])
    row(["---"] + ["---:"] * len(paths))
    for same in zip(*reports):
        row([same[0]["policy"]] + [f"{report['ttft_mean_s']:.2f} s" for report in same])


def main(argv):
    if len(argv) > 3 and argv[1] == "plot":
        for same in zip(*[read(path) for path in argv[3:]]):
            print(f'"{same[0]["policy"]}"', *[report[argv[2]] for report in same])
    elif len(argv) == 3 and argv[1] == "table":
        table(read(argv[2]), ROWS[:8])
        print()
        table(read(argv[2]), ROWS[8:])
    elif len(argv) > 2 and argv[1] == "seeds":
        seeds(argv[2:])
    else:
        sys.exit(__doc__)


main(sys.argv)
