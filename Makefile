# make run    build and start Isobar on http://127.0.0.1:8080, with its data in ./data
# make test   every gate: format, lints, licences, tests (with a PostgreSQL of their own)
# make dist   the program that is shipped: link-time optimisation, slower to build
# make bench  the figures of docs/performance.md; ARGS="--quick" for a short run
# make fmt    format the code

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: run test bench dist fmt prepare quick

ENV := . scripts/env.sh;

run: quick
	@$(ENV) exec "$$CARGO_TARGET_DIR/quick/isobar" serve --data ./data $(ARGS)

quick: prepare
	@$(ENV) scripts/prepare says-build quick
	@$(ENV) cargo build --locked --profile quick --package isobar

dist: prepare
	@$(ENV) scripts/prepare says-build dist
	@$(ENV) cargo build --locked --profile dist --package isobar

test:
	@scripts/prepare test
	@scripts/test

bench: dist
	@scripts/prepare bench
	@$(ENV) cargo build --locked --profile dist --package isobar-bench
	@$(ENV) "$$CARGO_TARGET_DIR/dist/isobar-bench" run --isobar "$$CARGO_TARGET_DIR/dist/isobar" $(ARGS)

fmt:
	@$(ENV) cargo fmt --all

prepare:
	@scripts/prepare
