#!/bin/sh
# Usage: fuzz/run.sh TARGET SECONDS [OPTION...]: run a built fuzz target from its corpus and print the result.
#
# A finding fails, and its input stays in fuzz/artifacts. So does an input that takes 5 s or 1 GiB.
set -eu
cd "$(dirname "$0")"

target=$1 seconds=$2
shift 2
program=$(find target -path "*-*-*/release/$target" -type f | head -n 1)
mkdir -p "corpus/$target" "artifacts/$target"
log=artifacts/$target.log
if ! "$program" "corpus/$target" -artifact_prefix="artifacts/$target/" -max_total_time="$seconds" -max_len=8192 \
    -timeout=5 -rss_limit_mb=1024 "$@" >"$log" 2>&1; then
    grep -v '^#' "$log" >&2
    exit 1
fi
grep -E '^#.*DONE|^Done ' "$log"
