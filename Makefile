# Every target says what it does: `make help`. Recipes are short; what is longer lies in tests/.

CARGO ?= cargo
OUT   ?= out
N     ?= 1000
GUEST ?=
TARGET := $(shell uname -m)-unknown-linux-gnu
# Tools of the benchmarks: fast enough not to disturb what they measure, quick to build.
TOOLS := --profile tools -p virtfleet-tests

.DEFAULT_GOAL := help
.PHONY: help demo guest setup check test e2e bench bench-agent bench-fleet bench-hostile bench-guest bench-labels bench-index bench-disks bench-proof bench-dns parity guest-soak guest-disk-soak guest-dns-soak container-soak churn-soak oldest-kubernetes disk-soak disk-generate fuzz fmt static deb dist clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make demo ONCE=1        print the fleet once; exit code 0 only if all VMs answered"
	@echo "  make guest CMD='lsblk' GUEST='--suite bookworm --disk 1G'   options: target/debug/virtfleet-guest run --help"
	@echo "  make bench-fleet N=1000 how many simulated guests"

demo: ## A collector, an agent on this machine and simulated guests, live until Ctrl-C
	@$(CARGO) build -q -p virtfleet-agent -p virtfleet-collector -p virtfleet-tests --bins
	@target/debug/virtfleet-demo $(if $(ONCE),--once)

guest: ## A command in a real guest (CMD='lsblk'), without CMD a shell in one
	@$(CARGO) build -q -p virtfleet-tests --bin virtfleet-guest
	@target/debug/virtfleet-guest $(if $(CMD),run,shell) $(GUEST) $(if $(CMD),-- '$(subst ','\'',$(CMD))')

setup: ## Install what the tests need: Debian packages (as root) and real servers (into the user's cache)
	@tests/parts/setup.sh

check: ## Format, lints, unit tests and the rules of the house
	@tests/run.sh check

test: ## Everything: set-up, check, then every tier that this machine allows
	@tests/run.sh test

e2e: ## Only the tiers that need real servers, devices or root (2 and up)
	@tests/run.sh e2e

bench: bench-agent bench-fleet bench-hostile bench-labels bench-index bench-disks bench-proof bench-dns bench-guest ## All benchmarks

bench-agent: static ## The agent's figures beside node_exporter's, in one run
	@tests/parts/parts.sh fetch node-exporter >/dev/null
	@$(CARGO) build -q $(TOOLS) --bin bench-agent
	@VIRTFLEET_BIN_VIRTFLEET_AGENT=target/$(TARGET)/release/virtfleet-agent target/tools/bench-agent

parity: ## The agent's page beside node_exporter's, family by family: what differs (ARGS='--roots DIR')
	@tests/parts/parts.sh fetch node-exporter >/dev/null
	@$(CARGO) build -q -p virtfleet-agent -p virtfleet-tests --bin virtfleet-agent --bin parity
	@target/debug/parity $(ARGS)

bench-fleet: ## The collector's figures with N simulated guests beside vmagent's, in one run
	@tests/parts/parts.sh fetch vmagent >/dev/null
	@$(CARGO) build -q --release -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-fleet --bin fleet-sim
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/release/virtfleet-collector target/tools/bench-fleet --guests $(N)

bench-hostile: ## What hostile guests of one tenant cost the others (ARGS='--minutes 5 --guests 1000 --hostile 100')
	@$(CARGO) build -q --release -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-hostile
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/release/virtfleet-collector target/tools/bench-hostile $(ARGS)

bench-labels: ## How fast labels follow placement, on real API servers (ARGS='--vmis 500 --large 0')
	@tests/parts/kubernetes.sh fetch >/dev/null || tests/parts/kube-apiserver.sh fetch >/dev/null
	@$(CARGO) build -q --release -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-labels
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/release/virtfleet-collector target/tools/bench-labels $(ARGS)

