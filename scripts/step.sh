#!/usr/bin/env bash
# Runs one step of a longer chore: `step.sh NAME COMMAND...`.
#
# Success is one line with the duration; the output goes to target/steps/NAME.log. Failure shows
# its last lines. A test step also shows its runner's closing line.
set -uo pipefail

shown_lines_max=400

name=$1
shift
log=target/steps/$name.log
mkdir -p target/steps

started=$(date +%s%N)
"$@" >"$log" 2>&1 </dev/null
code=$?
took=$(( ($(date +%s%N) - started) / 100000000 ))
took=$(printf '%7s' "$((took / 10)).$((took % 10)) s")

if [ "$code" -ne 0 ]; then
  tail -n "$shown_lines_max" "$log"
  printf 'FAILED %s  %s (exit code %s)\n       command: %s\n       log:     %s\n' \
    "$took" "$name" "$code" "$*" "$log"
  exit "$code"
fi
printf 'ok     %s  %s' "$took" "$name"
closing=$(grep -aE '^ *Summary \[|^=+ .* in [0-9.]+s.* =+$|^tidy: ' "$log" | tail -n 1 | tr -s ' ')
if [ -n "$closing" ]; then printf ':%s' " ${closing# }"; fi
printf '\n'
