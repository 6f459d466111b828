# The chores of gswarm. `make` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help up test test-fast torture soak bench fmt docs clean

# Passed on to the program: `make up ARGS="--nodes 4"`.
ARGS ?=

# What is linted and tested: `make test PACKAGES="-p gswarm-store"` while working on one crate.
PACKAGES ?= --workspace

TARGET := $(or $(CARGO_TARGET_DIR),target)
TOOLS := $(or $(GSWARM_TOOLS_DIR),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gswarm/tools)
export PATH := $(PATH):$(TOOLS)/bin

step := @scripts/step.sh

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | \
	  while IFS=$$'\t' read -r target text; do printf '  make %-10s %s\n' "$$target" "$$text"; done

up: ## build and run host and agent here, in the foreground (simulated without a GPU; ARGS="...")
	@scripts/setup.sh rust compiler
	cargo build --release --locked -p gswarm
	@simulate=$$(scripts/has-gpu.sh || echo --sim); set -x; exec $(TARGET)/release/gswarm up $$simulate $(ARGS)

test: ## everything CI checks; installs what it needs
	@scripts/setup.sh rust lints compiler nextest deny python
	$(step) fmt      cargo fmt --all --check -- -l
	$(step) typos    .venv/bin/typos
	$(step) tidy     cargo run --quiet --locked --package xtask -- tidy
	$(step) deny     cargo deny --locked check bans licenses sources
	$(step) clippy   cargo clippy $(PACKAGES) --all-targets --locked -- -D warnings
	$(step) nextest  cargo nextest run $(PACKAGES) --locked --profile ci
	@if [ "$(PACKAGES)" = --workspace ] && grep -rqE '^ *//[/!] ```' crates; then \
	  scripts/step.sh doctests cargo test --workspace --locked --doc --quiet; \
	fi
	@if [ -d tests/python ]; then \
	  scripts/step.sh build cargo build --workspace --bins --locked; \
	  scripts/step.sh pytest .venv/bin/python -m pytest tests/python; \
	fi

test-fast: ## formatting, rules and unit tests only
	@scripts/setup.sh rust lints compiler nextest
	$(step) fmt     cargo fmt --all --check -- -l
	$(step) tidy    cargo run --quiet --package xtask -- tidy
	$(step) nextest cargo nextest run --workspace --lib --bins --exclude gswarm-sim

torture: ## the long fault suite, the mutation proofs and the fuzzers (ARGS="faults mutations fuzz" picks some)
	@scripts/setup.sh rust compiler nextest python fuzz
	@scripts/torture.sh $(ARGS)

soak: ## an hour of churn: memory, descriptors and disk of the host must stay flat (SOAK_SECONDS)
	@scripts/setup.sh rust compiler
	cargo build --release --locked -p gswarm
	@python3 scripts/soak.py

bench: ## measurements beside their peers (ARGS="NAME..." picks some)
	@scripts/setup.sh rust compiler peers
	cargo build --release --locked -p gswarm
	@scripts/bench.sh $(ARGS)

fmt: ## format the code
	cargo fmt --all

docs: ## write the generated parts of the documents
	cargo run --quiet --package xtask -- tidy --write

clean: ## remove what was built, and the Python tools
	cargo clean --quiet
	rm -rf .venv target/steps
