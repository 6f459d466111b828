#!/usr/bin/env bash
# Brings what builds and tests need: `setup.sh NEED...`, with needs from the table at the end.
#
# Whatever is there already is left alone and nothing is downloaded for it. Built tools go to
# $GSWARM_TOOLS_DIR (default ~/.cache/gswarm/tools), so that a new clone finds them again.
set -euo pipefail

cd "$(dirname "$0")/.."
tools=${GSWARM_TOOLS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/gswarm/tools}
PATH="$PATH:$tools/bin"

nextest_version=0.9.143
deny_version=0.20.2
fuzz_version=0.13.2

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# --- Debian and Ubuntu packages

apt_updated=no
apt_install() {
  have apt-get || die "please install: $* (no apt-get here to do it)"
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    have sudo || die "please install as root: apt-get install $*"
    root=(sudo)
  fi
  say "installing $*"
  if [ "$apt_updated" = no ]; then
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    apt_updated=yes
  fi
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# --- Needs

rust() {
  have cargo || die "cargo is missing: install Rust (1.95 or newer) first"
}

lints() {
  cargo fmt --version >/dev/null 2>&1 || die "rustfmt is missing: rustup component add rustfmt"
  cargo clippy --version >/dev/null 2>&1 || die "clippy is missing: rustup component add clippy"
}

# Crates with C inside, and the fake driver library of the tests.
compiler() {
  if ! have cc || ! echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1; then
    apt_install gcc libc6-dev
  fi
}

# A tool from the crate registry, built without optimisation: it runs for seconds, and the build
# would take minutes otherwise.
cargo_tool() {
  local name=$1 version=$2
  shift 2
  if have "$name"; then return; fi
  say "building $name $version (once on this machine)"
  CARGO_TARGET_DIR="$tools/build" CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
    cargo install --quiet --locked --debug --root "$tools" "$name@$version" "$@"
  rm -rf "$tools/build"
}

nextest() { cargo_tool cargo-nextest "$nextest_version"; }
deny() { cargo_tool cargo-deny "$deny_version" --no-default-features; }

# What benchmarks run beside ours. Their packages start no servers where systemd does not run.
peers() {
  local missing=()
  have prometheus || missing+=(prometheus)
  have victoria-metrics || missing+=(victoria-metrics)
  if [ ${#missing[@]} -gt 0 ]; then apt_install "${missing[@]}"; fi
}

# libFuzzer: its hooks are options of the nightly compiler, itself is C++.
fuzz() {
  cargo +nightly --version >/dev/null 2>&1 ||
    die "fuzzing needs a nightly compiler: rustup toolchain install nightly --profile minimal"
  if ! have c++ || ! echo '#include <vector>' | c++ -x c++ -E - >/dev/null 2>&1; then
    apt_install g++
  fi
  cargo_tool cargo-fuzz "$fuzz_version"
}

# Python tools in .venv, brought again only when a list of them changes.
python() {
  local lists=(scripts/requirements.txt)
  if [ -f tests/python/requirements.txt ]; then lists+=(tests/python/requirements.txt); fi
  local wanted
  wanted=$(cat "${lists[@]}" | cksum)
  if [ -f .venv/wanted ] && [ "$(cat .venv/wanted)" = "$wanted" ]; then return; fi
  if ! have python3 || ! python3 -c 'import ensurepip, venv' >/dev/null 2>&1; then
    apt_install python3 python3-venv
  fi
  say "bringing Python tools into .venv"
  if [ ! -x .venv/bin/pip ]; then
    rm -rf .venv
    python3 -m venv .venv
  fi
  .venv/bin/pip install --quiet --disable-pip-version-check "${lists[@]/#/--requirement=}"
  printf '%s\n' "$wanted" >.venv/wanted
}

for need in "$@"; do
  case $need in
    rust | lints | compiler | nextest | deny | fuzz | python | peers) "$need" ;;
    *) die "unknown need: $need" ;;
  esac
done
