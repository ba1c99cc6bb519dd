# `make help` describes every target. Recipes are short; longer ones are scripts in tests/.

CARGO ?= cargo
OUT   ?= out
N     ?= 1000
GUEST ?=
TARGET := $(shell uname -m)-unknown-linux-gnu
# Registry and tag of `make publish`, also in the example of `make agent-disk`.
REGISTRY ?= registry.example.org
TAG ?= $(VERSION)
VERSION = $(shell sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# Profile of the benchmark programs: fast enough not to disturb the measurement, quick to build.
TOOLS := --profile tools -p virtfleet-tests

.DEFAULT_GOAL := help
.PHONY: help demo guest setup check test e2e repeat bench bench-agent bench-fleet bench-enrol bench-hostile bench-guest bench-labels bench-clusters bench-index bench-mla bench-mla-core bench-health bench-page bench-disks bench-proof bench-parsers bench-dns parity guest-soak guest-life-soak guest-disk-soak guest-dns-soak container-soak churn-soak oldest-kubernetes disk-soak disk-generate fuzz fmt static deb rpm dist clean compliance bench-queue mla-soak image bake container-disk bench-install bench-smoke label-soak agent-image agent-tar agent-sysext agent-disk publish need-registry site virtfleetctl

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make demo ONCE=1        print the fleet once; exit code 0 only if all agents enrolled"
	@echo "  make demo VMS=2         with real VMs under QEMU, one of which is migrated (make setup installs QEMU)"
	@echo "  make guest CMD='lsblk' GUEST='--suite bookworm --disk 1G'   options: target/debug/virtfleet-guest run --help"
	@echo "  make bench-fleet N=1000 how many simulated guests"

demo: $(if $(VMS),static) ## Run a collector, an agent on this machine and simulated guests until Ctrl-C
	@$(CARGO) build -q -p virtfleet-agent -p virtfleet-collector -p virtfleet-tests --bins
	@target/debug/virtfleet-demo $(if $(ONCE),--once) $(if $(VMS),--vms $(VMS))

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

bench: bench-agent bench-fleet bench-enrol bench-hostile bench-labels bench-clusters bench-index bench-mla bench-mla-core bench-health bench-page bench-disks bench-proof bench-parsers bench-dns bench-guest bench-queue ## Run all benchmarks

bench-smoke: ## Try each benchmark in its smallest form, with the debug programs, in 3 minutes
	@$(CARGO) build -q --workspace --bins
	@tests/bench-smoke.sh

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
	@$(CARGO) build -q --profile collector -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-fleet --bin fleet-sim
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/collector/virtfleet-collector target/tools/bench-fleet --guests $(N)

bench-enrol: static ## Measure the enrolment of N simulated agents (N=10000), and the memory of the real one
	@$(CARGO) build -q --profile collector -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-enrol
	@VIRTFLEET_BIN_VIRTFLEET_AGENT=target/$(TARGET)/release/virtfleet-agent VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/collector/virtfleet-collector \
		target/tools/bench-enrol $(if $(filter command line,$(origin N)),--guests $(N))

bench-hostile: ## Measure what hostile guests of one tenant cost the others (ARGS='--minutes 5 --hostile 100')
	@$(CARGO) build -q --profile collector -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-hostile
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/collector/virtfleet-collector target/tools/bench-hostile $(ARGS)

bench-labels: ## Measure how fast labels follow placement, on real API servers (ARGS='--vmis 500 --large 0')
	@tests/parts/kubernetes.sh fetch >/dev/null || tests/parts/kube-apiserver.sh fetch >/dev/null
	@$(CARGO) build -q --profile collector -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-labels
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/collector/virtfleet-collector target/tools/bench-labels $(ARGS)

bench-clusters: ## Measure how fast the user clusters of a ClusterSource are watched, and the memory of each (ARGS='--clusters 500 --nodes 5')
	@tests/parts/kubernetes.sh fetch >/dev/null || tests/parts/kube-apiserver.sh fetch >/dev/null
	@$(CARGO) build -q --profile collector -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-clusters
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/collector/virtfleet-collector target/tools/bench-clusters $(ARGS)

bench-disks: ## Measure secondary disks: from blank to mounted, and a run without changes
	@$(CARGO) build -q $(TOOLS) --bin bench-disks --bin disk-stage
	@target/tools/bench-disks

bench-index: ## Measure an event while 500 user clusters share a namespace of 10,000 VMs
	@$(CARGO) build -q $(TOOLS) --bin bench-index
	@target/tools/bench-index

bench-mla: ## Measure remote write of N simulated guests beside vmagent, in one run (N=2000, ARGS='--outage 1')
	@tests/parts/parts.sh fetch vmagent >/dev/null
	@$(CARGO) build -q --profile collector -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-mla --bin fleet-sim
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/collector/virtfleet-collector target/tools/bench-mla $(if $(filter command line,$(origin N)),--guests $(N)) $(ARGS)

bench-install: ## Measure commands and time from the chart to the first VM, on a real API server with a simulated guest, as root
	@tests/parts/helm.sh fetch >/dev/null
	@tests/parts/kubernetes.sh fetch >/dev/null || tests/parts/kube-apiserver.sh fetch >/dev/null
	@$(CARGO) build -q -p virtfleet-collector -p virtfleet-tests --bins --test scenarios
	@$(CARGO) test -q -p virtfleet-tests --test scenarios tier3_install_walk -- --nocapture

bench-queue: ## Measure the queue on disk beside a plain file with the same bytes and syncs
	@$(CARGO) build -q $(TOOLS) --bin bench-queue
	@target/tools/bench-queue $(ARGS)

bench-mla-core: ## Measure the time per sample from a page to a write request
	@$(CARGO) build -q $(TOOLS) --bin bench-mla-core
	@target/tools/bench-mla-core

bench-health: ## Measure the verdict of 10,000 VMs
	@$(CARGO) build -q $(TOOLS) --bin bench-health
	@target/tools/bench-health

bench-page: ## Measure the web page in Chromium, and the API, with 10,000 VMs (N=10000)
	@tests/parts/web.sh fetch >/dev/null
	@$(CARGO) build -q --profile collector -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin bench-page
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/collector/virtfleet-collector target/tools/bench-page $(if $(filter command line,$(origin N)),--vms $(N))

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

guest-life-soak: static ## Test each platform of the delivery in guests: first and second boot, power cut, upgrade, removal
	@packaging/deb/build.sh target/deb target/$(TARGET)/release/virtfleet-agent
	@tests/soak.sh guest-life

guest-disk-soak: static ## Test disks in guests: N power cuts, LUKS and TPM, Debian 12, foreign and unreadable disks, races
	@tests/soak.sh guest-disks $(if $(filter command line,$(origin N)),$(N))

guest-dns-soak: static ## Test DNS in guests: N power cuts while it is changed, and Debian 12
	@tests/soak.sh guest-dns $(if $(filter command line,$(origin N)),$(N))

container-soak: ## Test DNS and deliveries in containers, killed at every point
	@tests/soak.sh containers

churn-soak: ## Kill the leading collector N times during churn, and restart API servers: N=100
	@tests/parts/kubernetes.sh fetch >/dev/null || tests/parts/kube-apiserver.sh fetch >/dev/null
	@tests/soak.sh churn $(if $(filter command line,$(origin N)),$(N))

label-soak: ## Simulate the label writer with faults, one seed after the other: SEEDS=10000 FROM=1000
	@from=$(or $(FROM),1000); VIRTFLEET_LABEL_SEEDS=$$from..$$((from + $(or $(SEEDS),10000))) \
		$(CARGO) test -q --workspace --lib labels::tests::simulation::seeds -- --nocapture

mla-soak: ## Test remote write while receivers, networks, disk and collector fail, as root: TENANTS=100 VMS=20 MINUTES=10 KILLS=20 SEED=1
	@for part in prometheus vmagent; do tests/parts/parts.sh fetch $$part >/dev/null || exit 1; done
	@$(CARGO) build -q --profile collector -p virtfleet-collector --bin virtfleet-collector
	@$(CARGO) build -q $(TOOLS) --bin mla-soak
	@VIRTFLEET_BIN_VIRTFLEET_COLLECTOR=target/collector/virtfleet-collector target/tools/mla-soak --tenants $(or $(TENANTS),100) --vms $(or $(VMS),20) \
		--minutes $(or $(MINUTES),10) --kills $(or $(KILLS),20) --seed $(or $(SEED),1) $(ARGS)

compliance: ## Run Prometheus' compliance tests for senders (VIRTFLEET_COMPLIANCE=copy of prometheus/compliance; needs go)
	@tests/soak.sh compliance

oldest-kubernetes: ## Test the collector on Kubernetes 1.20, the oldest tested release (built once, in minutes)
	@tests/parts/kube-apiserver.sh fetch >/dev/null
	@tests/soak.sh oldest

disk-soak: ## Kill the engine of secondary disks at N random moments: N=500
	@tests/soak.sh disks $(if $(filter command line,$(origin N)),$(N))

disk-generate: ## Generate N disks, and N volumes that come and go; none may be formatted unannounced: N=2000 SEED=1
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

rpm: static ## Build the agent's RPM package into out/ (OUT=FOLDER)
	@packaging/rpm/build.sh $(OUT) target/$(TARGET)/release/virtfleet-agent

site: ## Write the documentation as a web site into out/site/ (OUT=FOLDER)
	@PATH="$$(tests/parts/mdbook.sh fetch):$$PATH" packaging/site/build.sh $(OUT)/site

image: ## Write the container image of collector and CLI into out/image/ as an OCI layout, with its files and its SBOM (OUT=FOLDER); needs no container engine
	@RUSTFLAGS="-C target-feature=+crt-static" $(CARGO) build --profile collector -p virtfleet-collector --bins --target $(TARGET)
	@$(CARGO) run --quiet -p virtfleet-tests --bin virtfleet-image -- collector --programs target/$(TARGET)/collector --out $(OUT)/image

bake: static ## Put the agent into a cloud image (asks sudo for root): IMAGE=debian-13.qcow2 OUT=baked.qcow2 SETTINGS=agent.yaml
	@$(if $(filter 0,$(shell id -u)),,sudo) packaging/guest-image/bake.sh '$(IMAGE)' target/$(TARGET)/release/virtfleet-agent '$(OUT)' $(SETTINGS)

container-disk: ## Write a KubeVirt containerDisk with a disk image, as an OCI layout; needs no container engine: IMAGE=baked.qcow2 OUT=FOLDER
	@$(CARGO) run --quiet -p virtfleet-tests --bin virtfleet-image -- container-disk '$(IMAGE)' --out '$(OUT)'

agent-image: static ## Write the container image of the agent into out/agent-image/, from which Gardener's node-agent extracts it (OUT=FOLDER)
	@$(CARGO) run --quiet -p virtfleet-tests --bin virtfleet-image -- agent --programs target/$(TARGET)/release --out $(OUT)/agent-image

agent-tar: static ## Build an archive of the agent's files, tar.zst, into out/ (OUT=FOLDER)
	@packaging/tar/build.sh $(OUT) target/$(TARGET)/release/virtfleet-agent

agent-sysext: static ## Build the agent's systemd-sysext image and its update channel into out/agent-sysext/ (OUT=FOLDER URL=where it is served)
	@packaging/sysext/build.sh '$(OUT)/agent-sysext' target/$(TARGET)/release/virtfleet-agent '$(subst ','\'',$(URL))'

