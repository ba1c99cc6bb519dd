#!/usr/bin/env bash
# Real servers for the tests, as single packages of Debian. They are unpacked into a cache, and
# never installed.
#
#   parts.sh fetch [--refresh] PART…   download each PART unless it is in the cache; print its folder
#   parts.sh path PART…                print the folder of each PART; fail if one is missing;
#                                      no network
#   parts.sh versions [PART…]          print the version of each PART in the cache, and a message
#                                      for each that is not pinned; no network
#   parts.sh pin                       print the rows of `pins` for what the archive has now
#   parts.sh list                      print the names of all parts
#
# The file `pins` has the version and the SHA-256 of each part, for one or more suites. The first
# suite that still has its pinned version is used, if the program runs on this machine. If no suite
# has its pinned version, the newest one is used, with a message.
#
# A part in the cache is used as it is, without network, unless its rows in `pins` have changed
# since it was fetched. --refresh downloads it again. The script uses apt with its own source list,
# package lists and state, so the machine's apt is not changed. apt verifies the suite's signature
# with Debian's keyring, and each package's hash with the signed list.
#
#   VIRTFLEET_PARTS          the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet/parts
#   VIRTFLEET_PINS           the file of pinned versions; default: `pins` beside this script
#   VIRTFLEET_DEBIAN_MIRROR  Debian's archive; default: the one of this machine's apt
#   VIRTFLEET_FETCH_AGAIN    if not empty, the caller tries again: if an archive cannot be read, the
#                            script fails, and uses no other suite and no other version
set -euo pipefail
. "$(dirname "$0")/debian.sh"
. "$(dirname "$0")/own-apt.sh"

cache="${VIRTFLEET_PARTS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_PARTS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/parts}"
pins="${VIRTFLEET_PINS:-$(dirname "$0")/pins}"
# Suites for the newest version, if none has its pinned version.
suites='sid trixie'
# Architecture of the packages. `path` and a filled cache need no dpkg.
architecture=$(dpkg --print-architecture 2>/dev/null || uname -m)

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

# Prints the pinned versions of a part, in the order of preference: suite, version, SHA-256.
pinned() { # PART
    awk -v part="$1" -v architecture="$architecture" \
        '$1 == part && ($5 == architecture || $5 == "all") { print $2, $4, $6 }' "$pins"
}

pins_hash() { pinned "$1" | sha256sum | cut -c1-12; }

# Prints what is known about the part in the cache: version, suite, and the hash of the pins under
# which it was accepted. Parts that earlier checkouts fetched have no record.
record() { # PART
    cat "$(readlink -f "$cache/$1/current").record" 2>/dev/null
}

# Whether the part in the cache was accepted under the pins of this checkout.
up_to_date() { # PART
    local of
    cached "$1" >/dev/null && read -r _ _ of < <(record "$1") && [ "$of" = "$(pins_hash "$1")" ]
}

# Whether a part runs on this machine. It may be built for a newer libc or kernel.
runs() { # PART FOLDER FILE
    local command=("$2/$3" --version) status=0 log
    # Its modules are in the part, and the modules that these need are installed by
    # tests/guests/host.sh.
    [ "$1" != cloud-init ] ||
        command=(env PYTHONPATH="$2/usr/lib/python3/dist-packages" /usr/bin/python3 -B "${command[@]}")
    log=$(timeout 60 "${command[@]}" 2>&1 </dev/null) || status=$?
    [ "$status" != 0 ] || return 0
    say "$1 does not run here: exit code $status of --version: $(tail -n 1 <<<"$log")"
    return 1
}

# Makes a complete folder of a part the one that is used.
use() { # PART KEY VERSION SUITE [pinned]
    local part=$1 key=$2 state=${5:-newest}
    printf '%s %s %s\n' "$3" "$4" "$(pins_hash "$part")" >"$cache/$part/.record.$$"
    mv -T "$cache/$part/.record.$$" "$cache/$part/$key.record"
    ln -sfn "$key" "$cache/$part/.current.$$"
    mv -T "$cache/$part/.current.$$" "$cache/$part/current"
    say "$part is $3 of Debian $4 ($state)"
    [ "$state" = pinned ] || not_pinned "$part" "$3" "$4"
}

not_pinned() { # PART VERSION SUITE
    say "NOT PINNED: $1 $2 of $3; update tests/parts/pins"
}

# Downloads a part, and uses it if it is acceptable: the pinned version, or the newest one of the
# suite.
install_from() { # SUITE PART PACKAGE FILE [VERSION SHA256]
    local work="$cache/.new/$2.$$" status=0
    provide_archive
    refresh_list "$1" || {
        unreadable=yes
        return 1
    }
    rm -rf "$work"
    mkdir -p "$work"
    download_and_use "$@" || status=1
    rm -rf "$work"
    return "$status"
}

