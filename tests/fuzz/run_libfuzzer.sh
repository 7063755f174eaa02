#!/bin/sh
# run_libfuzzer.sh PROGRAM CORPUS SECONDS: fuzz for a short while, from a copy of the corpus, since
# libFuzzer adds to the folder that it is given.
set -u
program=$(realpath "$1") && folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cp "$2"/* "$folder" && cd "$folder" || exit 1
"$program" -max_total_time="$3" -max_len=4096 -timeout=10 -print_final_stats=1 -artifact_prefix=found- . 2>&1
status=$?
[ $status = 0 ] || for file in found-*; do
    echo "$file:"
    base64 "$file"
done
exit $status
