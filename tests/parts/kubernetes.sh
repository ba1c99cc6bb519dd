#!/usr/bin/env bash
# A supported release of Kubernetes for the tests. Prints a folder with kube-apiserver,
# kube-controller-manager, kube-scheduler and etcd on standard output.
#
#   kubernetes.sh fetch   build it unless it is in the cache
#   kubernetes.sh path    print where it is, and fail if it is not there; no network
#
# The programs are built from the Go module k8s.io/kubernetes, at the version in kubernetes/go.mod,
# with the hashes in kubernetes/go.sum. Go 1.21 or newer from PATH is used; otherwise Debian's Go is
# unpacked, not installed. The build takes 10 to 20 minutes on two cores and 4 GB. Only the programs
# are kept (200 MB). etcd is a part (parts.sh).
#
#   VIRTFLEET_PARTS          the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet/parts
#   VIRTFLEET_DEBIAN_MIRROR  Debian's archive; default: the one of this machine's apt
#   GOPROXY                  the module proxy, as for every use of Go
#   GOCACHE, GOMODCACHE      Go's caches to use and keep; default: folders that are removed after
#                            the build
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
. "$here/own-apt.sh"
. "$here/own-go.sh"

cache="${VIRTFLEET_PARTS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_PARTS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/parts}"
folder="$cache/kubernetes"
# Not local to a function: the trap that removes it runs outside of functions.
work="$cache/.new/kubernetes.$$"
programs='kube-apiserver kube-controller-manager kube-scheduler'

say() { printf 'kubernetes: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

complete() { # FOLDER
    local program
    for program in $programs etcd; do
        [ -x "$1/$program" ] || return 1
    done
}

# The name of the folder that the recipe in this checkout makes: version and hash.
key() {
    local version
    version=$(awk '$1 == "require" && $2 == "k8s.io/kubernetes" { print $3 }' "$here/kubernetes/go.mod")
    [ -n "$version" ] || die "$here/kubernetes/go.mod requires no k8s.io/kubernetes"
    printf '%s-%s\n' "$version" "$(cd "$here/kubernetes" && cat build.sh go.mod go.sum programs.go | sha256sum | cut -c1-12)"
}

current() { # prints the folder in the cache if it is complete
    complete "$folder/current" || return 1
    readlink -f "$folder/current"
}

build() {
    local name new started=$SECONDS
    name=$(key)
    if ! complete "$folder/$name"; then
        rm -rf "$folder/$name"
        mkdir -p "$work" "$folder"
        # Some toolchains leave read-only files.
        trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
        provide_go || return 1
        new="$work/new"
        say "building ${name%-*}: 10 to 20 minutes on two cores"
        "$here/kubernetes/build.sh" "$work" "$new" || return 1
        # A link, because the etcd in the cache may be updated.
        ln -s ../../etcd/current/usr/bin/etcd "$new/etcd"
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
    "$here/parts.sh" fetch etcd >/dev/null
    # One build at a time, also between checkouts: the second one finds the result of the first.
    exec 8>"$cache/.kubernetes.lock"
    flock -n 8 || {
        say "waiting for another build into $cache"
        flock -w 7200 8 || die "another build has held $cache/.kubernetes.lock for two hours"
    }
    build || { current >/dev/null && say "the build failed; the previous one stays in use"; } || die "there is none"
    current
}

path() {
    [ $# = 0 ] || die "path takes no argument"
    current || die "it is not in $folder; run tests/parts/kubernetes.sh fetch"
}

. "$here/verbs.sh" "$@"
