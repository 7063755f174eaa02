"""Counts one run of `meson test` for tools/check.

usage: check_totals.py STAGE LOG_BASE EXIT_STATUS FAILURES SKIPS

LOG_BASE.json has one object a test program, LOG_BASE.junit.xml the single tests of those that
speak TAP. Prints `passed failed skipped`; appends the failing tests, each with the end of its
output, to FAILURES and the skipped ones to SKIPS.
"""
import json
import os
import re
import sys
import xml.etree.ElementTree

LAST_LINES = 15


def programs(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def tap_cases(path):
    """{name of the test program: [(name, 'passed' | 'failed' | 'skipped')]}"""
    cases = {}
    if os.path.exists(path):
        for suite in xml.etree.ElementTree.parse(path).getroot():
            for case in suite.iter("testcase"):
                if case.get("classname") == suite.get("name"):
                    kinds = {child.tag for child in case}
                    state = ("failed" if kinds & {"failure", "error"} else
                             "skipped" if "skipped" in kinds else "passed")
                    cases.setdefault(suite.get("name"), []).append((case.get("name"), state))
    return cases


def judge(program, cases):
    """[(name, state)] of one test program; never empty."""
    result, output = program["result"], program.get("stdout", "")
    name = program["name"].replace(" / ", "/")
    states = [(f"{name}: {case}", state) for case, state in cases]
    if result in ("OK", "EXPECTEDFAIL"):
        return states or [(name, "passed")]
    if result == "SKIP":
        if re.search(r"^1\.\.0\s*$", output, re.M):
            return [(f"{name}: holds no test", "failed")]
        return states or [(name, "skipped")]
    if not any(state == "failed" for _, state in states):
        states.append((f"{name}: {result.lower()}, exit status {program.get('returncode')}", "failed"))
    return states


def main():
    stage, base, status, failures, skips = sys.argv[1:]
    count = {"passed": 0, "failed": 0, "skipped": 0}
    suites = tap_cases(base + ".junit.xml")
    failed = []
    for program in programs(base + ".json"):
        own = next((c for s, c in suites.items() if s.endswith("." + program["name"])), [])
        bad = []
        for name, state in judge(program, own):
            count[state] += 1
            if state == "failed":
                bad.append(name)
            elif state == "skipped":
                with open(skips, "a", encoding="utf-8") as f:
                    f.write(f"{stage}  {name}\n")
        if bad:
            output = (program.get("stdout", "") + program.get("stderr", "")).rstrip().splitlines()
            failed.append((bad, output[-LAST_LINES:]))
    if int(status) != 0 and not failed:
        count["failed"] += 1
        failed.append(([f"meson test ended with status {status}"], []))
    with open(failures, "a", encoding="utf-8") as f:
        for names, lines in failed:
            f.writelines(f"FAILED {stage}  {name}\n" for name in names)
            f.write(f"       log: {base}.txt\n")
            f.writelines(f"       | {line}\n" for line in lines)
    print(count["passed"], count["failed"], count["skipped"])


if __name__ == "__main__":
    main()
