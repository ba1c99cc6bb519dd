#!/usr/bin/env bash
# mdBook, which makes a web site of the documentation.
#
#   mdbook.sh fetch   print the folder of the program; build the pinned version into the cache if
#                     there is none (a few minutes)
#   mdbook.sh path    print the folder; fail if there is none
#
# cargo-program.sh lists the environment variables.
set -euo pipefail
. "$(dirname "$0")/cargo-program.sh"

# Without the web server: a site is a folder of files.
fetch() { cargo_program fetch mdbook --no-default-features --features search; }
path() { cargo_program path mdbook; }

. "$(dirname "$0")/verbs.sh"
