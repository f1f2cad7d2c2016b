# make run    build and start Isobar on http://127.0.0.1:8080, with its data in ./data
# make check  format, lints, unit tests and the stores' suites on SQLite: what one runs all day
# make one    one test: T=a_part_of_its_name
# make test   every gate: format, lints, licences, tests (with a PostgreSQL of their own)
# make torture       the long forms, for which no gate waits: power cuts, flipped bits, neighbours, the cluster
# make torture-cluster  of these the cluster alone, for ten minutes: nodes, pairs of databases and etcd among faults; wants root
# make console       the web console alone, into console/dist; CONSOLE=no builds the program without it, and without Node.js
# make console-test  its types, lints, sizes and unit tests, and its tests in a browser
# make watch-test    alert rules, dashboards, the runbook's commands, nginx and Caddy, tried with a real server
# make clients-test  the clients of clients/: types, lints, and their tests against the program
# make dist   the program that is shipped: link-time optimisation, slower to build
# make package       the packages, in dist/: .deb, .rpm, tar.xz, image; KEY=NAME signs them and makes an apt repository
# make package-test  installs, upgrades, removes and purges them in containers; wants root
# make bench  the figures of docs/performance.md; ARGS="--quick" for a short run
# make fmt    format the code

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: run check one test torture torture-cluster bench dist fmt prepare quick console console-test watch-test clients-test package package-test

ENV := . scripts/env.sh;
CONSOLE ?= yes
export CONSOLE
FEATURES := $(if $(filter yes,$(CONSOLE)),--features console,)

run: quick
	@$(ENV) exec "$$CARGO_TARGET_DIR/quick/isobar" serve --data ./data $(ARGS)

quick: prepare
	@$(ENV) scripts/prepare says-build quick
	@$(if $(FEATURES),scripts/console build,true)
	@$(ENV) cargo build --locked --profile quick --package isobar $(FEATURES)

dist: prepare
	@$(ENV) scripts/prepare says-build dist
	@$(if $(FEATURES),scripts/console build,true)
	@$(ENV) cargo build --locked --profile dist --package isobar $(FEATURES)

console: quick
	@$(ENV) scripts/console types "$$CARGO_TARGET_DIR/quick/isobar"

console-test:
	@scripts/prepare test
	@scripts/console build
	@$(ENV) cargo build --locked --workspace --bin isobar --features isobar/console
	@$(ENV) scripts/console check "$$CARGO_TARGET_DIR/debug/isobar"
	@$(ENV) scripts/console browser "$$CARGO_TARGET_DIR/debug/isobar"

watch-test:
	@scripts/prepare test
	@scripts/console build
	@$(ENV) cargo build --locked --workspace --bin isobar --features isobar/console
	@$(ENV) scripts/watch "$$CARGO_TARGET_DIR/debug/isobar"

clients-test:
	@scripts/prepare test
	@$(ENV) cargo build --locked --workspace --bin isobar
	@$(ENV) scripts/clients test "$$CARGO_TARGET_DIR/debug/isobar"

check:
	@scripts/prepare test
	@scripts/console build
	@scripts/test check

one:
	@scripts/prepare test
	@scripts/console build
	@scripts/test one '$(T)'

test:
	@scripts/prepare test
	@scripts/test all

torture:
	@scripts/prepare test
	@scripts/prepare patroni
	@scripts/console build
	@scripts/test torture

torture-cluster: prepare
	@scripts/prepare patroni
	@scripts/test torture-cluster

package: prepare
	@$(ENV) scripts/package $(PROGRAM)

package-test:
	@scripts/prepare package-test
	@$(ENV) scripts/package-test $(PARTS)

bench: dist
	@scripts/prepare bench
	@$(ENV) cargo build --locked --profile dist --package isobar-bench
	@$(ENV) "$$CARGO_TARGET_DIR/dist/isobar-bench" run --isobar "$$CARGO_TARGET_DIR/dist/isobar" $(ARGS)

fmt:
	@$(ENV) cargo fmt --all

prepare:
	@scripts/prepare
