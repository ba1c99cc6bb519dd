#!/usr/bin/env bash
# The unpacked root with every owner of /etc/resolv.conf, for containers that boot it:
#
#   owners-root.sh SUITE           unpack it when it is not there, make it when it is in no cache (as root; network), and print its folder
#   owners-root.sh --cached SUITE  the same without network: what tests call
#
# SUITE is bookworm or trixie.
set -euo pipefail
cd "$(dirname "$0")"
. ./unpacked-root.sh

unpacked_root owners- "every owner of resolv.conf" owners-root.sh owners-rootfs.sh owners-rest.sh -- "$@"