download_and_use() { # as install_from, with the folder $work
    local suite=$1 part=$2 package=$3 file=$4 version=${5:-} pin=${6:-} deb sum folder
    say "fetching $package ${version:-(newest)} of Debian $suite"
    if ! (cd "$work" && own_apt "$suite" apt-get -q download "$package${version:+=$version}" >download.log 2>&1); then
        # Without the version, another suite is used at once. All else may be the network.
        grep -q '^E: \(Version .* was not found\|Unable to locate package\)' "$work/download.log" || unreadable=yes
        say "cannot download it: $(grep -m1 '^E:' "$work/download.log" || tail -n1 "$work/download.log")"
        return 1
    fi
    deb=$(find "$work" -maxdepth 1 -name '*.deb')
    sum=$(sha256sum "$deb" | cut -d ' ' -f 1)
    if [ -n "$pin" ] && [ "$sum" != "$pin" ]; then
        say "${deb##*/} is not accepted: its SHA-256 is $sum, but $pins has $pin"
        rejected=yes
        return 1
    fi
    folder="$cache/$part/${sum:0:16}"
    if [ -d "$folder" ]; then
        runs "$part" "$folder" "$file" || return 1
    else
        dpkg -x "$deb" "$work/root" || return 1
        if [ ! -x "$work/root/$file" ]; then
            say "${deb##*/} has no $file; the table in parts.sh needs a new path"
            return 1
        fi
        runs "$part" "$work/root" "$file" || return 1
        mkdir -p "$cache/$part"
        # A rename is atomic: a reader sees the complete part or nothing.
        mv "$work/root" "$folder" || return 1
    fi
    version=$(dpkg-deb -f "$deb" Version)
    use "$part" "${sum:0:16}" "$version" "$suite" "${pin:+pinned}"
}

# Provides a part: the first pinned version that can be used, otherwise the newest one.
install() { # PART REFRESH
    local part=$1 refresh=$2 package file suite version pin key
    read -r package file <<<"$(lookup "$part")"
    # Whether a package had another hash than its pin. Then the newest version is not used either,
    # because it may be this package.
    rejected=no
    # Whether the archive could not be read.
    unreadable=no
    while read -r suite version pin; do
        [ -n "$suite" ] || continue
        key=${pin:0:16}
        if [ "$refresh" = no ] && [ -x "$cache/$part/$key/$file" ] && runs "$part" "$cache/$part/$key" "$file"; then
            use "$part" "$key" "$version" "$suite" pinned
            return
        fi
        ! install_from "$suite" "$part" "$package" "$file" "$version" "$pin" || return 0
        [ "$unreadable" = no ] || [ -z "${VIRTFLEET_FETCH_AGAIN:-}" ] || return 1
    done <<<"$(pinned "$part")"
    if [ "$rejected" = yes ]; then
        say "no newest version of $part is used, because a package does not have its pinned SHA-256"
        return 1
    fi
    for suite in $suites; do
        ! install_from "$suite" "$part" "$package" "$file" || return 0
    done
    return 1
}

# One process at a time, also between checkouts: the second one finds the parts of the first.
lock() {
    mkdir -p "$cache"
    exec 9>"$cache/.lock"
    flock -n 9 || {
        say "waiting for another fetch into $cache"
        flock -w 1200 9 || die "another fetch has held $cache/.lock for 20 minutes"
    }
}

# What a use of the network needs.
provide_archive() {
    [ -r "$debian_keyring" ] || die "$debian_keyring is missing; apt-get install debian-archive-keyring"
    [ -n "${archive:-}" ] || archive=$(debian_mirror)
}

fetch() {
    local refresh=no part folder failed=()
    if [ "${1:-}" = --refresh ]; then
        refresh=yes
        shift
    fi
    [ $# -gt 0 ] || die "name the parts to fetch; $0 list prints them"
    [ -r "$pins" ] || die "cannot read $pins, which has the versions of the parts"
    for part in "$@"; do lookup "$part" >/dev/null; done
    lock
    for part in "$@"; do
        if [ "$refresh" = yes ] || ! up_to_date "$part"; then
            if ! install "$part" "$refresh"; then
                if [ -n "${VIRTFLEET_FETCH_AGAIN:-}" ] || ! cached "$part" >/dev/null; then
                    failed+=("$part")
                    continue
                fi
                say "using the $part in the cache"
            fi
        fi
        folder=$(cached "$part")
        printf '%s\t%s\n' "$part" "$folder"
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

versions() {
    local part version suite key all=()
    [ $# -gt 0 ] || mapfile -t all < <(list)
    for part in "${@:-${all[@]}}"; do
        lookup "$part" >/dev/null
        if ! cached "$part" >/dev/null; then
            printf '%s: missing\n' "$part"
        elif ! read -r version suite _ < <(record "$part"); then
            printf '%s: unknown version, fetched by an earlier checkout\n' "$part"
        elif key=$(basename "$(cached "$part")") && [[ "$(pinned "$part")" == *" $key"* ]]; then
            printf '%s %s (%s, pinned)\n' "$part" "$version" "$suite"
        else
            printf '%s %s (%s, not pinned)\n' "$part" "$version" "$suite"
            not_pinned "$part" "$version" "$suite"
        fi
    done
}

pin() {
    local suite part package status=0
    [ $# = 0 ] || die "pin takes no argument"
    lock
    provide_archive
    for part in $(list); do
        read -r package _ <<<"$(lookup "$part")"
        for suite in $suites; do
            refresh_list "$suite" || {
                status=1
                continue
            }
            own_apt "$suite" apt-cache show --no-all-versions "$package" | awk -v part="$part" -v suite="$suite" '
                $1 == "Package:" { package = $2 }
                $1 == "Version:" { version = $2 }
                $1 == "Architecture:" { architecture = $2 }
                $1 == "SHA256:" { sum = $2 }
                END {
                    if (sum == "") exit 1
                    printf "%-13s %-6s %-24s %-20s %-5s %s\n", part, suite, package, version, architecture, sum
                }' || {
                say "Debian $suite has no package $package"
                status=1
            }
        done
    done
    return "$status"
}

list() { awk 'NF { print $1 }' <<<"$table"; }

case "${1:-}" in
fetch | path | versions | pin | list)
    verb=$1
    shift
    "$verb" "$@"
    ;;
*)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
