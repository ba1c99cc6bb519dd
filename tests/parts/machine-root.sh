#!/usr/bin/env bash
# The unpacked root of a guest's Debian, for containers that boot it:
#
#   machine-root.sh SUITE           print its folder; unpack it if missing, make it if it is not in the
#                                   cache (as root; network)
#   machine-root.sh --cached SUITE  the same without network, for tests
#
# SUITE is bookworm or trixie. The root is the unchanged result of ../guests/rootfs.sh. Nothing may
# write to it.
set -euo pipefail
. "$(dirname "$0")/unpacked-root.sh"
cd "$(dirname "$0")/../guests"

unpacked_root "" "the guests' packages" machine-root.sh rootfs.sh -- "$@"
