# Runs at every boot, before anything else of the user's, and may be killed at any moment: each file is compared with what it
# should be, written beside it, synced and renamed. It never fails cloud-init. POSIX sh.
(
umask 022
root=${VIRTFLEET_ROOT:-}
changed='' failed=''
exec </dev/null

say() {
    echo "virtfleet-boot: $*" >&2
    { echo "virtfleet-boot: $*" >>"$root/dev/console"; } 2>/dev/null || :
}

# put MODE PATH [base64]: standard input, decoded if need be, becomes that file, unless it is the file already.
put() {
    file=$root$2
    folder=${file%/*}
    new=$root/run/virtfleet-boot.new
    fresh=$folder/.virtfleet-new.${file##*/}
    (umask 077 && rm -f "$new" && if [ -n "${3:-}" ]; then base64 -d; else cat; fi >"$new") || {
        say "cannot write $new; $file is left as it is until the next boot"
        failed=1
        return 0
    }
    if [ -f "$file" ] && [ ! -L "$file" ] && [ "$(sha256sum <"$file")" = "$(sha256sum <"$new")" ]; then
        [ "0$(stat -c %a "$file")" = "$1" ] || chmod "$1" "$file"
    elif mkdir -p "$folder" && (umask 077 && cat "$new" >"$fresh") && chmod "$1" "$fresh" && sync "$fresh" &&
        mv -f "$fresh" "$file" && sync "$folder"; then
        changed=1
    else
        say "cannot replace $file: is the disk full or read-only? It is tried again at the next boot"
        rm -f "$fresh"
        failed=1
    fi
    rm -f "$new"
}

# point TARGET PATH: a symbolic link.
point() {
    link=$root$2
    [ "$(readlink "$link" 2>/dev/null)" = "$1" ] && return 0
    if mkdir -p "${link%/*}" && ln -sfn "$1" "$link" && sync "${link%/*}"; then
        changed=1
    else
        say "cannot make the link $link; it is tried again at the next boot"
        failed=1
    fi
}

# What cloud-init wrote in this boot and did not sync becomes durable, too. Other filesystems than the root's are named.
settle() {
    for folder in / /etc /var/lib /opt; do
        [ ! -d "$root$folder" ] || sync -f "$root$folder" || sync
    done
}

mkdir -p "$root/run"
if (: >"$root/run/virtfleet-boot.lock") && exec 9>"$root/run/virtfleet-boot.lock"; then
    flock -w 60 9 || say 'another run holds /run/virtfleet-boot.lock for a minute; going on without it'
fi
