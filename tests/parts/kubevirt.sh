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
# The file `pins` has the versions of the modules and their sums. For VIRTFLEET_PARTS,
# VIRTFLEET_DEBIAN_MIRROR and GOPROXY see kubernetes.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
. "$here/own-apt.sh"
. "$here/own-go.sh"

cache="${VIRTFLEET_PARTS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_PARTS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/parts}"
folder="$cache/kubevirt"
# Not local to a function: the trap that removes it runs outside of functions.
work="$cache/.new/kubevirt.$$"

kinds='VirtualMachine VirtualMachineInstance VirtualMachineInstanceMigration'

say() { printf 'kubevirt: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# Prints the rows of the modules: module, version, sum.
pinned() { awk '$1 == "kubevirt" { print $3, $4, $6 }' "$here/pins"; }

# Prints the pinned versions of a module.
versions() { # MODULE
    pinned | awk -v module="$1" '$1 == module { print $2 }'
}

key() { { cat "$0" && pinned; } | sha256sum | cut -c1-12; }

current() { # prints the folder in the cache if it is there
    [ -d "$folder/current/schemas" ] || return 1
    readlink -f "$folder/current"
}

release_of() { # VERSION: v1.9.0 is of release 1.9
    local version=${1#v}
    printf '%s\n' "${version%.*}"
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
    local name version release kind source new="$work/new"
    name=$(key)
    if [ ! -d "$folder/$name" ]; then
        mkdir -p "$new" "$folder"
        trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
        provide_go || return 1
        export GOPATH="$work/gopath" GOMODCACHE="$work/gopath/pkg/mod" GOCACHE="$work/gocache" GOFLAGS=-modcacherw GOWORK=off
        # Each module has the examples of its own release (HEAD). Some also have those of earlier
        # releases (release-1.N).
        for version in $(versions kubevirt.io/api); do
            release=$(release_of "$version")
            say "fetching the examples of KubeVirt $release"
            source=$(module "kubevirt.io/api@$version") || return 1
            examples "$source" "$release" "$new/examples" || return 1
        done
        # The oldest and the newest supported release.
        for version in $(versions kubevirt.io/kubevirt); do
            release=$(release_of "$version")
            say "fetching the schemas of KubeVirt $release"
            source=$(module "kubevirt.io/kubevirt@$version") || return 1
            mkdir -p "$new/schemas/$release"
            for kind in $kinds; do
                schema "$source/pkg/virt-operator/resource/generate/components/validations_generated.go" "$kind" >"$new/schemas/$release/$kind.yaml"
                grep -q '^openAPIV3Schema:' "$new/schemas/$release/$kind.yaml" || {
                    say "kubevirt.io/kubevirt $version has no schema of $kind"
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
