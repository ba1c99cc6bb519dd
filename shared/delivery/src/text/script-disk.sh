unmount() {
    [ ! -d run/virtfleet-disk ] || umount run/virtfleet-disk || umount -l run/virtfleet-disk
    rmdir run/virtfleet-disk
} 2>/dev/null
trap unmount EXIT
# disk LABEL PATH: copies to $new.
disk() {
    n=0
    until [ -e "dev/disk/by-label/$1" ] || [ $((n += 1)) = 10 ]; do
        sleep 1
    done
    mkdir -p run/virtfleet-disk &&
        mount -o ro,nosuid,nodev,noexec "dev/disk/by-label/$1" run/virtfleet-disk &&
        cat "run/virtfleet-disk/$2" >$new
    set -- $?
    unmount
    return $1
}
