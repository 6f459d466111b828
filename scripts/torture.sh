#!/usr/bin/env bash
# The long fault suite, the proofs that it can fail, and the fuzzers: parts are named in scripts/torture/.
#
# Names given as arguments pick some of them. Every part prints what it did; any that fails fails the run.
set -uo pipefail

cd "$(dirname "$0")/.."
parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then parts=(faults mutations fuzz); fi
mkdir -p target/torture
failed=()
for part in "${parts[@]}"; do
  if [ ! -x "scripts/torture/$part" ]; then
    printf 'torture: no part is called %s: there are %s\n' "$part" "$(ls scripts/torture | tr '\n' ' ')" >&2
    exit 2
  fi
  printf '== %s\n' "$part"
  started=$SECONDS
  "scripts/torture/$part" || failed+=("$part")
  printf '%s took %d s\n\n' "$part" $((SECONDS - started))
done
if [ ${#failed[@]} -gt 0 ]; then
  printf 'torture: FAILED: %s\n' "${failed[*]}"
  exit 1
fi
printf 'torture: passed: %s\n' "${parts[*]}"
