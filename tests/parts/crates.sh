#!/usr/bin/env bash
# Compiled dependencies, shared by clones of this project on one machine. A fresh clone would
# otherwise compile the same crates of the registry again, for more than ten minutes on two cores.
#
#   crates.sh restore  copy them into target/, if nothing was built there yet
#   crates.sh save     copy them out of target/ into the cache, if it does not have them
#   crates.sh path     print their folder in the cache, whether it exists or not
#
# The cache has one folder for each state of Cargo.lock, the profiles in Cargo.toml, the compiler and
# its flags; the two newest are kept. The project's own crates are never copied. Cargo checks each
# copied crate as if it had been built in this clone.
#
#   VIRTFLEET_CRATES  the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet/crates
set -euo pipefail
cd "$(dirname "$0")/../.."

cache="${VIRTFLEET_CRATES:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_CRATES, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/crates}"
target=${CARGO_TARGET_DIR:-target}
# Folders of a target folder in which cargo builds: the machine's own, and the release of the agent.
builds="debug release $(uname -m)-unknown-linux-gnu/release"
key=$({
    cat Cargo.lock Cargo.toml
    rustc -vV
    env | grep -E '^(RUSTFLAGS|CARGO_(BUILD|PROFILE|TARGET|ENCODED)_)' | grep -v '^CARGO_TARGET_DIR=' | sort || true
} | sha256sum | cut -c 1-16)
entry="$cache/$key"

# Copies the crates of the registry from one target folder to another: cargo ends the name of each of
# their files with the same 16 digits as their folder in .fingerprint.
copy() { # FROM TO
    local from=$1 to=$2 build folder digits
    digits=$(mktemp)
    for build in $builds; do
        [ -d "$from/$build/.fingerprint" ] || continue
        mkdir -p "$to/$build/.fingerprint" "$to/$build/build" "$to/$build/deps"
        (cd "$from/$build/.fingerprint" && ls) | grep -v '^virtfleet-' | grep -oE '[0-9a-f]{16}$' | sort -u >"$digits" || continue
        for folder in .fingerprint build deps; do
            [ -d "$from/$build/$folder" ] || continue
            (cd "$from/$build/$folder" && ls) | grep -v '^virtfleet' | grep -Ff "$digits" |
                sed "s|^|$from/$build/$folder/|" | xargs -r cp -a --reflink=auto -t "$to/$build/$folder" || {
                rm -f "$digits"
                return 1
            }
        done
    done
    rm -f "$digits"
}

restore() {
    local build
    [ -d "$entry" ] || return 0
    for build in $builds; do
        [ ! -e "$target/$build/.fingerprint" ] || return 0
    done
    mkdir -p "$target"
    if ! copy "$entry" "$target"; then
        # Without the copies, cargo builds everything.
        for build in $builds; do rm -rf "${target:?}/$build"; done
        echo "crates: $entry could not be copied to $target; cargo compiles all dependencies" >&2
        return 0
    fi
    # The newest are kept.
    touch "$entry"
    echo "crates: compiled dependencies copied from $entry"
}

save() {
    local partial old
    [ ! -d "$entry" ] || return 0
    mkdir -p "$cache"
    rm -rf "$cache"/partial.*
    partial=$(mktemp -d "$cache/partial.XXXXXX")
    if ! copy "$target" "$partial" || ! mv -T "$partial" "$entry"; then
        rm -rf "$partial"
        echo "crates: the compiled dependencies could not be copied to $entry; the next clone compiles them again" >&2
        return 0
    fi
    (cd "$cache" && ls -t) | tail -n +3 | while read -r old; do rm -rf "${cache:?}/$old"; done
    echo "crates: compiled dependencies copied to $entry ($(du -sh "$entry" | cut -f 1))"
}

case "${1:-}" in
restore | save) "$1" ;;
path) printf '%s\n' "$entry" ;;
*)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
