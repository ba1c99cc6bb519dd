#!/usr/bin/env bash
# The release of the agent, shared by clones of this project on one machine. A fresh clone would
# otherwise build the same program again, for minutes on one core.
#
#   agent.sh restore  copy it into target/, if the cache has one that was built from these sources;
#                     exits with 1 if it has none
#   agent.sh save     copy it out of target/ into the cache
#
# A saved agent comes with the SHA-256 of each file of the project from which cargo built it, and is
# copied only where all of them are the same. It belongs to the compiled dependencies with which it
# was built (crates.sh), and so to one compiler and one Cargo.lock.
set -euo pipefail
cd "$(dirname "$0")/../.."

entry=$(tests/parts/crates.sh path)/agents
built="${CARGO_TARGET_DIR:-target}/$(uname -m)-unknown-linux-gnu/release/virtfleet-agent"

restore() {
    local saved file
    [ ! -e "$built" ] || return 1 # cargo knows whether it is up to date
    for saved in "$entry"/*/; do
        [ -f "$saved/sources" ] || continue
        sha256sum --check --status "$saved/sources" 2>/dev/null || continue
        mkdir -p "${built%/*}"
        cp "$saved/virtfleet-agent" "$built.new" || return 1
        # As cargo writes it. Tests refuse a program that is older than one of these files.
        {
            printf '%s:' "$built"
            sed -E "s|^[0-9a-f]{64}  (.*)| $PWD/\1|; /(Cargo.toml|Makefile)\$/d" "$saved/sources" | tr -d '\n'
            echo
        } >"$built.d"
        mv "$built.new" "$built"
        touch "$saved"
        echo "agent: copied from the cache; it was built from the same sources"
        return 0
    done
    return 1
}

save() {
    local partial name newer old
    [ -f "$built" ] && [ -d "${entry%/*}" ] || return 0
    mkdir -p "$entry"
    rm -rf "$entry"/partial.*
    partial=$(mktemp -d "$entry/partial.XXXXXX")
    # The sources, from cargo's own list, and what decides how they are built.
    {
        sed 's/^[^:]*://' "$built.d" | tr ' ' '\n' | sed '/^$/d' | xargs -r realpath --relative-to=.
        find . -name Cargo.toml -not -path './target/*' | sed 's|^\./||'
        echo Makefile
    } | LC_ALL=C sort -u | xargs -d '\n' sha256sum >"$partial/sources"
    # A file that was edited during the build is not the one that cargo has read.
    newer=$(cut -c 67- "$partial/sources" | while read -r file; do [ ! "$file" -nt "$built" ] || echo "$file"; done)
    name=$(sha256sum "$partial/sources" | cut -c 1-16)
    if [ -n "$newer" ] || [ -d "$entry/$name" ]; then
        rm -rf "$partial"
        return 0
    fi
    cp "$built" "$partial/"
    mv -T "$partial" "$entry/$name"
    # The newest are kept.
    (cd "$entry" && ls -t) | tail -n +5 | while read -r old; do rm -rf "${entry:?}/$old"; done
}

case "${1:-}" in
restore | save) "$1" ;;
*)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
