#!/usr/bin/env python3
"""Runs one Promela model with all its variants and prints TAP.

The head comment of the model lists its variants, one a line:

    holds [-DX ...] | words                 no error may be found
    fails -DX [...] | reason | words        an error whose message contains `reason` must be found;
                                            `a or b` where either may be found first

A variant that holds is searched whole: a search cut short by depth, memory or time is a failure.
After the variants, one more test point: each statement of the model was reached in at least one
variant that holds. A line that can't be reached carries the comment `never`. Good ends
are printf statements, so that this point shows that they are reached too.
"""
import collections
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

DEPTH = 1000000
MEMORY_MIB = 2000
CPU_S = 120
CC = os.environ.get('SPW_MODEL_CC', 'gcc')
VARIANT = re.compile(r'^ \*\s+(holds|fails)\b((?:\s+-D\S+)*)\s*\|(.*)$')
UNREACHED = re.compile(r'^\s+\S+?([^/]+):(\d+), state \d+, "(.*)"$')
STATEMENT = re.compile(r'^\s+state +(\d+) -.*\] \S*?([^/]+):(\d+) => (.*)$')


def variants(model):
    """Yields (expected, flags, reason, words) for each line of the head comment that says so."""
    for line in open(model, encoding='ascii'):
        if '*/' in line:
            return
        match = VARIANT.match(line.rstrip())
        if match:
            parts = [part.strip() for part in match[3].split('|')]
            reason = parts.pop(0) if match[1] == 'fails' else ''
            yield match[1], match[2].split(), reason, ' '.join(parts)


def statements(folder, flags, model):
    """Returns the checker's list of all statements, none merged with the next (-o3)."""
    subprocess.run(['spin', '-a', '-o3', *flags, model], cwd=folder, capture_output=True)
    subprocess.run([CC, '-O0', '-w', '-DSAFETY', '-o', 'list', 'pan.c'], cwd=folder)
    return subprocess.run(['./list', '-d'], cwd=folder, capture_output=True, text=True).stdout


def limit_time():
    """Processor time: a busy machine is no reason to fail."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))


def search(model, flags, whole):
    """Builds and runs the checker in a folder of its own; returns what it printed."""
    with tempfile.TemporaryDirectory(prefix='spw-model-') as folder:
        # a search that is to find an error soon ends early: spend less on compiling it
        optimize = '-O2' if whole else '-O0'
        for command in (['spin', '-a', *flags, os.path.abspath(model)],
                        [CC, optimize, '-w', '-DSAFETY', f'-DMEMLIM={MEMORY_MIB}',
                         '-o', 'pan', 'pan.c']):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode != 0:
                return 'does not build: ' + done.stdout + done.stderr
        done = subprocess.run(['./pan', f'-m{DEPTH}', '-w24'], cwd=folder, capture_output=True,
                              text=True, preexec_fn=limit_time)
        report = done.stdout + done.stderr
        if whole:
            report += statements(folder, flags, os.path.abspath(model))
        return report


def verdict(report, expected, reason):
    """Returns '' if the report is what was expected, else what is wrong with it."""
    errors = re.search(r'errors: (\d+)', report)
    if not errors:
        return 'no result: ' + report[-300:]
    message = re.search(r'^pan:\d+: (.*)$', report, re.M)
    message = message[1] if message else ''
    if expected == 'holds':
        if 'max search depth too small' in report or 'Search not completed' in report:
            return 'searched in part only: ' + message
        return '' if errors[1] == '0' else message
    if errors[1] == '0':
        return 'the mistake is not found'
    return '' if any(part in message for part in reason.split(' or ')) else f'fails for another reason: {message}'


def unreached(report):
    """Returns the set of (file, line, statement) which a whole search did not reach. A statement
    of an inline occurs once for each use of it: one use that was reached is enough."""
    occurs, misses = collections.Counter(), collections.Counter()
    seen = set()
    process = ''
    for line in report.splitlines():
        process = line if line.startswith('proctype') else process
        match = STATEMENT.match(line)
        if match and (process, match[1], match[4]) not in seen:
            seen.add((process, match[1], match[4]))
            occurs[match[2], int(match[3]), match[4]] += 1
        match = UNREACHED.match(line)
        if match and match[3] != '-end-':
            misses[match[1], int(match[2]), match[3]] += 1
    return {key for key, count in misses.items() if count >= occurs[key]}


def main():
    model = sys.argv[1]
    only = sys.argv[2:]
    if not shutil.which('spin') or not shutil.which(CC):
        print('1..0 # SKIP needs spin and', CC)
        return 0
    cases = [case for case in variants(model) if not only or case[1] == only or only == [case[0]]]
    print(f'1..{len(cases) + 1}', flush=True)
    failed = 0
    missing = None
    for number, (expected, flags, reason, words) in enumerate(cases, 1):
        report = search(model, flags, expected == 'holds')
        if report.startswith('does not build'):
            print('Bail out!', report.replace('\n', ' '))
            return 1
        wrong = verdict(report, expected, reason)
        if expected == 'holds' and not wrong:
            here = unreached(report)
            missing = here if missing is None else missing & here
        label = ' '.join([expected, *flags]) + ' - ' + words
        print(f'{"not ok" if wrong else "ok"} {number} - {label}')
        for line in re.findall(r'^\s*\d+ states, stored|^State-vector.*(?=, errors)', report, re.M):
            print('#', line.strip())
        if wrong:
            failed += 1
            print('#', wrong.replace('\n', '\n# '))
        sys.stdout.flush()
    source = open(model, encoding='ascii').read().splitlines()
    if missing is None:
        missing = {(model, 1, 'no variant that holds was searched')}
    missing = sorted((line, text) for file, line, text in missing
                     if '/* never */' not in source[line - 1] or not model.endswith(file))
    print(f'{"not ok" if missing else "ok"} {len(cases) + 1} - every statement is reached')
    for line, text in missing:
        print(f'# line {line}: {text}')
    return 1 if failed or missing else 0


if __name__ == '__main__':
    sys.exit(main())
