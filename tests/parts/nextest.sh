#!/usr/bin/env bash
# The test runner cargo-nextest. The groups and time limits of .config/nextest.toml need it, so every
# machine gets the same one.
#
#   nextest.sh fetch   print the folder of the program; build the pinned version into the cache if
#                      there is none (a few minutes)
#   nextest.sh path    print the folder; fail if there is none
#
# cargo-program.sh lists the environment variables.
set -euo pipefail
. "$(dirname "$0")/cargo-program.sh"

# Without self-update: `pins` sets the version.
fetch() { cargo_program fetch cargo-nextest --no-default-features --features default-no-update; }
path() { cargo_program path cargo-nextest; }

. "$(dirname "$0")/verbs.sh"
