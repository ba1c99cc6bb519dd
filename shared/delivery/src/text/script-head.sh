#!/bin/sh
# Writes the delivery's files, and fetches, verifies and installs the agent: deliver [--boot]
#
# Made of those parts script-*.sh that the input needs, and of the input. Comments and indentation
# are left out, because user-data must be small. Runs at every boot: from the boot command (--boot)
# and from virtfleet-delivery.service. May be killed at any time: a file that differs is written
# under another name, synced and renamed. Changes nothing if all is in place. Exit code 69: this
# system can never have the agent, so no further run is useful. POSIX sh; paths are relative to the
# root, and tests set VIRTFLEET_ROOT to another one.
umask 022
cd "${VIRTFLEET_ROOT:-/}" || exit
state=var/lib/virtfleet/delivery
changed=

say() {
    echo "virtfleet-delivery: $*" >&2
}
# Says it on the console too: someone must act.
alert() {
    say "$*"
    { say "$*" 2>>dev/console; } 2>/dev/null
}
digest() {
    sha256sum <"$1" | cut -c -64
}
# True for two files of the same type, mode and content.
same() {
    [ "$(stat -c %f "$1"; digest "$1")" = "$(stat -c %f "$2"; digest "$2")" ]
} 2>/dev/null
# put MODE PATH [DECODER]: writes standard input to PATH, unless PATH has that mode and content.
put() {
    file=./$2
    new=${file%/*}/.virtfleet-new.${file##*/}
    mkdir -p "${file%/*}" && rm -f "$new" && (umask 077 && ${3:-cat} >"$new") && chmod "$1" "$new" &&
        if same "$file" "$new"; then
            rm "$new"
        else
            sync "$new" && mv -f "$new" "$file" && sync "${file%/*}" && changed=1
        fi || {
        alert "cannot write /$2: is the disk full or read-only?"
        # Fails.
        ! rm -f "$new"
    }
}
# Also syncs what cloud-init wrote in this boot. The folders may be on other filesystems than /.
flush() {
    sync -f . etc var/lib opt || sync
} 2>/dev/null

trap 'alert "stopped before the agent was installed; the next run continues"; exit 1' TERM INT HUP
# A run that waits for the lock is ended by the time limit of its caller.
exec 9>run/virtfleet-delivery.lock && flock 9
