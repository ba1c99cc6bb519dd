# `make help` describes every target. Recipes are short; longer ones are scripts in tests/.

CARGO ?= cargo
OUT   ?= out
N     ?= 1000
GUEST ?=
TARGET := $(shell uname -m)-unknown-linux-gnu
# Profile of the benchmark programs: fast enough not to disturb the measurement, quick to build.
TOOLS := --profile tools -p virtfleet-tests

.DEFAULT_GOAL := help
.PHONY: help demo guest setup check test e2e repeat bench bench-agent bench-fleet bench-enrol bench-hostile bench-guest bench-labels bench-index bench-health bench-disks bench-proof bench-parsers bench-dns parity guest-soak guest-disk-soak guest-dns-soak container-soak churn-soak oldest-kubernetes disk-soak disk-generate fuzz fmt static deb dist clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make demo ONCE=1        print the fleet once; exit code 0 only if all agents enrolled"
	@echo "  make guest CMD='lsblk' GUEST='--suite bookworm --disk 1G'   options: target/debug/virtfleet-guest run --help"
	@echo "  make bench-fleet N=1000 how many simulated guests"

demo: ## Run a collector, an agent on this machine and simulated guests until Ctrl-C
	@$(CARGO) build -q -p virtfleet-agent -p virtfleet-collector -p virtfleet-tests --bins
	@target/debug/virtfleet-demo $(if $(ONCE),--once)

guest: ## Run a command in a real guest (CMD='lsblk'); without CMD a shell
	@$(CARGO) build -q -p virtfleet-tests --bin virtfleet-guest
	@target/debug/virtfleet-guest $(if $(CMD),run,shell) $(GUEST) $(if $(CMD),-- '$(subst ','\'',$(CMD))')

setup: ## Install what the tests need: Debian packages (as root), real servers (in the user's cache)
	@tests/parts/setup.sh

check: ## Run format, lints, unit tests and architecture tests
	@tests/run.sh check

test: ## Run everything: set-up, check, then every tier that this machine supports
	@tests/run.sh test

e2e: ## Run only the tiers that need real servers, devices or root (2 and up)
	@tests/run.sh e2e

repeat: ## Run all scenarios TIMES times on busy cores, and list those that failed at least once: TIMES=10 FILTER='test(/^push/)'
	@tests/run.sh repeat $(or $(TIMES),10) '$(subst ','\'',$(FILTER))'

bench: bench-agent bench-fleet bench-enrol bench-hostile bench-labels bench-index bench-health bench-disks bench-proof bench-parsers bench-dns bench-guest ## Run all benchmarks

bench-agent: static ## Measure the agent beside node_exporter, in one run
	@tests/parts/parts.sh fetch node-exporter >/dev/null
	@$(CARGO) build -q $(TOOLS) --bin bench-agent
	@VIRTFLEET_BIN_VIRTFLEET_AGENT=target/$(TARGET)/release/virtfleet-agent target/tools/bench-agent

parity: ## Compare the agent's metrics with node_exporter's, family by family (ARGS='--roots DIR')
	@tests/parts/parts.sh fetch node-exporter >/dev/null
	@$(CARGO) build -q -p virtfleet-agent -p virtfleet-tests --bin virtfleet-agent --bin parity
	@target/debug/parity $(ARGS)

bench-fleet: ## Measure the collector with N simulated guests beside vmagent, in one run
	@tests/parts/parts.sh fetch vmagent >/dev/null
	@$(CARGO) build -q --release -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-fleet --bin fleet-sim
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/release/virtfleet-collector target/tools/bench-fleet --guests $(N)

bench-enrol: static ## Measure the enrolment of N simulated agents (N=10000), and the memory of the real one
	@$(CARGO) build -q --release -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-enrol
	@VIRTFLEET_BIN_VIRTFLEET_AGENT=target/$(TARGET)/release/virtfleet-agent VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/release/virtfleet-collector \
		target/tools/bench-enrol $(if $(filter command line,$(origin N)),--guests $(N))

bench-hostile: ## Measure what hostile guests of one tenant cost the others (ARGS='--minutes 5 --hostile 100')
	@$(CARGO) build -q --release -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-hostile
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/release/virtfleet-collector target/tools/bench-hostile $(ARGS)

bench-labels: ## Measure how fast labels follow placement, on real API servers (ARGS='--vmis 500 --large 0')
	@tests/parts/kubernetes.sh fetch >/dev/null || tests/parts/kube-apiserver.sh fetch >/dev/null
	@$(CARGO) build -q --release -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-labels
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/release/virtfleet-collector target/tools/bench-labels $(ARGS)

