#!/usr/bin/env bash
# Leftovers of killed test runs: what a test or a script could not remove because it was killed.
#
#   leftovers.sh list     print each leftover on a line; change nothing
#   leftovers.sh remove   remove each leftover and print it on a line; print what stays, and why
#
# Only what has a mark of this project counts, and only if its owner is dead:
#   - folders virtfleet-(stage|guests|test|run)-PID-* in ${TMPDIR:-/tmp} and /dev/shm, mounts below
#     them, and test programs whose root is below one or whose arguments name one;
#   - loop devices whose file is or was in such a folder, with all that uses them: mounts, swap,
#     device mapper, RAID, bcache, other loop devices;
#   - network namespaces virtfleet-PID-* in which no process is left, and control groups
#     virtfleet-PID-machine*;
#   - half-written entries of the caches that no script holds (a lock, a process in the name or with
#     the path in its arguments), or that have no lock and did not change for 3 hours;
#   - the policy-rc.d of an installation (debian.sh).
# The owner is the process PID. If a process with this number exists, everything of it stays, even
# if the number was reused. Without root, only what belongs to the user is removed.
#
# The exit code is 0 even if something stays. If TMPDIR was another folder in the killed run, its
# folders are not found.
#
# The caches are all folders in ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet, and the folders in these
# variables, if they are set:
#
#   VIRTFLEET_PARTS   parts.sh and the scripts beside it
#   VIRTFLEET_GUESTS  ../guests/image.sh, machine-root.sh, owners-root.sh
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
shopt -s nullglob

remove=no     # whether to remove or only to list
folders=()    # abandoned folders
networks=()   # abandoned network namespaces, names
declare -A network_of=() # inode of an abandoned network namespace → its name
declare -A known=()      # kernel names of abandoned block devices, e.g. loop3, dm-0

say() { printf 'leftovers: %s\n' "$*"; }

# Lists a leftover, or removes it with a command. Fails if it stays.
leftover() { # WHAT COMMAND…
    local what=$1 error
    shift
    if [ "$remove" = no ]; then
        printf '%s\n' "$what"
        return
    fi
    if error=$("$@" 2>&1); then
        say "removed $what"
        return
    fi
    error=${error%%$'\n'*}
    [ "$EUID" = 0 ] || error="${error:+$error; }not root"
    stays "$what" "${error:-$1 failed or took too long}"
}

stays() { # WHAT WHY; fails, so that the caller can stop
    say "cannot remove $1: $2"
    return 1
}

# Runs a command that may hang, e.g. on a filesystem that does not answer.
limited() { timeout -k 1 10 "$@"; }

is_dead() { # PID
    [ ! -e "/proc/$1" ]
}

# Whether a path has a component with our mark, and the owner of each such component is dead.
marked='/virtfleet-(stage|guests|test|run)-([0-9]+)-[^/]+'
is_abandoned() { # PATH
    local rest=$1
    [[ $rest =~ $marked ]] || return 1
    while [[ $rest =~ $marked ]]; do
        is_dead "${BASH_REMATCH[2]}" || return 1
        rest=${rest#*"${BASH_REMATCH[0]}"}
    done
}

find_folders() {
    local top folder tops=("${TMPDIR:-/tmp}")
    [ "${tops[0]%/}" = /dev/shm ] || tops+=(/dev/shm)
    for top in "${tops[@]}"; do
        for folder in "${top%/}"/virtfleet-*; do
            [ -d "$folder" ] && [ ! -L "$folder" ] || continue
            # TMPDIR itself may have a mark, which is not that of the folder.
            is_abandoned "/${folder##*/}" && is_abandoned "$folder" || continue
            folders+=("$folder")
        done
    done
}

find_networks() {
    local path name inode
    for path in /run/netns/virtfleet-*; do
        name=${path##*/}
        [[ $name =~ ^virtfleet-([0-9]+)- ]] && is_dead "${BASH_REMATCH[1]}" || continue
        networks+=("$name")
        inode=$(stat -L -c %i "$path" 2>/dev/null) || continue
        network_of[$inode]=$name
    done
}

# Sets `hit` to the abandoned folder that contains a path.
hit=
in_folder() { # PATH
    local folder
    for folder in "${folders[@]}"; do
        case $1 in
        "$folder" | "$folder/"*)
            hit=$folder
            return
            ;;
        esac
    done
    return 1
}

# Whether a process is one of our tests' programs; an editor or a shell of a person is not.
is_test_program() { # ARGV0
    case ${1##*/} in
    qemu-system-* | swtpm | socat | setpriv | unshare | nsenter | systemd-nspawn | dnsmasq | unbound | dhclient) ;;
    disk-stage | dns-stage | hang-mount | fleet-sim | virtfleet-agent | virtfleet-collector | virtfleet-relay) ;;
    etcd | kube-apiserver | kube-scheduler | kube-controller-manager) ;;
    prometheus | prometheus-node-exporter | vmagent) ;;
    *) return 1 ;;
    esac
}

