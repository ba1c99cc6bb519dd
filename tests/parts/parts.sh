#!/usr/bin/env bash
# Real servers for the tests, as single packages of Debian's unstable suite. They are unpacked into a
# cache, and never installed.
#
#   parts.sh fetch [--refresh] PART…   download each PART unless it is in the cache, and print its folder
#   parts.sh path PART…                print the folder of each PART; fail if one is missing; no network
#   parts.sh list                      print the names of all parts
#
# A part in the cache is used as it is, so a filled cache works without network. --refresh downloads
# newer versions. The script uses apt with its own source list, package lists and state, so the
# machine's apt is not changed. apt verifies the suite's signature with Debian's keyring, and each
# package's hash with the signed list.
#
#   VIRTFLEET_PARTS          the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet/parts
#   VIRTFLEET_DEBIAN_MIRROR  Debian's archive; default: the one of this machine's apt
set -euo pipefail
. "$(dirname "$0")/debian.sh"
. "$(dirname "$0")/own-apt.sh"

cache="${VIRTFLEET_PARTS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_PARTS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/parts}"
suites='sid trixie'

# part → package, and a file that the package must contain.
table='
prometheus    prometheus                usr/bin/prometheus
promtool      promtool                  usr/bin/promtool
node-exporter prometheus-node-exporter  usr/bin/prometheus-node-exporter
vmagent       victoria-metrics          usr/bin/vmagent
cloud-init    cloud-init                usr/bin/cloud-init
etcd          etcd-server               usr/bin/etcd
'

say() { printf 'parts: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

lookup() { # PART → "package file"
    local found
    found=$(awk -v part="$1" '$1 == part { print $2, $3 }' <<<"$table")
    [ -n "$found" ] || die "unknown part '$1'; the parts are: $(awk 'NF { printf "%s ", $1 }' <<<"$table")"
    printf '%s\n' "$found"
}

cached() { # PART → its folder, if it is complete
    local package file
    read -r package file <<<"$(lookup "$1")"
    [ -x "$cache/$1/current/$file" ] || return 1
    readlink -f "$cache/$1/current"
}

install_from() { # SUITE PART PACKAGE FILE
    local suite=$1 part=$2 package=$3 file=$4 work deb key folder
    refresh_list "$suite" || return 1
    work="$cache/.new/$part.$$"
    rm -rf "$work"
    mkdir -p "$work/root"
    say "fetching $package of Debian $suite"
    if ! (cd "$work" && own_apt "$suite" apt-get -q download "$package" >download.log 2>&1); then
        say "cannot download $package of Debian $suite: $(grep -m1 '^E:' "$work/download.log" || tail -n1 "$work/download.log")"
        rm -rf "$work"
        return 1
    fi
    deb=$(find "$work" -maxdepth 1 -name '*.deb')
    key=$(sha256sum "$deb" | cut -c1-16)
    folder="$cache/$part/$key"
    if [ ! -d "$folder" ]; then
        dpkg -x "$deb" "$work/root"
        [ -x "$work/root/$file" ] || die "$package of Debian $suite has no $file; the table in parts.sh needs a new path"
        mkdir -p "$cache/$part"
        # A rename is atomic: a reader sees the complete part or nothing.
        mv "$work/root" "$folder"
    fi
    ln -sfn "$key" "$cache/$part/.current.$$"
    mv -T "$cache/$part/.current.$$" "$cache/$part/current"
    say "$part is $(basename "$deb" .deb)"
    rm -rf "$work"
}

fetch() {
    local refresh=no part folder package file suite done failed=()
    if [ "${1:-}" = --refresh ]; then
        refresh=yes
        shift
    fi
    [ $# -gt 0 ] || die "name the parts to fetch; $0 list prints them"
    for part in "$@"; do lookup "$part" >/dev/null; done
    mkdir -p "$cache"
    # One at a time, also between checkouts: the second one finds the parts of the first.
    exec 9>"$cache/.lock"
    flock -n 9 || {
        say "waiting for another fetch into $cache"
        flock -w 600 9 || die "another fetch has held $cache/.lock for ten minutes"
    }
    archive=
    for part in "$@"; do
        if [ "$refresh" = no ] && folder=$(cached "$part"); then
            printf '%s\t%s\n' "$part" "$folder"
            continue
        fi
        [ -r "$debian_keyring" ] || die "$debian_keyring is missing; apt-get install debian-archive-keyring"
        [ -n "$archive" ] || archive=$(debian_mirror)
        read -r package file <<<"$(lookup "$part")"
        done=no
        for suite in $suites; do
            if install_from "$suite" "$part" "$package" "$file"; then
                done=yes
                break
            fi
        done
        if [ "$done" = no ] && folder=$(cached "$part"); then
            say "using the $part in the cache"
        elif [ "$done" = no ]; then
            failed+=("$part")
            continue
        fi
        printf '%s\t%s\n' "$part" "$(cached "$part")"
    done
    [ ${#failed[@]} -eq 0 ] || die "missing: ${failed[*]}"
}

path() {
    local part folder
    for part in "$@"; do
        lookup "$part" >/dev/null
        folder=$(cached "$part") || die "$part is not in $cache; run $0 fetch $part"
        printf '%s\t%s\n' "$part" "$folder"
    done
}

case "${1:-}" in
fetch | path)
    verb=$1
    shift
    "$verb" "$@"
    ;;
list) awk 'NF { print $1 }' <<<"$table" ;;
*)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
