#!/usr/bin/env bash
# A real kube-apiserver and etcd for the tests. Prints the folder with both on standard output.
#
#   kube-apiserver.sh fetch [--refresh]   build it unless it is in the cache
#   kube-apiserver.sh path                print where it is, and fail if it is not there; no network
#
# If KUBEBUILDER_ASSETS is set, its folder with `kube-apiserver` and `etcd` (as for envtest) is used.
# Otherwise the server is built once, from Debian bookworm's source package of Kubernetes with
# bookworm's Go, and kept in the cache. Both are unpacked, not installed. etcd is a part (parts.sh).
# The build takes 5 to 15 minutes and 2.5 GB, of which only the server stays. --refresh builds again
# if Debian has a newer source package.
#
#   VIRTFLEET_PARTS          the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet/parts
#   VIRTFLEET_DEBIAN_MIRROR  Debian's archive; default: the one of this machine's apt
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
. "$here/own-apt.sh"

cache="${VIRTFLEET_PARTS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_PARTS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/parts}"
suite=bookworm
recipe="$here/kube-apiserver-build.sh"
folder="$cache/kube-apiserver"
# The build folder. Not local to a function: the trap that removes it runs outside of functions.
work="$cache/.new/kube-apiserver.$$"

say() { printf 'kube-apiserver: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

complete() { # FOLDER: it has both programs
    [ -x "$1/kube-apiserver" ] && [ -x "$1/etcd" ]
}

given() { # prints KUBEBUILDER_ASSETS, if it is set
    [ -n "${KUBEBUILDER_ASSETS:-}" ] || return 1
    complete "$KUBEBUILDER_ASSETS" || die "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS does not contain kube-apiserver and etcd; unset it, or run: setup-envtest use -p path"
    printf '%s\n' "$KUBEBUILDER_ASSETS"
}

recipe_hash() { sha256sum "$recipe" | cut -c1-12; }

# Makes $folder/<version>-<recipe> and points `current` at it.
build() {
    local version key new started=$SECONDS
    [ -r "$debian_keyring" ] || die "$debian_keyring is missing; apt-get install debian-archive-keyring"
    command -v dpkg-source >/dev/null || die "dpkg-source is missing; apt-get install dpkg-dev"
    archive=$(debian_mirror) || return 1
    refresh_list "$suite" deb deb-src || return 1
    version=$(own_apt "$suite" apt-cache showsrc kubernetes | awk '/^Version:/ { print $2; exit }')
    [ -n "$version" ] || die "Debian $suite has no source package kubernetes"
    key="$version-$(recipe_hash)"
    if ! complete "$folder/$key"; then
        rm -rf "$work" "$folder/$key"
        mkdir -p "$work/download" "$folder"
        # Go makes some of its files read-only.
        trap 'chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
        say "fetching the sources of Kubernetes $version and Go (115 MB)"
        (
            cd "$work/download" && own_apt "$suite" apt-get -q source --download-only kubernetes &&
                own_apt "$suite" apt-get -q download golang-1.19-go golang-1.19-src \
                    golang-github-modern-go-reflect2-dev golang-github-json-iterator-go-dev
        ) >"$work/download.log" 2>&1 || die "cannot download them: $(grep -m1 '^E:' "$work/download.log" || tail -n1 "$work/download.log")"
        say "building it; this takes 5 to 15 minutes on two cores"
        new="$work/new"
        mkdir "$new"
        "$recipe" "$work" "$version" "$new/kube-apiserver" || return 1
        # A link, because the etcd in the cache may be updated.
        ln -s ../../etcd/current/usr/bin/etcd "$new/etcd"
        # A rename is atomic: a reader sees all of it or nothing.
        mv "$new" "$folder/$key" || return 1
        say "built in $(((SECONDS - started) / 60)) minutes and $(((SECONDS - started) % 60)) seconds"
    fi
    ln -sfn "$key" "$folder/.current.$$"
    mv -T "$folder/.current.$$" "$folder/current"
}

current() { # prints the folder in the cache, if it is complete
    complete "$folder/current" || return 1
    readlink -f "$folder/current"
}

fetch() {
    local refresh=no
    case "${1:-}" in
    --refresh) refresh=yes ;;
    '') ;;
    *) die "fetch takes --refresh and nothing else" ;;
    esac
    ! given || return 0
    mkdir -p "$cache"
    "$here/parts.sh" fetch ${1:+"$1"} etcd >/dev/null
    # One build at a time, also between checkouts: the second one finds the result of the first.
    exec 8>"$cache/.kube-apiserver.lock"
    flock -n 8 || {
        say "waiting for another build into $cache"
        flock -w 3600 8 || die "another build has held $cache/.kube-apiserver.lock for an hour"
    }
    if [ "$refresh" = no ] && [[ "$(current || true)" == *-"$(recipe_hash)" ]]; then
        current
        return
    fi
    build || { current >/dev/null && say "keeping the one that is in the cache"; } || die "there is none"
    current
}

path() {
    given || current || die "it is not in $folder; run tests/parts/kube-apiserver.sh fetch"
}

. "$here/verbs.sh" "$@"