agent-disk: static ## Write the agent as a disk of VMs (KubeVirt containerDisk) into out/agent-disk/, with an input of virtfleetctl render and a VM for it (OUT=FOLDER REGISTRY=NAME TAG=TAG)
	@packaging/image/agent-disk.sh '$(OUT)/agent-disk' target/$(TARGET)/release/virtfleet-agent '$(subst ','\'',$(REGISTRY))' '$(subst ','\'',$(TAG))'
	@$(CARGO) run --quiet -p virtfleet-tests --bin virtfleet-image -- container-disk '$(OUT)/agent-disk/agent.img' --out '$(OUT)/agent-disk/oci'

need-registry:
	$(if $(filter file,$(origin REGISTRY)),$(error name your registry: make publish REGISTRY=registry.example.org))
	@packaging/image/reference.sh '$(subst ','\'',$(REGISTRY))' '$(subst ','\'',$(TAG))'
	@command -v skopeo >/dev/null || { echo 'skopeo is missing; as root: apt-get install skopeo. Or run make image agent-disk, and copy both layouts with another tool' >&2; exit 1; }

publish: need-registry image agent-disk ## Build the image and the agent disk, and copy both into a registry with skopeo: REGISTRY=registry.example.org (TAG=0.1.0)
	@skopeo copy 'oci:$(OUT)/image/oci' 'docker://$(REGISTRY)/virtfleet-collector:$(TAG)'
	@skopeo copy 'oci:$(OUT)/agent-disk/oci' 'docker://$(REGISTRY)/virtfleet-agent-disk:$(TAG)'

virtfleetctl: ## Build virtfleetctl for machines of users into out/bin/ (OUT=FOLDER)
	@$(CARGO) build --profile collector -p virtfleet-collector --bin virtfleetctl
	@install -D -m 755 -t '$(OUT)/bin' target/collector/virtfleetctl

dist: static ## Build static agent, its packages, collector, CLI, completions, man pages and checksums into out/
	@tests/dist.sh $(OUT) target/$(TARGET)/release/virtfleet-agent

clean: ## Remove all build results
	@$(CARGO) clean
	@rm -rf $(OUT)
