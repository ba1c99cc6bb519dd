#!/usr/bin/env bash
# The unpacked root of a guest's Debian, for containers that boot it:
#
#   machine-root.sh SUITE           unpack it when it is not there, make it when it is in no cache (as root; network), and print its folder
#   machine-root.sh --cached SUITE  the same without network: what tests call
#
# SUITE is bookworm or trixie. What is unpacked is what ../guests/rootfs.sh makes, as it is; nobody writes to it.
set -euo pipefail
. "$(dirname "$0")/unpacked-root.sh"
cd "$(dirname "$0")/../guests"

unpacked_root "" "the guests' packages" machine-root.sh rootfs.sh -- "$@"
