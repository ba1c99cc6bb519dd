#!/bin/sh
# Brings the agent and verifies it: deliver [--boot] [SECONDS]
#
# What is wanted stands in /var/lib/virtfleet/delivery/wanted, a word and its values a line. It runs at every boot, from the
# boot command (--boot) and from virtfleet-delivery.service, may be killed at any moment, and changes nothing when all is
# well. POSIX sh; VIRTFLEET_ROOT is another root, for tests.
umask 022
root=${VIRTFLEET_ROOT:-}
state=$root/var/lib/virtfleet/delivery
agent=$root/opt/virtfleet/bin/virtfleet-agent
boot='' limit=90 mounted=''
if [ "${1:-}" = --boot ]; then
    boot=1
    shift
fi
[ -z "${1:-}" ] || limit=$1

say() {
    echo "virtfleet-delivery: $*" >&2
}
# For what somebody must do something about: on the console, too.
cry() {
    say "$*"
    { echo "virtfleet-delivery: $*" >>"$root/dev/console"; } 2>/dev/null || :
}
# Seconds since boot: the wall clock may jump.
now() {
    read -r uptime _ </proc/uptime
    echo "${uptime%%.*}"
}
sum() {
    sha256sum <"$1" 2>/dev/null | cut -d ' ' -f 1
}
# word FILE WORD: the values of a line.
word() {
    [ ! -f "$1" ] || sed -n "s/^$2 //p" "$1" | head -n 1
}
tidy() {
    if [ -n "$mounted" ]; then
        umount "$mounted" 2>/dev/null || umount -l "$mounted" 2>/dev/null
        rmdir "$mounted" 2>/dev/null
        mounted=''
    fi
    rm -f "${agent%/*}"/.virtfleet-new.*
}

# --- files that an interrupted first boot left empty -----------------------------------------------------------------

# Zero bytes, or zeros only: a filesystem may have recorded the length of what never reached the disk.
holds_text() {
    [ -n "$(head -c 65536 "$1" | tr -d '\000[:space:]')" ]
}

