#!/bin/sh
# Fetches, verifies and installs the agent: deliver [--boot] [SECONDS]
#
# /var/lib/virtfleet/delivery/wanted says what to install: a key and its values per line, those after `on MACHINE` for
# that machine only. Runs at every boot, from the boot command (--boot) and from virtfleet-delivery.service. May be
# killed at any time. Changes nothing if all is installed. Exit code 69: this system can never have the agent, so no
# further run is useful. POSIX sh; tests set VIRTFLEET_ROOT to another root.
umask 022
root=${VIRTFLEET_ROOT:-}
state=$root/var/lib/virtfleet/delivery
agent=$root/opt/virtfleet/bin/virtfleet-agent
boot='' limit=90 mounted='' wanted=$state/wanted
if [ "${1:-}" = --boot ]; then
    boot=1
    shift
fi
[ -z "${1:-}" ] || limit=$1

log() {
    echo "virtfleet-delivery: $*" >&2
}
# Logs to the console too: someone must act.
alert() {
    log "$*"
    { echo "virtfleet-delivery: $*" >>"$root/dev/console"; } 2>/dev/null || :
}
# Seconds since boot; the wall clock may jump.
now() {
    read -r uptime _ </proc/uptime
    echo "${uptime%%.*}"
}
sha256_of() {
    sha256sum <"$1" 2>/dev/null | cut -d ' ' -f 1
}
# value FILE KEY: the values of a line.
value() {
    [ ! -f "$1" ] || sed -n "s/^$2 //p" "$1" | head -n 1
}
cleanup() {
    if [ -n "$mounted" ]; then
        umount "$mounted" 2>/dev/null || umount -l "$mounted" 2>/dev/null
        rmdir "$mounted" 2>/dev/null
        mounted=''
    fi
    rm -f "${agent%/*}"/.virtfleet-new.*
}

# --- files that an interrupted first boot left empty -----------------------------------------------------------------

# False for zeros only: a filesystem may record the length of data that never reached the disk.
holds_text() {
    [ -n "$(head -c 65536 "$1" | tr -d '\000[:space:]')" ]
}

