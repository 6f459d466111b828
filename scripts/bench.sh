#!/usr/bin/env bash
# Runs every benchmark: the executables of scripts/bench/ in the order of their names.
#
# Each prints its own numbers beside those of its peer. Names given as arguments pick some of them.
set -euo pipefail

cd "$(dirname "$0")/.."
shopt -s nullglob
found=0
for bench in scripts/bench/*; do
  if [ ! -x "$bench" ] || [ -d "$bench" ]; then continue; fi
  name=$(basename "${bench%.*}")
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  found=$((found + 1))
  printf '== %s\n' "$name"
  "$bench"
done
if [ "$found" -eq 0 ]; then
  printf 'bench: nothing to run: put an executable into scripts/bench/\n' >&2
  exit 1
fi