empty() {
    for file in "$root"/etc/systemd/network/*cloud-init*.network "$root"/etc/systemd/network/*cloud-init*.link \
        "$root"/etc/netplan/50-cloud-init.yaml "$root"/etc/network/interfaces.d/50-cloud-init* \
        "$root"/etc/NetworkManager/system-connections/cloud-init-*.nmconnection \
        "$root"/var/lib/cloud/data/*.json "$root"/var/lib/cloud/data/set-hostname \
        "$root"/var/lib/cloud/data/instance-id; do
        [ ! -f "$file" ] || [ -L "$file" ] || holds_text "$file" || echo "$file"
    done
}

# Whether one of the modules that do what the user asked for has run in this instance's life: then it is not run again.
user_has_run() {
    [ -e "$root/var/lib/cloud/instance/boot-finished" ] && return 0
    for module in scripts_user scripts_per_instance scripts_vendor runcmd write_files write_files_deferred disk_setup \
        package_update_upgrade_install; do
        for mark in "$root/var/lib/cloud/instance/sem/config_$module" "$root/var/lib/cloud/instance/sem/config_$module".*; do
            [ ! -e "$mark" ] || return 0
        done
    done
    return 1
}

repair() {
    found=$(empty)
    [ -n "$found" ] || return 0
    names=$(echo "$found" | tr '\n' ' ')
    count=$(cat "$state/repairs" 2>/dev/null)
    case $count in '' | *[!0-9]*) count=0 ;; esac
    advice='run `cloud-init clean --reboot` once it is safe to run user-data again'
    if [ "$(word "$state/wanted" repair)" != yes ]; then
        cry "a first boot was interrupted and left empty: $names: $advice (repairCloudInit is false)"
    elif [ -z "$boot" ]; then
        cry "a first boot was interrupted and left empty: $names: $advice"
    elif user_has_run; then
        cry "a first boot was interrupted and left empty: $names: user-data has run already, so it is not run again here: $advice"
    elif [ "$count" -ge 2 ]; then
        cry "a first boot was interrupted and left empty: $names: two repairs did not help: $advice"
    else
        cry "a first boot was interrupted and left empty: $names: making the next boot a first one (repair $((count + 1)) of 2)"
        if ! { echo $((count + 1)) >"$state/.repairs" && sync "$state/.repairs" &&
            mv -f "$state/.repairs" "$state/repairs" && sync "$state"; }; then
            cry "cannot count repairs in $state/repairs, so none is made: $advice"
            return 0
        fi
        if ! timeout 60 cloud-init clean; then
            cry "cloud-init clean failed: $advice"
            return 0
        fi
        # Left empty, they would be taken for what an administrator wants.
        echo "$found" | while read -r file; do rm -f "$file"; done
        sync
        timeout 30 systemctl reboot || timeout 30 systemctl --force reboot || reboot -f
        # Nothing of the user's may run on this boot; what does not go down within a minute goes on.
        sleep 60
        cry 'the reboot did not come; going on'
    fi
}

# --- the agent -------------------------------------------------------------------------------------------------------

# Whether what is there is what was asked for, or a later `virtfleet-agent install` made while the same was asked for.
in_place() {
    [ -f "$agent" ] && [ ! -L "$agent" ] && [ -x "$agent" ] || return 1
    have=$(sum "$agent")
    [ -n "$have" ] || return 1
    [ "$have" = "$sha" ] && return 0
    [ "$have" = "$(word "$state/installed" sha256)" ] && [ "$sha" = "$(word "$state/installed" wanted)" ]
}

# from_disk LABEL PATH, to $fresh.
from_disk() {
    device=$root/dev/disk/by-label/$1
    patience=10
    while [ ! -e "$device" ]; do
        if [ "$patience" -le 0 ] || [ "$(now)" -ge "$end" ]; then
            say "there is no disk with the label $1 ($device)"
            return 1
        fi
        patience=$((patience - 1))
        sleep 1
    done
    mounted=$(mktemp -d "$root/run/virtfleet-disk.XXXXXX") || return 1
    if ! mount -o ro,nosuid,nodev,noexec "$device" "$mounted"; then
        say "cannot mount $device read-only: is it a filesystem that this kernel knows?"
        rmdir "$mounted"
        mounted=''
        return 1
    fi
    result=0
    if [ ! -f "$mounted/$2" ]; then
        say "the disk with the label $1 has no file $2"
        result=1
    elif ! cat "$mounted/$2" >"$fresh"; then
        say "cannot copy $2 from the disk with the label $1: is it damaged, or is /opt full?"
        result=1
    fi
    umount "$mounted" || umount -l "$mounted"
    rmdir "$mounted" 2>/dev/null
    mounted=''
    return "$result"
}

# from_url URL, to $fresh.
from_url() {
    left=$((end - $(now)))
    [ "$left" -ge 5 ] || left=5
    if command -v curl >/dev/null; then
        curl --fail --location --silent --show-error --connect-timeout 10 --max-time "$left" --output "$fresh" "$1"
    elif command -v wget >/dev/null; then
        timeout "$left" wget -q -T 10 -t 1 -O "$fresh" "$1"
    elif command -v python3 >/dev/null; then
        timeout "$left" python3 -c 'import shutil, sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=10) as answer, open(sys.argv[2], "wb") as file:
    shutil.copyfileobj(answer, file)' "$1" "$fresh"
    else
        say 'there is neither curl nor wget nor python3: put one of them into the image, or use a disk'
        return 1
    fi || {
        say "cannot get $1: is it reachable from here?"
        return 1
    }
}

# Every source once, in their order. Leaves a verified binary in place, or fails.
bring() {
    while read -r kind first second <&3; do
        case $kind in
        disk) from_disk "$first" "$second" ;;
        url) from_url "$first" ;;
        *) continue ;;
        esac || continue
        got=$(sum "$fresh")
        if [ "$got" != "$sha" ]; then
            cry "$kind $first gave a file with the SHA-256 $got, asked for was $sha: it is not used; correct the file or the sum"
            rm -f "$fresh"
            continue
        fi
        if chmod 0755 "$fresh" && sync "$fresh" && mv -f "$fresh" "$agent" && sync "${agent%/*}"; then
            say "brought $agent from $kind $first"
            return 0
        fi
        cry "cannot put the agent into ${agent%/*}: is the disk full or read-only?"
    done 3<"$state/wanted"
    return 1
}

trap 'cry "stopped before the agent was in place (its time was over?); the next run goes on"; tidy; exit 1' TERM INT HUP
trap tidy EXIT
mkdir -p "$root/run"
if (: >"$root/run/virtfleet-delivery.lock") && exec 9>"$root/run/virtfleet-delivery.lock"; then
    # Whoever holds it does the same; the service runs again.
    flock -w "$limit" 9 || {
        cry 'another delivery runs for too long; see journalctl -u virtfleet-delivery'
        exit 1
    }
fi
end=$(($(now) + limit * 3 / 4)) pause=3

repair

if [ ! -s "$state/wanted" ]; then
    cry "$state/wanted is missing or empty: the boot command in user-data writes it at the next boot"
    exit 1
fi
sha=$(word "$state/wanted" sha256)
if [ -n "$sha" ]; then
    fresh=${agent%/*}/.virtfleet-new.agent
    mkdir -p "${agent%/*}" || exit 1
    until in_place; do
        bring && continue
        # Not past the end: whoever set the limit kills this run soon after.
        if [ $(($(now) + pause)) -ge "$end" ]; then
            cry "none of the sources gave the agent $sha: $(grep -E '^(disk|url) ' "$state/wanted" | tr '\n' ';') reachable? Tried again later"
            exit 1
        fi
        sleep "$pause"
    done
    # Where SELinux rules, a program needs a program's label.
    ! command -v restorecon >/dev/null || restorecon -RF "${agent%/bin/*}" || :
    set -- install
    [ -z "$root" ] || set -- install --root "$root"
    if ! "$agent" "$@" >&2; then
        cry "$agent install failed; what it said stands above (journalctl -u virtfleet-delivery, /var/log/cloud-init-output.log)"
        exit 1
    fi
fi
# The agent has no rights of its own: what it must read belongs to its group.
while read -r kind group file <&3; do
    [ "$kind" = group ] || continue
    [ "$(stat -c %G "$root$file")" = "$group" ] || chgrp "$group" "$root$file" ||
        cry "cannot give $file to the group $group: the agent cannot read it; is the agent installed?"
done 3<"$state/wanted"
sync -f "$state" || sync
exit 0
