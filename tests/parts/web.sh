#!/usr/bin/env bash
# What drives the web page in tests: playwright-core and axe-core, as tests/web/package-lock.json pins
# them with their hashes. Debian's Chromium is the browser (tests/parts/setup.sh installs it).
#
#   web.sh fetch   print the folder of the modules; install them into the cache if they are missing
#   web.sh path    print the folder; fail if there is none; no network
#
#   VIRTFLEET_WEB_MODULES  the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet/web
set -euo pipefail
cd "$(dirname "$0")/../web"

cache="${VIRTFLEET_WEB_MODULES:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_WEB_MODULES, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/web}"
key=$(cat package.json package-lock.json | sha256sum | cut -c1-12)
folder="$cache/$key"

die() {
    printf 'web: %s\n' "$*" >&2
    exit 1
}

if [ -d "$folder" ]; then
    printf '%s\n' "$folder"
    exit 0
fi
[ "${1:-}" = fetch ] || die "the cache has no modules for this checkout; run tests/parts/web.sh fetch"
for program in node npm; do
    command -v "$program" >/dev/null || die "$program is not installed; as root: tests/parts/setup.sh"
done
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
if [ ! -d "$folder" ]; then
    work=$(mktemp -d "$cache/.new.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cp package.json package-lock.json .npmrc "$work"
    # `ci` refuses modules whose hashes differ. None of their scripts runs.
    (cd "$work" && npm ci --silent --ignore-scripts --no-audit --no-fund >npm.log 2>&1) ||
        die "npm ci failed: $(tail -n 3 "$work/npm.log" | tr '\n' ' ')"
    # A rename is atomic: a reader sees all modules or nothing.
    mv "$work" "$folder"
fi
printf '%s\n' "$folder"
