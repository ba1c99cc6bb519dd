#!/usr/bin/env bash
# Helm and kustomize for the tests. Prints a folder with both on standard output.
#
#   helm.sh fetch   build them unless they are in the cache
#   helm.sh path    print where they are, and fail if they are not there; no network
#
# They are built from the Go modules helm.sh/helm/v4 and sigs.k8s.io/kustomize/kustomize/v5, at the
# versions in helm/go.mod, with the hashes in helm/go.sum. This takes about four minutes on two cores.
# Go 1.21 or newer from PATH is used; otherwise Debian's Go is unpacked, not installed. For the
# variables VIRTFLEET_PARTS, VIRTFLEET_DEBIAN_MIRROR, GOPROXY, GOCACHE and GOMODCACHE see kubernetes.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
. "$here/own-apt.sh"
. "$here/own-go.sh"

cache="${VIRTFLEET_PARTS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_PARTS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/parts}"
folder="$cache/helm"
# Not local to a function: the trap that removes it runs outside of functions.
work="$cache/.new/helm.$$"
packages='helm.sh/helm/v4/cmd/helm sigs.k8s.io/kustomize/kustomize/v5'

say() { printf 'helm: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

key() { cat "$0" "$here"/helm/go.* | sha256sum | cut -c1-12; }

current() { # prints the folder in the cache if it is complete
    [ -x "$folder/current/helm" ] && [ -x "$folder/current/kustomize" ] || return 1
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
        say "building Helm and kustomize: about four minutes on two cores"
        # shellcheck disable=SC2086
        (cd "$here/helm" && go build -trimpath -ldflags '-s -w' -o "$new/" $packages) >"$work/log" 2>&1 || {
            say "cannot build them: $(tail -n1 "$work/log")"
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
    exec 8>"$cache/.helm.lock"
    flock -w 1800 8 || die "another build has held $cache/.helm.lock for half an hour"
    build || { current >/dev/null && say "that failed; the previous ones stay in use"; } || die "that failed, and the cache has no earlier ones"
    current
}

path() {
    [ $# = 0 ] || die "path takes no argument"
    current || die "they are not in $folder; run tests/parts/helm.sh fetch"
}

. "$here/verbs.sh" "$@"
