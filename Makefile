# make run    build and start Isobar on http://127.0.0.1:8080, with its data in ./data
# make test   every gate: format, lints, licences, tests (with a PostgreSQL of their own)
# make bench  the figures of docs/performance.md; ARGS="--quick" for a short run
# make fmt    format the code

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: run test bench fmt prepare release

ENV := . scripts/env.sh;

run: release
	@$(ENV) exec "$$CARGO_TARGET_DIR/release/isobar" serve --data ./data $(ARGS)

release: prepare
	@$(ENV) cargo build --locked --release --package isobar

test:
	@scripts/prepare test
	@scripts/test

bench: release
	@scripts/prepare bench
	@$(ENV) cargo build --locked --release --package isobar-bench
	@$(ENV) "$$CARGO_TARGET_DIR/release/isobar-bench" run --isobar "$$CARGO_TARGET_DIR/release/isobar" $(ARGS)

fmt:
	@$(ENV) cargo fmt --all

prepare:
	@scripts/prepare
