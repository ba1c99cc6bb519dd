#!/usr/bin/env bash
# Cortex for the tests: the store of KKP's metrics. Prints its folder on standard output.
#
#   cortex.sh fetch   build it unless it is in the cache
#   cortex.sh path    print where it is, and fail if it is not there; no network
#
# It is built from the Go module github.com/cortexproject/cortex, whose version and hash are in
# `pins`. That module replaces modules that it requires, which counts only where it is the main
# module: a copy of its files is built, with its own go.mod and go.sum. This takes about three minutes
# on two cores. Only the program is kept (100 MB). For Go and the variables see helm.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
. "$here/own-apt.sh"
. "$here/own-go.sh"

cache="${VIRTFLEET_PARTS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_PARTS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/parts}"
folder="$cache/cortex"
# Not local to a function: the trap that removes it runs outside of functions.
work="$cache/.new/cortex.$$"

say() { printf 'cortex: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# Prints the row of the module: module, version, sum.
pinned() { awk '$1 == "cortex" { print $3, $4, $6 }' "$here/pins"; }

# The name of the folder that the recipe in this checkout makes: version and hash.
key() {
    local version
    version=$(pinned | awk '{ print $2 }')
    [ -n "$version" ] || die "$here/pins has no cortex"
    printf '%s-%s\n' "$version" "$({ cat "$0" && pinned; } | sha256sum | cut -c1-12)"
}

current() { # prints the folder in the cache if it is complete
    [ -x "$folder/current/cortex" ] || return 1
    readlink -f "$folder/current"
}

build() {
    local name version files new="$work/new" started=$SECONDS
    name=$(key) || return 1
    version=${name%-*}
    if [ ! -d "$folder/$name" ]; then
        mkdir -p "$new" "$folder"
        trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
        provide_go || return 1
        export GOPATH="$work/gopath" GOMODCACHE="${GOMODCACHE:-$work/gopath/pkg/mod}" GOCACHE="${GOCACHE:-$work/gocache}"
        export GOFLAGS=-modcacherw GOTOOLCHAIN=auto GOWORK=off CGO_ENABLED=0
        say "1 of 2: fetching Cortex $version"
        files=$(module "github.com/cortexproject/cortex@$version") || return 1
        cp -r "$files" "$work/files" || return 1
        chmod -R u+w "$work/files" || return 1
        # A module has no vendored packages, but it may have their list, which Go would follow.
        rm -rf "$work/files/vendor"
        say "2 of 2: fetching the modules of Cortex and building it: about three minutes on two cores"
        # Without slicelabels, this release panics when it receives samples.
        (cd "$work/files" && go build -trimpath -buildvcs=false -tags netgo,slicelabels -ldflags '-s -w' -o "$new/" ./cmd/cortex) >"$work/log" 2>&1 || {
            say "cannot build it: $(tail -n1 "$work/log")"
            return 1
        }
        # A rename is atomic: a reader sees all of it or nothing.
        mv "$new" "$folder/$name" || return 1
        say "built in $(((SECONDS - started) / 60)) minutes and $(((SECONDS - started) % 60)) seconds"
    fi
    ln -sfn "$name" "$folder/.current.$$"
    mv -T "$folder/.current.$$" "$folder/current"
}

fetch() {
    [ $# = 0 ] || die "fetch takes no argument"
    mkdir -p "$cache"
    # One build at a time, also between checkouts: the second one finds the result of the first.
    exec 8>"$cache/.cortex.lock"
    flock -w 1800 8 || die "another build has held $cache/.cortex.lock for half an hour"
    build || { current >/dev/null && say "that failed; the previous one stays in use"; } || die "that failed, and the cache has no earlier one"
    current
}

path() {
    [ $# = 0 ] || die "path takes no argument"
    current || die "it is not in $folder; run tests/parts/cortex.sh fetch"
}

. "$here/verbs.sh" "$@"
