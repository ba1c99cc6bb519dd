# Runs at every boot before all other user-data, and may be killed at any time: a file that differs is written under
# another name, synced and renamed. Never fails cloud-init. POSIX sh.
(
umask 022
root=${VIRTFLEET_ROOT:-}
changed='' failed=''
exec </dev/null

log() {
    echo "virtfleet-boot: $*" >&2
    { echo "virtfleet-boot: $*" >>"$root/dev/console"; } 2>/dev/null || :
}

# put MODE PATH [base64]: writes standard input to PATH, unless PATH has that content already.
put() {
    file=$root$2
    folder=${file%/*}
    new=$root/run/virtfleet-boot.new
    staged=$folder/.virtfleet-new.${file##*/}
    (umask 077 && rm -f "$new" && if [ -n "${3:-}" ]; then base64 -d; else cat; fi >"$new") || {
        log "cannot write $new; $file stays unchanged until the next boot"
        failed=1
        return 0
    }
    if [ -f "$file" ] && [ ! -L "$file" ] && [ "$(sha256sum <"$file")" = "$(sha256sum <"$new")" ]; then
        [ "0$(stat -c %a "$file")" = "$1" ] || chmod "$1" "$file"
    elif mkdir -p "$folder" && (umask 077 && cat "$new" >"$staged") && chmod "$1" "$staged" && sync "$staged" &&
        mv -f "$staged" "$file" && sync "$folder"; then
        changed=1
    else
        log "cannot replace $file: is the disk full or read-only? The next boot tries again"
        rm -f "$staged"
        failed=1
    fi
    rm -f "$new"
}

# symlink TARGET PATH
symlink() {
    link=$root$2
    [ "$(readlink "$link" 2>/dev/null)" = "$1" ] && return 0
    if mkdir -p "${link%/*}" && ln -sfn "$1" "$link" && sync "${link%/*}"; then
        changed=1
    else
        log "cannot create the link $link; the next boot tries again"
        failed=1
    fi
}

# Also syncs what cloud-init wrote in this boot. The folders may be on other filesystems than /.
sync_all() {
    for folder in / /etc /var/lib /opt; do
        [ ! -d "$root$folder" ] || sync -f "$root$folder" || sync
    done
}

mkdir -p "$root/run"
if (: >"$root/run/virtfleet-boot.lock") && exec 9>"$root/run/virtfleet-boot.lock"; then
    flock -w 60 9 || log '/run/virtfleet-boot.lock was locked for a minute; continuing without it'
fi