end_process() { # PID
    local i
    kill -KILL "$1" || return
    for ((i = 0; i < 40; i++)); do
        # A killed process that its parent has not reaped has no program.
        [ -e "/proc/$1/exe" ] || return 0
        sleep 0.05
    done
    echo "it did not end in 2 seconds"
    return 1
}

# Processes of dead tests. They normally end with their test.
processes() {
    local path link pid args arg words text
    declare -A root=() network=()
    [ $((${#folders[@]} + ${#networks[@]})) -gt 0 ] || return 0
    while read -r path link; do
        pid=${path#/proc/}
        case $path in
        */root) root[${pid%%/*}]=$link ;;
        *) network[${pid%%/*}]=${link//[!0-9]/} ;;
        esac
    done < <(find /proc/[0-9]*/root /proc/[0-9]*/ns/net -maxdepth 0 -printf '%p %l\n' 2>/dev/null || true)
    for pid in "${!root[@]}"; do
        [ "$pid" != $$ ] || continue
        args=()
        { mapfile -d '' -t args <"/proc/$pid/cmdline"; } 2>/dev/null || continue
        [ ${#args[@]} -gt 0 ] || continue
        hit=
        if ! in_folder "${root[$pid]}"; then
            is_test_program "${args[0]}" || continue
            for arg in "${args[@]:1}"; do
                # key=PATH, and options of QEMU: …,path=PATH,…
                read -ra words <<<"${arg//[=,:\"]/ }" || true
                for arg in "${words[@]}"; do
                    ! in_folder "$arg" || break 2
                done
            done
            [ -n "$hit" ] || hit=${network_of[${network[$pid]:-0}]:-}
            [ -n "$hit" ] || continue
        fi
        text="process $pid (${args[0]##*/}) of $hit"
        leftover "$text" end_process "$pid" || true
    done
}

end_group() { # FOLDER
    local i
    [ ! -e "$1/cgroup.kill" ] || echo 1 >"$1/cgroup.kill"
    for ((i = 0; i < 40; i++)); do
        grep -qs 'populated 1' "$1/cgroup.events" || break
        sleep 0.05
    done
    find "$1" -depth -type d -exec rmdir {} +
}

groups_of_machines() {
    local path
    for path in /sys/fs/cgroup/virtfleet-* /sys/fs/cgroup/unified/virtfleet-*; do
        [[ ${path##*/} =~ ^virtfleet-([0-9]+)-machine ]] && is_dead "${BASH_REMATCH[1]}" || continue
        leftover "control group $path" end_group "$path" || true
    done
}

# Prints "maj:min<TAB>source<TAB>mount point" of each mount, the last one first.
mounts() {
    awk '{ source = "-"
           for (i = 7; i < NF; i++) if ($i == "-") { source = $(i + 2); break }
           line[NR] = $3 "\t" source "\t" $5 }
         END { for (i = NR; i > 0; i--) print line[i] }' /proc/self/mountinfo
}

declare -A handled=() # mount points that were listed, or that stay
unmount() { # WHAT MOUNT-POINT
    [ -z "${handled[$2]:-}" ] || return "$((handled[$2] - 1))"
    [ "$remove" = yes ] || handled[$2]=1
    leftover "mount $2 of $1" limited umount -- "$2" || {
        handled[$2]=2
        return 1
    }
}

# The file behind a loop device; ends with " (deleted)" if it is deleted.
backing_file() { # NAME
    local file
    { read -r file <"/sys/block/$1/loop/backing_file"; } 2>/dev/null || return 1
    printf '%s\n' "$file"
}

# Whether all devices below a device are abandoned.
all_known() { # NAME
    local slave name
    for slave in "/sys/class/block/$1/slaves/"*; do
        name=${slave##*/}
        [ -z "${known[$name]:-}" ] || continue
        [ -e "$slave/partition" ] || return 1
        # The path of a partition contains its disk.
        name=$(readlink -f "$slave")
        name=${name%/*}
        [ -n "${known[${name##*/}]:-}" ] || return 1
    done
}

find_devices() {
    local path file name below more=yes
    for path in /sys/block/loop*/loop/backing_file; do
        { read -r file <"$path"; } 2>/dev/null || continue
        is_abandoned "$file" || continue
        name=${path#/sys/block/}
        known[${name%%/*}]=yes
    done
    # Devices on top of only abandoned devices are abandoned, too.
    while [ "$more" = yes ]; do
        more=no
        for below in "${!known[@]}"; do
            for path in "/sys/block/$below/holders/"* "/sys/block/$below/$below"p*/holders/*; do
                name=${path##*/}
                [ -z "${known[$name]:-}" ] && all_known "$name" || continue
                known[$name]=yes more=yes
            done
        done
    done
}

write_to() { # TEXT FILE
    printf '%s\n' "$1" >"$2"
}

# Detaches a loop device, and checks that it has not got another file meanwhile. The lock is that of
# tests/src/loops.rs: no test attaches a file at the same time.
detach() { # NAME FILE
    local i lock path="${TMPDIR:-/tmp}/virtfleet-loops.lock"
    command -v losetup >/dev/null || {
        echo 'losetup is not installed'
        return 1
    }
    if command -v flock >/dev/null; then
        [ -e "$path" ] || : >>"$path"
        exec {lock}<"$path"
        flock -w 5 "$lock" || {
            echo 'a test holds the lock of loop devices'
            return 1
        }
    fi
    [ "$(backing_file "$1")" = "$2" ] || return 0
    limited losetup --detach "/dev/$1" || return
    # A device that is still open is detached when it is closed.
    for ((i = 0; i < 10; i++)); do
        [ "$(backing_file "$1" || true)" = "$2" ] || return 0
        sleep 0.05
    done
    echo "it is in use$(users "$1")"
    return 1
}

# Prints processes that have a device mounted in a mount namespace of their own, or open.
users() { # NAME
    local number found
    read -r number <"/sys/class/block/$1/dev"
    found=$(grep -ls -e " $number " -e " /dev/$1 " /proc/[0-9]*/mountinfo | cut -d / -f 3 | tr '\n' ' ' || true)
    found+=$(find /proc/[0-9]*/fd -maxdepth 1 -lname "/dev/$1" 2>/dev/null | cut -d / -f 3 | tr '\n' ' ' || true)
    [ -z "$found" ] || printf ' by process %s' "${found% }"
}

# Closes all that uses a device. Fails if something stays.
release() { # NAME
    local name=$1 path number point source mapped='' status=0 swap kind
    [ -e "/sys/class/block/$name/dev" ] || return 0
    read -r number <"/sys/class/block/$name/dev"
    [ ! -e "/sys/class/block/$name/dm/name" ] || read -r mapped <"/sys/class/block/$name/dm/name"
    for path in "/sys/class/block/$name/$name"p[0-9]*; do
        release "${path##*/}" || status=1
    done
    # A path below a mount whose namespace has ended is relative to that mount: /loop7 for
    # /dev/loop7.
    while read -r swap kind _; do
        [ "$kind" = partition ] || continue
        case $swap in
        "/dev/$name" | "/$name" | "/dev/mapper/${mapped:-?}")
            leftover "swap /dev/$name" limited swapoff "/dev/$name" || status=1
            ;;
        esac
    done </proc/swaps
    # The number of a mounted btrfs is not that of its device.
    while IFS=$'\t' read -r path source point; do
        [ "$path" = "$number" ] || [ "$source" = "/dev/$name" ] || [ "$source" = "/dev/mapper/${mapped:-?}" ] || continue
        unmount "/dev/$name" "$(printf '%b' "$point")" || status=1
    done < <(mounts)
    for path in /sys/block/loop*/loop/backing_file; do
        { read -r source <"$path"; } 2>/dev/null || continue
        [ "$source" = "/dev/$name" ] || continue
        path=${path#/sys/block/}
        remove_loop "${path%%/*}" "$source" || status=1
    done
    for path in "/sys/class/block/$name/holders/"*; do
        remove_holder "${path##*/}" "$name" || status=1
    done
    if [ -e "/sys/class/block/$name/bcache/set" ]; then
        leftover "bcache set on /dev/$name" write_to 1 "/sys/class/block/$name/bcache/set/stop" || status=1
    fi
    return "$status"
}

remove_holder() { # NAME BELOW
    local name=$1 below=$2 mapped
    if [ -z "${known[$name]:-}" ]; then
        stays "device /dev/$name on /dev/$below" 'it also uses devices that are not ours'
        return
    fi
    [ -e "/sys/class/block/$name" ] || return 0
    release "$name" || return
    case $name in
    dm-*)
        read -r mapped <"/sys/class/block/$name/dm/name"
        # Without udev, dmsetup would wait for it.
        leftover "mapped device $mapped on /dev/$below" limited dmsetup --noudevsync remove -- "$mapped"
        ;;
    md*) leftover "RAID /dev/$name on /dev/$below" write_to clear "/sys/block/$name/md/array_state" ;;
    bcache*) leftover "bcache /dev/$name on /dev/$below" write_to 1 "/sys/block/$name/bcache/stop" ;;
    *) stays "device /dev/$name on /dev/$below" 'unknown kind of device' ;;
    esac
}

remove_loop() { # NAME FILE
    release "$1" || {
        stays "loop device /dev/$1" 'something that uses it stays'
        return
    }
    case $2 in
    *' (deleted)') leftover "loop device /dev/$1 (deleted file ${2% (deleted)})" detach "$1" "$2" ;;
    *) leftover "loop device /dev/$1 (file $2)" detach "$1" "$2" ;;
    esac
}

devices() {
    local name file
    for name in "${!known[@]}"; do
        file=$(backing_file "$name") && is_abandoned "$file" || continue
        remove_loop "$name" "$file" || true
    done
}

mounts_below() {
    local source point
    [ ${#folders[@]} -gt 0 ] || return 0
    while IFS=$'\t' read -r _ source point; do
        point=$(printf '%b' "$point")
        in_folder "$point" || continue
        unmount "$source" "$point" || true
    done < <(mounts)
}

remove_network() { # NAME
    local inode users
    inode=$(stat -L -c %i "/run/netns/$1" 2>/dev/null) || return 0
    users=$(find /proc/[0-9]*/ns/net -maxdepth 0 -lname "net:\[$inode\]" 2>/dev/null | cut -d / -f 3 | tr '\n' ' ' || true)
    if [ -n "$users" ]; then
        echo "process ${users% } runs in it"
        return 1
    fi
    if command -v ip >/dev/null && ip netns del "$1" 2>/dev/null; then
        return
    fi
    # The same without ip. A killed `ip netns add` leaves a file that is no mount.
    umount -- "/run/netns/$1" 2>/dev/null || true
    rm -f -- "/run/netns/$1"
}

network_namespaces() {
    local name
    for name in "${networks[@]}"; do
        leftover "network namespace $name" remove_network "$name" || true
    done
}

# A removal would follow a bind mount into the folder of others. One of another mount namespace is
# not visible here, and is not followed.
remove_folder() { # FOLDER
    local point pid
    while IFS=$'\t' read -r _ _ point; do
        case $(printf '%b' "$point") in
        "$1" | "$1/"*)
            echo "$point is mounted"
            return 1
            ;;
        esac
    done < <(mounts)
    pid=$(find /proc/[0-9]*/root -maxdepth 0 -lname "$1/*" 2>/dev/null | cut -d / -f 3 | tr '\n' ' ' || true)
    if [ -n "$pid" ]; then
        echo "it is the root of process ${pid% }"
        return 1
    fi
    # The watcher of the test may remove it at the same time.
    rm -rf --one-file-system -- "$1" || [ ! -e "$1" ]
}

remove_folders() {
    local folder
    for folder in "${folders[@]}"; do
        leftover "folder $folder" remove_folder "$folder" || true
    done
}

# Prints why a half-written entry of a cache must stay; nothing if it is a leftover.
why_in_use() { # ENTRY
    local pid
    if [[ $1 =~ \.([0-9]+)$ ]] && ! is_dead "${BASH_REMATCH[1]}"; then
        echo "process ${BASH_REMATCH[1]} makes it"
        return
    fi
    pid=$({ grep -lsF -e "$1" /proc/[0-9]*/cmdline || true; } | cut -d / -f 3 | tr '\n' ' ')
    pid+=$(find /proc/[0-9]*/cwd -maxdepth 0 '(' -lname "$1" -o -lname "$1/*" ')' 2>/dev/null | cut -d / -f 3 | tr '\n' ' ' || true)
    [ -z "$pid" ] || echo "process ${pid% } uses it"
}

# Half-written entries of a cache. A script holds a lock of its cache while it writes one: `.lock`,
# or `.NAME.lock` for entries NAME.PID. Without a lock, an entry is a leftover after three hours
# without a change at its top.
entries() { # CACHE
    local cache=$1 entry lock fd name locks reason held
    for entry in "$cache"/.new/* "$cache"/.new.* "$cache"/partial.* "$cache"/*/partial.* \
        "$cache"/*/*/partial.* "$cache"/*/.current.* "$cache"/*/golden/new; do
        held=() locks=("$cache/.lock")
        name=${entry##*/}
        case $entry in
        */.current.*)
            name=${entry%/*}
            locks+=("$cache/.${name##*/}.lock")
            ;;
        # A snapshot in the making, and the lock of tests/src/guest/scene.rs.
        */golden/new) locks=("${entry%/golden/new}/snapshots.lock") ;;
        *) locks+=("$cache/.${name%.*}.lock") ;;
        esac
        reason=
        for lock in "${locks[@]}"; do
            [ -e "$lock" ] || continue
            if ! { exec {fd}<"$lock"; } 2>/dev/null; then
                reason="$lock cannot be opened"
                break
            fi
            held+=("$fd")
            flock -n "$fd" 2>/dev/null || {
                reason="$lock is held"
                break
            }
        done
        if [ -z "$reason" ] && [ ${#held[@]} = 0 ] &&
            [ -n "$(find "$entry" -maxdepth 2 -newermt '3 hours ago' -print -quit 2>/dev/null)" ]; then
            reason='it has no lock, and is not three hours old'
        fi
        [ -n "$reason" ] || reason=$(why_in_use "$entry")
        # What a script is writing is no leftover.
        [ -n "$reason" ] || leftover "cache entry $entry" remove_entry "$entry" || true
        for fd in "${held[@]}"; do exec {fd}<&-; done
    done
}

remove_entry() { # PATH
    # Go makes some of its files read-only.
    [ -L "$1" ] || [ ! -d "$1" ] || chmod -R u+w -- "$1" || true
    rm -rf --one-file-system -- "$1"
}

caches() {
    local base=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}} cache
    declare -A done=()
    command -v flock >/dev/null || return 0
    for cache in "${VIRTFLEET_PARTS:-}" "${VIRTFLEET_GUESTS:-}" ${base:+"$base"/virtfleet/*}; do
        [ -d "$cache" ] && [ -z "${done[$cache]:-}" ] || continue
        done[$cache]=yes
        entries "$cache"
    done
}

# While it exists, no package starts a service on this machine.
policy() {
    local file=/usr/sbin/policy-rc.d line
    [ -f "$file" ] || return 0
    while read -r line; do
        [[ $line =~ ^'# virtfleet, process '([0-9]+)$ ]] && is_dead "${BASH_REMATCH[1]}" || continue
        leftover "$file of an installation" rm -f -- "$file" || true
        return 0
    done <"$file"
}

case "${1:-}" in
list) ;;
remove) remove=yes ;;
*)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
# Devices and processes come and go meanwhile: a step that fails does not end the script.
for step in find_folders find_networks find_devices processes groups_of_machines devices \
    mounts_below network_namespaces remove_folders caches policy; do
    "$step" || true
done
