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
    sha256sum <$1 | cut -c -64
}
# Prints the type and mode of a file, and the digest of its content.
state_of() {
    stat -c %f $1
    [ -f $1 ] && digest $1
} 2>/dev/null
# put MODE PATH [DECODER]: writes standard input to PATH, unless PATH has that mode and content.
# Paths have a slash, no blanks and no wildcards (spec.rs), so they are not quoted.
put() {
    new=${2%/*}/.virtfleet-new.${2##*/}
    # Compared outside of the folder, because programs may watch it.
    rm -f run/virtfleet-new && (umask 077 && ${3:-cat} >run/virtfleet-new) && chmod $1 run/virtfleet-new && {
        [ "$(state_of $2)" = "$(state_of run/virtfleet-new)" ] ||
            { mkdir -p ${2%/*} && rm -f $new && cp -p run/virtfleet-new $new && sync $new && mv -f $new $2 &&
                sync ${2%/*} && changed=1; }
    } || {
        alert "cannot write /$2: is the disk full or read-only?"
        rm -f $new
        false
    }
}
# Also syncs what cloud-init wrote in this boot. The folders may be on other filesystems than /.
flush() {
    sync -f . etc var/lib opt || sync
} 2>/dev/null

trap 'alert "stopped; the next run continues"; exit 1' TERM INT HUP
# A run that waits for the lock is ended by the time limit of its caller.
mkdir -p $state && exec 9<$state && flock 9
