#!/usr/bin/env bash
# The unpacked root with every owner of /etc/resolv.conf, for containers that boot it:
#
#   owners-root.sh SUITE           print its folder; unpack it if missing, make it if it is not in the
#                                  cache (as root; network)
#   owners-root.sh --cached SUITE  the same without network, for tests
#
# SUITE is bookworm or trixie.
set -euo pipefail
cd "$(dirname "$0")"
. ./unpacked-root.sh

unpacked_root owners- "every owner of resolv.conf" owners-root.sh owners-rootfs.sh owners-rest.sh -- "$@"