bench-disks: ## Measure secondary disks: from blank to mounted, and a run without changes
	@$(CARGO) build -q $(TOOLS) --bin bench-disks --bin disk-stage
	@target/tools/bench-disks

bench-index: ## Measure an event while 500 user clusters share a namespace of 10,000 VMs
	@$(CARGO) build -q $(TOOLS) --bin bench-index
	@target/tools/bench-index

bench-health: ## Measure the verdict of 10,000 VMs
	@$(CARGO) build -q $(TOOLS) --bin bench-health
	@target/tools/bench-health

bench-proof: ## Measure how much of a blank disk the default proof reads, beside dd
	@$(CARGO) build -q $(TOOLS) --bin bench-proof
	@target/tools/bench-proof

bench-parsers: ## Measure the parsers of /proc beside those of procfs-core
	@$(CARGO) build -q $(TOOLS) --bin bench-parsers
	@target/tools/bench-parsers

bench-dns: static ## Measure the time to verified DNS, with and without the agent, in a container (N=7 boots)
	@tests/parts/machine-root.sh trixie >/dev/null
	@$(CARGO) build -q $(TOOLS) --bin bench-dns
	@VIRTFLEET_BIN_VIRTFLEET_AGENT=target/$(TARGET)/release/virtfleet-agent target/tools/bench-dns $(if $(filter command line,$(origin N)),$(N))

bench-guest: static ## Measure boots, restores and the agent in a real guest, with and without it in one run
	@$(CARGO) build -q --workspace --bins
	@target/debug/bench-guest $(ARGS)

guest-soak: static ## Cut the power of N first boots at seeded moments; run all other guest scenarios: N=20
	@tests/soak.sh guests $(if $(filter command line,$(origin N)),$(N))

guest-disk-soak: static ## Test disks in guests: N power cuts, LUKS and TPM, Debian 12, foreign and unreadable disks, races
	@tests/soak.sh guest-disks $(if $(filter command line,$(origin N)),$(N))

guest-dns-soak: static ## Test DNS in guests: N power cuts while it is changed, and Debian 12
	@tests/soak.sh guest-dns $(if $(filter command line,$(origin N)),$(N))

container-soak: ## Test DNS and deliveries in containers, killed at every point
	@tests/soak.sh containers

churn-soak: ## Kill the leading collector N times during churn, and restart API servers: N=100
	@tests/parts/kubernetes.sh fetch >/dev/null || tests/parts/kube-apiserver.sh fetch >/dev/null
	@tests/soak.sh churn $(if $(filter command line,$(origin N)),$(N))

oldest-kubernetes: ## Test the collector on Kubernetes 1.20, the oldest tested release (built once, in minutes)
	@tests/parts/kube-apiserver.sh fetch >/dev/null
	@tests/soak.sh oldest

disk-soak: ## Kill the engine of secondary disks at N random moments: N=500
	@tests/soak.sh disks $(if $(filter command line,$(origin N)),$(N))

disk-generate: ## Generate N disks; none with foreign bytes may be formatted unannounced: N=2000 SEED=1
	@VIRTFLEET_DISK_SEED=$(or $(SEED),1) tests/soak.sh generate $(if $(filter command line,$(origin N)),$(N))

fuzz: ## Fuzz every parser, coverage-guided (default 60 s per target; needs g++): SECONDS=600 ARGS='netlink dbus'
	@SECONDS_EACH=$(or $(SECONDS),60) tests/fuzz/run.sh $(ARGS)

fmt: ## Format the sources
	@$(CARGO) fmt --all
	@rustfmt --edition 2024 --config-path rustfmt.toml tests/fuzz/src/main.rs

# Built alone and for an explicit target, so that features of other crates and flags of build scripts
# do not affect it.
static:
	@RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release -p virtfleet-agent --target $(TARGET)

deb: static ## Build the agent's Debian package into out/ (OUT=FOLDER)
	@packaging/deb/build.sh $(OUT) target/$(TARGET)/release/virtfleet-agent

dist: static ## Build static agent, Debian package, collector, CLI, completions, man pages and checksums into out/
	@tests/dist.sh $(OUT) target/$(TARGET)/release/virtfleet-agent

clean: ## Remove all build results
	@$(CARGO) clean
	@rm -rf $(OUT)
