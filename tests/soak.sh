#!/usr/bin/env bash
# Runs scenarios that take minutes to hours, one at a time, and prints their output:  soak.sh NAME [N]
#
#   guest-disks  disks in guests: N power cuts (20), LUKS and TPM, Debian 12, foreign and unreadable disks, races
#   guest-dns    DNS in guests: N power cuts (6) while it is changed, and Debian 12
#   churn        the leading collector is killed N times (100) while VMs move, on real API servers
#   disks        the engine of secondary disks is killed at N random moments (500)
#   generate     N generated disks (2000); none with foreign bytes is formatted unannounced
#
# Groups and time limits are those of the profile `soak` in .config/nextest.toml. A scenario's first lines name the further
# environment variables that it reads, such as the first seed.
set -euo pipefail
cd "$(dirname "$0")/.."

soak=${1:?which soak? the first lines of this script list them} count=${2:-}
case $soak in
guest-disks)
    export VIRTFLEET_DISK_CUTS=${count:-20}
    filter='test(/^guest_disks::/) & (
        test(/power_is_cut|around_a_mkfs|luks|debian_12|anything_on_them|cannot_be_read/)
        | test(/passes_at_once|goes_during_a_pass|swap_is_used|shared_disk/))'
    ;;
guest-dns)
    export VIRTFLEET_DNS_CUTS=${count:-6}
    filter='test(/^guest_dns::/)'
    ;;
churn)
    export VIRTFLEET_CHURN_KILLS=${count:-100}
    filter='test(/^cluster_churn::/)'
    ;;
disks)
    export VIRTFLEET_DISK_KILLS=${count:-500}
    filter='test(/^disks_(crash|clones)::/)'
    ;;
generate)
    export VIRTFLEET_DISK_GENERATED=${count:-2000}
    filter='test(/^disks_generated::/)'
    ;;
*)
    echo "soak.sh: no soak is named '$soak'; there are guest-disks, guest-dns, churn, disks and generate" >&2
    exit 2
    ;;
esac

runner=$(tests/parts/nextest.sh fetch)
export PATH="$runner:$PATH"
cargo build --quiet --workspace --bins --test scenarios
exec cargo nextest run --workspace --test scenarios --profile soak --no-capture -E "$filter"