bench-disks: ## What secondary disks cost: from blank to mounted, and when nothing is to be done
	@$(CARGO) build -q $(TOOLS) --bin bench-disks --bin disk-stage
	@target/tools/bench-disks

bench-index: ## What an event costs while 500 user clusters share a namespace of 10,000 VMs
	@$(CARGO) build -q $(TOOLS) --bin bench-index
	@target/tools/bench-index

bench-proof: ## What share of a blank disk is read in its time, beside dd; and the window between the last check and the tool
	@$(CARGO) build -q $(TOOLS) --bin bench-proof
	@target/tools/bench-proof

bench-dns: static ## From boot to verified DNS, with the agent and without it, in a container (N=7 boots)
	@tests/parts/machine-root.sh trixie >/dev/null
	@$(CARGO) build -q $(TOOLS) --bin bench-dns
	@VIRTFLEET_BIN_VIRTFLEET_AGENT=target/$(TARGET)/release/virtfleet-agent target/tools/bench-dns $(if $(filter command line,$(origin N)),$(N))

bench-guest: static ## Boots, restores and the agent's cost in a real guest, with and without it in one run
	@$(CARGO) build -q --workspace --bins
	@target/debug/bench-guest $(ARGS)

guest-soak: static ## Cut the power of N first boots at seeded moments, and all other scenarios with guests: make guest-soak N=20
	@tests/soak.sh guests $(if $(filter command line,$(origin N)),$(N))

guest-disk-soak: static ## Disks in guests, all that takes minutes: N power cuts, LUKS and TPM, Debian 12, foreign and unreadable disks, races
	@tests/soak.sh guest-disks $(if $(filter command line,$(origin N)),$(N))

guest-dns-soak: static ## DNS in guests, with what takes minutes: N power cuts while it is changed, and Debian 12
	@tests/soak.sh guest-dns $(if $(filter command line,$(origin N)),$(N))

container-soak: ## DNS and deliveries in containers, killed at every point
	@tests/soak.sh containers

churn-soak: ## Kill the leading collector N times during churn, and restart API servers, on real ones: make churn-soak N=100
	@tests/parts/kubernetes.sh fetch >/dev/null || tests/parts/kube-apiserver.sh fetch >/dev/null
	@tests/soak.sh churn $(if $(filter command line,$(origin N)),$(N))

oldest-kubernetes: ## The collector on Kubernetes 1.20, the oldest release that is tested (its server is built once, in minutes)
	@tests/parts/kube-apiserver.sh fetch >/dev/null
	@tests/soak.sh oldest

disk-soak: ## Kill the engine of secondary disks at N random moments: make disk-soak N=500
	@tests/soak.sh disks $(if $(filter command line,$(origin N)),$(N))

disk-generate: ## Generate N disks and format none with foreign bytes unannounced: make disk-generate N=2000 SEED=1
	@VIRTFLEET_DISK_SEED=$(or $(SEED),1) tests/soak.sh generate $(if $(filter command line,$(origin N)),$(N))

fuzz: ## Any bytes for every parser, coverage-guided: make fuzz SECONDS=600 ARGS='netlink dbus' (default 60 a target; needs g++)
	@SECONDS_EACH=$(or $(SECONDS),60) tests/fuzz/run.sh $(ARGS)

fmt: ## Format the sources
	@$(CARGO) fmt --all
	@rustfmt --edition 2024 --config-path rustfmt.toml tests/fuzz/src/main.rs

# Built alone and for an explicit target, so that no other crate's features and no build script's flags get into it.
static:
	@RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --release -p virtfleet-agent --target $(TARGET)

deb: static ## The agent's Debian package, into out/ (OUT=FOLDER)
	@packaging/deb/build.sh $(OUT) target/$(TARGET)/release/virtfleet-agent

dist: static ## Static agent, its Debian package, collector, CLI, completions, man pages and checksums, into out/
	@tests/dist.sh $(OUT) target/$(TARGET)/release/virtfleet-agent

clean: ## Remove what was built
	@$(CARGO) clean
	@rm -rf $(OUT)
