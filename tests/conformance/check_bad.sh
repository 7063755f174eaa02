#!/bin/sh
# lookup_vectors must tell what is wrong: check_bad.sh PROGRAM FOLDER
# Each call: exit code 1, the expected last line, and an expected line before it.
program=$(realpath "$1")
cd "$2" || exit 1
failed=0

expect() { # FILE LAST-LINE LINE...
  file=$1 last=$2
  shift 2
  out=$($program "$file")
  code=$?
  [ $code -eq 1 ] || { echo "$file: exit code $code"; failed=1; }
  [ "$(echo "$out" | tail -n 1)" = "$last" ] || { echo "$file: not '$last':"; echo "$out"; failed=1; }
  for line; do
    echo "$out" | grep -qF "$line" || { echo "$file: lacks '$line':"; echo "$out"; failed=1; }
  done
}

expect wrong.jsonl '2 passed, 8 failed' \
  'sh-hand-0002 (wrong.jsonl:2): action load, expected miss' \
  '(wrong.jsonl:3): hit_tokens 16, expected 17' '(wrong.jsonl:4): reason cut, expected complete' \
  '(wrong.jsonl:5): tail_boundary 0, expected 20' \
  '(wrong.jsonl:6): group 0 needs [0,1], expected [0,2]' \
  '(wrong.jsonl:7): need has 1 groups, expected 0' \
  '(wrong.jsonl:8): without guard: reason group_miss, expected short' \
  '(wrong.jsonl:9): reason retry, expected pending'
expect malformed.jsonl '1 passed, 14 failed' \
  'malformed.jsonl:1: not JSON' 'malformed.jsonl:2: not JSON' 'malformed.jsonl:3: no id' \
  'sh-hand-0002 (malformed.jsonl:4): no id' '(malformed.jsonl:8): the input is refused'
expect empty.jsonl '0 passed, 1 failed' 'empty.jsonl: no cases'
expect missing.jsonl '0 passed, 1 failed' 'missing.jsonl: can'
expect cut-short.jsonl.gz '27 passed, 2 failed' \
  'not JSON' 'be read on'
exit $failed
