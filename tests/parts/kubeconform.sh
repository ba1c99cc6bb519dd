#!/usr/bin/env bash
# kubeconform for the tests. Prints its folder on standard output.
#
#   kubeconform.sh fetch   build it unless it is in the cache
#   kubeconform.sh path    print where it is, and fail if it is not there; no network
#
# It is built from the Go module github.com/yannh/kubeconform, at the version in kubeconform/go.mod,
# with the hashes in kubeconform/go.sum. This takes about a minute on two cores. It needs no schemas
# from the network: the tests make them from the OpenAPI document of the real API server. For Go and the
# variables see helm.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
. "$here/own-apt.sh"
. "$here/own-go.sh"

cache="${VIRTFLEET_PARTS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_PARTS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/parts}"
folder="$cache/kubeconform"
# Not local to a function: the trap that removes it runs outside of functions.
work="$cache/.new/kubeconform.$$"

say() { printf 'kubeconform: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

key() { cat "$0" "$here"/kubeconform/go.* | sha256sum | cut -c1-12; }

current() { # prints the folder in the cache if it is complete
    [ -x "$folder/current/kubeconform" ] || return 1
    readlink -f "$folder/current"
}

build() {
    local name new="$work/new" started=$SECONDS
    name=$(key)
    if [ ! -d "$folder/$name" ]; then
        mkdir -p "$new" "$folder"
        trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
        provide_go || return 1
        export GOPATH="$work/gopath" GOMODCACHE="${GOMODCACHE:-$work/gopath/pkg/mod}" GOCACHE="${GOCACHE:-$work/gocache}"
        export GOFLAGS=-modcacherw GOTOOLCHAIN=auto GOWORK=off CGO_ENABLED=0
        say "building kubeconform: about a minute on two cores"
        (cd "$here/kubeconform" && go build -trimpath -ldflags '-s -w' -o "$new/" github.com/yannh/kubeconform/cmd/kubeconform) >"$work/log" 2>&1 || {
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
    exec 8>"$cache/.kubeconform.lock"
    flock -w 1800 8 || die "another build has held $cache/.kubeconform.lock for half an hour"
    build || { current >/dev/null && say "that failed; the previous one stays in use"; } || die "that failed, and the cache has no earlier one"
    current
}

path() {
    [ $# = 0 ] || die "path takes no argument"
    current || die "it is not in $folder; run tests/parts/kubeconform.sh fetch"
}

. "$here/verbs.sh" "$@"
