#!/usr/bin/env bash
# KubeVirt's own objects and schemas for the tests. Prints a folder on standard output, with
#   examples/1.N/KIND.json   an object with every field set, as that release serialises it
#                            (module kubevirt.io/api)
#   schemas/1.N/KIND.yaml    the validation of the CustomResourceDefinition of that release
#                            (module kubevirt.io/kubevirt)
#
#   kubevirt.sh fetch   fetch them unless they are in the cache (25 MB)
#   kubevirt.sh path    print where they are, and fail if they are not there; no network
#
# Go's checksum database verifies the modules. For VIRTFLEET_PARTS, VIRTFLEET_DEBIAN_MIRROR and
# GOPROXY see kubernetes.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
. "$here/own-apt.sh"
. "$here/own-go.sh"

cache="${VIRTFLEET_PARTS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_PARTS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/parts}"
folder="$cache/kubevirt"
# Not local to a function: the trap that removes it runs outside of functions.
work="$cache/.new/kubevirt.$$"

# Each module has the examples of its own release (HEAD). Some also have those of earlier releases
# (release-1.N).
releases='1.4 1.5 1.6 1.7 1.8 1.9'
# The schemas of the oldest and the newest supported release.
with_schemas='1.2 1.9'
kinds='VirtualMachine VirtualMachineInstance VirtualMachineInstanceMigration'

say() { printf 'kubevirt: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

key() { sha256sum "$0" | cut -c1-12; }

current() { # prints the folder in the cache if it is there
    [ -d "$folder/current/schemas" ] || return 1
    readlink -f "$folder/current"
}

# Prints the folder of a module's files.
module() { # MODULE@VERSION
    local answer
    answer=$(cd "$work" && go mod download -json "$1" 2>&1) || {
        say "cannot download $1: $(sed -n 's/^\s*"Error": "\(.*\)".*/\1/p' <<<"$answer")"
        return 1
    }
    sed -n 's/^\s*"Dir": "\(.*\)".*/\1/p' <<<"$answer"
}

# Copies the examples of a module. There is no example of a migration.
examples() { # FOLDER-OF-MODULE RELEASE TO
    local from of kind
    for from in "$1"/apitesting/testdata/{HEAD,release-1.*}; do
        [ -d "$from" ] || continue
        of=${from##*/release-}
        [ "${from##*/}" != HEAD ] || of=$2
        mkdir -p "$3/$of"
        for kind in VirtualMachine VirtualMachineInstance; do
            cp "$from/kubevirt.io.v1.$kind.json" "$3/$of/$kind.json" || return 1
        done
    done
}

# One entry of the map `CRDsValidation` in Go source: "kind": `YAML`,
schema() { # FILE KIND
    awk -v begin="\"${2,,}\": \`" '
        !inside && (at = index($0, begin)) { inside = 1; $0 = substr($0, at + length(begin)) }
        inside && /^`,/ { exit }
        inside { print }' "$1"
}

build() {
    local name release kind source new="$work/new"
    name=$(key)
    if [ ! -d "$folder/$name" ]; then
        mkdir -p "$new" "$folder"
        trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
        provide_go || return 1
        export GOPATH="$work/gopath" GOMODCACHE="$work/gopath/pkg/mod" GOCACHE="$work/gocache" GOFLAGS=-modcacherw GOWORK=off
        for release in $releases; do
            say "fetching the examples of KubeVirt $release"
            source=$(module "kubevirt.io/api@v$release.0") || return 1
            examples "$source" "$release" "$new/examples" || return 1
        done
        for release in $with_schemas; do
            say "fetching the schemas of KubeVirt $release"
            source=$(module "kubevirt.io/kubevirt@v$release.0") || return 1
            mkdir -p "$new/schemas/$release"
            for kind in $kinds; do
                schema "$source/pkg/virt-operator/resource/generate/components/validations_generated.go" "$kind" >"$new/schemas/$release/$kind.yaml"
                grep -q '^openAPIV3Schema:' "$new/schemas/$release/$kind.yaml" || {
                    say "kubevirt.io/kubevirt v$release.0 has no schema of $kind"
                    return 1
                }
            done
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
    exec 8>"$cache/.kubevirt.lock"
    flock -w 600 8 || die "another fetch has held $cache/.kubevirt.lock for ten minutes"
    build || { current >/dev/null && say "the download failed; the previous one stays in use"; } || die "the download failed, and the cache has no earlier one"
    current
}

path() {
    [ $# = 0 ] || die "path takes no argument"
    current || die "it is not in $folder; run tests/parts/kubevirt.sh fetch"
}

. "$here/verbs.sh" "$@"
