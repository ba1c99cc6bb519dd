#!/usr/bin/env bash
# The smallest initrd that reaches a virtio root: busybox and a few modules.  make.sh TREE KERNEL-VERSION OUT.cpio
#
# The guest's other virtio modules ride along: udev need not load them, which saves a second under emulation.
set -euo pipefail
here=$(dirname "$0")
tree=${1:?tree} version=${2:?kernel version} out=${3:?out}
wanted='virtio_pci virtio_blk virtio_net virtio_scsi sd_mod virtio_console virtio_balloon virtio-rng'

modules="$tree/usr/lib/modules/$version"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{bin,dev,proc,sys,modules,root}
cp "$tree/bin/busybox" "$work/bin/busybox"
: >"$work/modules/order"

# A module and, before it, what it needs. One that is built in has no file.
add() { # NAME
    local file dependency name
    file=$(sed -n "s|^\([^:]*/$1\.ko\(\.[a-z]*\)\?\):.*|\1|p" "$modules/modules.dep")
    [ -n "$file" ] || return 0
    # modules.dep lists the nearest first.
    for dependency in $(sed -n "s|^$file: *||p" "$modules/modules.dep" | tr ' ' '\n' | tac) "$file"; do
        name=$(basename "$dependency")
        name=${name%.xz}
        ! grep -qx "$name" "$work/modules/order" || continue
        case $dependency in
        *.xz) xz -dc "$modules/$dependency" >"$work/modules/$name" ;;
        *) cp "$modules/$dependency" "$work/modules/$name" ;;
        esac
        echo "$name" >>"$work/modules/order"
    done
}
for module in $wanted; do add "$module"; done
install -m 755 "$here/init" "$work/init"
(cd "$work" && find . | LC_ALL=C sort | cpio -o -H newc --quiet -R 0:0) >"$out"