empty_files() {
    for file in "$root"/etc/systemd/network/*cloud-init*.network "$root"/etc/systemd/network/*cloud-init*.link \
        "$root"/etc/netplan/50-cloud-init.yaml "$root"/etc/network/interfaces.d/50-cloud-init* \
        "$root"/etc/NetworkManager/system-connections/cloud-init-*.nmconnection \
        "$root"/var/lib/cloud/data/*.json "$root"/var/lib/cloud/data/set-hostname \
        "$root"/var/lib/cloud/data/instance-id; do
        [ ! -f "$file" ] || [ -L "$file" ] || holds_text "$file" || echo "$file"
    done
}

# Whether a cloud-init module that runs user-data has run in this instance; it must not run twice.
user_data_has_run() {
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
    found=$(empty_files)
    [ -n "$found" ] || return 0
    names=$(echo "$found" | tr '\n' ' ')
    count=$(cat "$state/repairs" 2>/dev/null)
    case $count in '' | *[!0-9]*) count=0 ;; esac
    advice='run `cloud-init clean --reboot` once it is safe to run user-data again'
    if [ "$(value "$state/wanted" repair)" != yes ]; then
        alert "a first boot was interrupted and left empty: $names: $advice (repairCloudInit is false)"
    elif [ -z "$boot" ]; then
        alert "a first boot was interrupted and left empty: $names: $advice"
    elif user_data_has_run; then
        alert "a first boot was interrupted and left empty: $names: user-data has run already and is not repeated: $advice"
    elif [ "$count" -ge 2 ]; then
        alert "a first boot was interrupted and left empty: $names: two repairs did not help: $advice"
    else
        alert "a first boot was interrupted and left empty: $names: running cloud-init again at the next boot (repair $((count + 1)) of 2)"
        if ! { echo $((count + 1)) >"$state/.repairs" && sync "$state/.repairs" &&
            mv -f "$state/.repairs" "$state/repairs" && sync "$state"; }; then
            alert "cannot write $state/repairs, so nothing is repaired: $advice"
            return 0
        fi
        if ! timeout 60 cloud-init clean; then
            alert "cloud-init clean failed: $advice"
            return 0
        fi
        # Left empty, they would count as an administrator's settings.
        echo "$found" | while read -r file; do rm -f "$file"; done
        sync
        timeout 30 systemctl reboot || timeout 30 systemctl --force reboot || reboot -f
        # No user-data may run in this boot. If the reboot fails, continue.
        sleep 60
        alert 'no reboot within a minute; continuing'
    fi
}

# --- the agent -------------------------------------------------------------------------------------------------------

# Whether the agent is the wanted one, or `virtfleet-agent install` replaced it while that one was wanted.
is_installed() {
    [ -f "$agent" ] && [ ! -L "$agent" ] && [ -x "$agent" ] || return 1
    have=$(sha256_of "$agent")
    [ -n "$have" ] || return 1
    [ "$have" = "$sha" ] && return 0
    [ "$have" = "$(value "$state/installed" sha256)" ] && [ "$sha" = "$(value "$state/installed" wanted)" ]
}

# from_disk LABEL PATH: copies to $staged.
from_disk() {
    device=$root/dev/disk/by-label/$1
    tries=10
    while [ ! -e "$device" ]; do
        if [ "$tries" -le 0 ] || [ "$(now)" -ge "$end" ]; then
            log "no disk has the label $1 ($device)"
            return 1
        fi
        tries=$((tries - 1))
        sleep 1
    done
    mounted=$(mktemp -d "$root/run/virtfleet-disk.XXXXXX") || return 1
    if ! mount -o ro,nosuid,nodev,noexec "$device" "$mounted"; then
        log "cannot mount $device read-only: does this kernel support the filesystem?"
        rmdir "$mounted"
        mounted=''
        return 1
    fi
    result=0
    if [ ! -f "$mounted/$2" ]; then
        log "the disk with the label $1 has no file $2"
        result=1
    elif ! cat "$mounted/$2" >"$staged"; then
        log "cannot copy $2 from the disk with the label $1: is it damaged, or is /opt full?"
        result=1
    fi
    umount "$mounted" || umount -l "$mounted"
    rmdir "$mounted" 2>/dev/null
    mounted=''
    return "$result"
}

# from_url URL: downloads to $staged.
from_url() {
    left=$((end - $(now)))
    [ "$left" -ge 5 ] || left=5
    if command -v curl >/dev/null; then
        curl --fail --location --silent --show-error --connect-timeout 10 --max-time "$left" --output "$staged" "$1"
    elif command -v wget >/dev/null; then
        timeout "$left" wget -q -T 10 -t 1 -O "$staged" "$1"
    elif command -v python3 >/dev/null; then
        timeout "$left" python3 -c 'import shutil, sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=10) as answer, open(sys.argv[2], "wb") as file:
    shutil.copyfileobj(answer, file)' "$1" "$staged"
    else
        log 'no curl, wget or python3: add one of them to the image, or use a disk'
        return 1
    fi || {
        log "cannot get $1: is it reachable from here?"
        return 1
    }
}

# Tries each source once, in order, until one gives the wanted agent.
fetch() {
    while read -r kind first second <&3; do
        case $kind in
        disk) from_disk "$first" "$second" ;;
        url) from_url "$first" ;;
        *) continue ;;
        esac || continue
        got=$(sha256_of "$staged")
        if [ "$got" != "$sha" ]; then
            alert "$kind $first gave a file with the SHA-256 $got, not $sha; it is not used; correct the file or the SHA-256"
            rm -f "$staged"
            continue
        fi
        if chmod 0755 "$staged" && sync "$staged" && mv -f "$staged" "$agent" && sync "${agent%/*}"; then
            log "installed $agent from $kind $first"
            return 0
        fi
        alert "cannot write the agent to ${agent%/*}: is the disk full or read-only?"
    done 3<"$wanted"
    return 1
}

trap 'alert "stopped before the agent was installed (time limit?); the next run continues"; cleanup; exit 1' TERM INT HUP
trap cleanup EXIT
mkdir -p "$root/run"
if (: >"$root/run/virtfleet-delivery.lock") && exec 9>"$root/run/virtfleet-delivery.lock"; then
    # The other run does the same; the service tries again.
    flock -w "$limit" 9 || {
        alert 'another delivery takes too long; see journalctl -u virtfleet-delivery'
        exit 1
    }
fi
end=$(($(now) + limit * 3 / 4)) pause=3

repair

if [ ! -s "$state/wanted" ]; then
    alert "$state/wanted is missing or empty: the boot command in user-data writes it at the next boot"
    exit 1
fi
if grep -q '^on ' "$wanted"; then
    machine=$(uname -m)
    wanted=$root/run/virtfleet-delivery.wanted
    if ! sed -n -e "s/^on $machine //" -e '/^on /!p' "$state/wanted" >"$wanted"; then
        alert "cannot write $wanted; the next run tries again"
        exit 1
    fi
    if [ -z "$(value "$wanted" sha256)" ]; then
        has=$(sed -n 's/^on \([^ ]*\) sha256 .*/\1/p' "$state/wanted" | tr '\n' ' ')
        alert "this machine is $machine, and user-data has the agent only for ${has}(agent.machines): not installed"
        exit 69
    fi
fi
sha=$(value "$wanted" sha256)
if [ -n "$sha" ]; then
    staged=${agent%/*}/.virtfleet-new.agent
    mkdir -p "${agent%/*}" || exit 1
    if ! is_installed; then
        systemd=$(systemctl --version 2>/dev/null | sed -n 's/^systemd \([0-9][0-9]*\).*/\1/p')
        # Older ones cannot restart units of Type=oneshot, and their networkd cannot reload its files.
        if [ "${systemd:-244}" -lt 244 ]; then
            alert "this system has systemd $systemd, and the agent needs systemd 244 or newer: not installed"
            exit 69
        fi
    fi
    until is_installed; do
        fetch && continue
        # Not past $end: the caller kills this run soon after.
        if [ $(($(now) + pause)) -ge "$end" ]; then
            alert "none of the sources gave the agent $sha: $(grep -E '^(disk|url) ' "$wanted" | tr '\n' ';') reachable? The next run tries again"
            exit 1
        fi
        sleep "$pause"
    done
    # With SELinux a program needs its label.
    ! command -v restorecon >/dev/null || restorecon -RF "${agent%/bin/*}" || :
    set -- install
    [ -z "$root" ] || set -- install --root "$root"
    if ! "$agent" "$@" >&2; then
        alert "$agent install failed; its output is above (journalctl -u virtfleet-delivery, /var/log/cloud-init-output.log)"
        exit 1
    fi
fi
# The agent runs without privileges: files that it reads belong to its group.
while read -r kind group file <&3; do
    [ "$kind" = group ] || continue
    [ "$(stat -c %G "$root$file")" = "$group" ] || chgrp "$group" "$root$file" ||
        alert "cannot change the group of $file to $group, so the agent cannot read it: is the agent installed?"
done 3<"$state/wanted"
sync -f "$state" || sync
exit 0
