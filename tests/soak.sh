#!/usr/bin/env bash
# Runs scenarios that take minutes to hours, one at a time, and prints their output:  soak.sh NAME [N]
#
#   guests       first boots: the deliveries that `make test` leaves out, and N power cuts (20)
#   guest-life   each platform of the delivery, from the first boot to the removal of the agent; power
#                cuts
#   guest-disks  disks in guests: N power cuts (20), LUKS and TPM, Debian 12, foreign and
#                unreadable disks, races
#   guest-dns    DNS in guests: N power cuts (6) while it is changed, and Debian 12
#   containers   DNS with each owner of resolv.conf, killed at every point; deliveries killed at
#                12 moments
#   churn        the leading collector is killed N times (100) while VMs move; API servers restart
#   oldest       the collector on Kubernetes 1.20
#   disks        the engine of secondary disks is killed at N random moments (500)
#   compliance   Prometheus' compliance tests for senders of remote write, from a copy of
#                github.com/prometheus/compliance that VIRTFLEET_COMPLIANCE names
#   generate     N generated disks (2000); fails if a disk with foreign bytes is formatted and
#                the plan had not announced it; N volumes that come and go; fails if one is written
#
# The profile `soak` in .config/nextest.toml sets groups and time limits. The first lines of a
# scenario name further environment variables that it reads, such as the first seed.
set -euo pipefail
cd "$(dirname "$0")/.."

soak=${1:?name a soak; the first lines of this script list them} count=${2:-}
case $soak in
guests)
    filter='test(/^(demo::|guest_(adversity|delivery|ends|enrolment|faults|health|lifecycle|mla|nic|stage)::)/)'
    ;;
guest-life)
    filter='test(/^guest_lifecycle::table::/)'
    ;;
guest-disks)
    export VIRTFLEET_DISK_CUTS=${count:-20}
    filter='test(/^guest_disks::/)'
    ;;
guest-dns)
    export VIRTFLEET_DNS_CUTS=${count:-6}
    filter='test(/^guest_dns::/)'
    ;;
containers)
    filter='test(/^(dns_machine_crash|dns_owners|delivery)::/)'
    ;;
churn)
    export VIRTFLEET_CHURN_KILLS=${count:-100}
    filter='test(/^cluster_churn::/) | test(/^cluster_faults::.*forget/)'
    ;;
oldest)
    filter='test(/^cluster_oldest::/)'
    ;;
disks)
    export VIRTFLEET_DISK_KILLS=${count:-500}
    filter='test(/^disks_(crash|clones)::/)'
    ;;
compliance)
    filter='test(/^remote_write::compliance::/)'
    ;;
generate)
    export VIRTFLEET_DISK_GENERATED=${count:-2000}
    filter='test(/^disks_(generated::|csi::.*generated)/)'
    ;;
*)
    echo "soak.sh: unknown soak '$soak'; use guests, guest-life, guest-disks, guest-dns, containers, churn, oldest, disks, compliance or generate" >&2
    exit 2
    ;;
esac

# Property tests try other values in each soak.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-$(date +%s)}
echo "soak: PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED"

runner=$(tests/parts/nextest.sh fetch)
export PATH="$runner:$PATH"
# Run the tests that `make test` defers.
export VIRTFLEET_SOAK=1
cargo build --quiet --workspace --bins --test scenarios
[ "$soak" != guests ] || "${CARGO_TARGET_DIR:-target}/debug/guest-soak" --cuts "${count:-20}"
exec cargo nextest run --workspace --test scenarios --profile soak --no-capture -E "$filter"
