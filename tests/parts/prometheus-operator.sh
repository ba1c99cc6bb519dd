#!/usr/bin/env bash
# CustomResourceDefinitions of prometheus-operator for the tests, generated from its own Go types
# (module github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring) by the generator that
# it uses itself (sigs.k8s.io/controller-tools). Prints a folder on standard output, with
#   podmonitors.yaml  prometheusrules.yaml  scrapeconfigs.yaml
#
#   prometheus-operator.sh fetch   generate them unless they are in the cache (two minutes)
#   prometheus-operator.sh path    print where they are, and fail if they are not there; no network
#
# Go's checksum database and go.sum verify the modules. For VIRTFLEET_PARTS, VIRTFLEET_DEBIAN_MIRROR and
# GOPROXY see kubernetes.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
. "$here/own-apt.sh"
. "$here/own-go.sh"

cache="${VIRTFLEET_PARTS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_PARTS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/parts}"
folder="$cache/prometheus-operator"
# Not local to a function: the trap that removes it runs outside of functions.
work="$cache/.new/prometheus-operator.$$"

types=github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring
kinds='podmonitors prometheusrules scrapeconfigs'

say() { printf 'prometheus-operator: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

key() { cat "$0" "$here"/prometheus-operator/go.* | sha256sum | cut -c1-12; }

current() { # prints the folder in the cache if it is there
    [ -f "$folder/current/scrapeconfigs.yaml" ] || return 1
    readlink -f "$folder/current"
}

build() {
    local name kind new="$work/new"
    name=$(key)
    if [ ! -d "$folder/$name" ]; then
        mkdir -p "$new" "$work/crds" "$folder"
        trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
        provide_go || return 1
        export GOPATH="$work/gopath" GOMODCACHE="$work/gopath/pkg/mod" GOCACHE="$work/gocache" GOFLAGS=-modcacherw GOWORK=off
        say "generating the CustomResourceDefinitions"
        (cd "$here/prometheus-operator" &&
            go run sigs.k8s.io/controller-tools/cmd/controller-gen crd:crdVersions=v1,maxDescLen=0 \
                "paths=$types/v1" "paths=$types/v1alpha1" "output:crd:dir=$work/crds") >"$work/log" 2>&1 || {
            say "cannot generate them: $(tail -n1 "$work/log")"
            return 1
        }
        for kind in $kinds; do
            mv "$work/crds/monitoring.coreos.com_$kind.yaml" "$new/$kind.yaml" || return 1
        done
        # A rename is atomic: a reader sees all of it or nothing.
        mv "$new" "$folder/$name" || return 1
    fi
    ln -sfn "$name" "$folder/.current.$$"
    mv -T "$folder/.current.$$" "$folder/current"
}

fetch() {
    [ $# = 0 ] || die "fetch takes no argument"
    mkdir -p "$cache"
    exec 8>"$cache/.prometheus-operator.lock"
    flock -w 600 8 || die "another fetch has held $cache/.prometheus-operator.lock for ten minutes"
    build || { current >/dev/null && say "that failed; the previous ones stay in use"; } || die "that failed, and the cache has no earlier ones"
    current
}

path() {
    [ $# = 0 ] || die "path takes no argument"
    current || die "they are not in $folder; run tests/parts/prometheus-operator.sh fetch"
}

. "$here/verbs.sh" "$@"
