#!/usr/bin/env bash
# The recipe of kubernetes.sh: this file, go.mod and go.sum have a hash that is part of the cache's key.
#
#   build.sh WORK OUT   builds the three programs into OUT; WORK is for Go's caches. `go` of any release since 1.21 is in PATH.
set -euo pipefail
work=$1 out=$2
cd "$(dirname "$0")"

say() { printf 'kubernetes: %s\n' "$*" >&2; }

# Caches that the caller has set are used and kept; those in WORK go with it.
export GOPATH="$work/gopath" GOMODCACHE="${GOMODCACHE:-$work/gopath/pkg/mod}" GOCACHE="${GOCACHE:-$work/gocache}"
# Nothing of the user's may change what is built; the module proxy may be theirs. An older Go fetches the one that go.mod
# asks for through the module proxy, also where Debian's says `local`.
export GOFLAGS=-modcacherw GOTOOLCHAIN="${GOTOOLCHAIN:-auto}" GOWORK=off CGO_ENABLED=0

version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
IFS=. read -r major minor _ <<<"${version#v}"
say "1 of 2: fetching the modules of Kubernetes $version"
packages=(k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler})
total=$(go list -deps "${packages[@]}" 2>"$work/download.log" | wc -l) || {
    tail -n 5 "$work/download.log" >&2
    exit 1
}
stamp=k8s.io/component-base/version
say "2 of 2: compiling $total packages"
mkdir -p "$out"
# One call, so that the programs share what is compiled. Without the stamp the server calls itself v0.0.0. -v names each package
# that is compiled.
go build -v -trimpath -o "$out/" \
    -ldflags "-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor" "${packages[@]}" 2>&1 |
    awk -v total="$total" '
        !/^[a-z0-9]+[a-zA-Z0-9_.\/~-]*$/ { print; next }
        ++done % 250 == 0 { printf "kubernetes: %d of %d packages\n", done, total; fflush() }' >&2
for program in "${packages[@]##*/}"; do
    "$out/$program" --version >&2
done
