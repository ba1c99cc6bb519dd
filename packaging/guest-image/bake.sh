#!/usr/bin/env bash
# Puts the agent into a disk image of a Linux system, as root:  bake.sh IMAGE AGENT OUT [SETTINGS]
#
# IMAGE     a cloud image, qcow2 or raw, with one Linux system in a partition or on the whole disk; it
#           is not changed
# AGENT     the static agent (make static), for this machine's architecture
# OUT       the new image, compressed qcow2
# SETTINGS  an optional AgentConfig, which becomes /etc/virtfleet/agent.yaml
#
# The agent's own `install --root` writes the files; nothing of the image is run. At its first boot a VM
# starts the units, and cloud-init or Ignition brings what differs by VM (docs/delivery.md).
set -euo pipefail

say() { printf 'bake: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

[ $# -ge 3 ] && [ $# -le 4 ] || die "usage: bake.sh IMAGE AGENT OUT [SETTINGS]"
image=$1 agent=$2 out=$3 settings=${4:-}
[ "$(id -u)" = 0 ] || die "only root can mount an image; run it with sudo"
for tool in qemu-img losetup partx blkid mount e2fsck; do
    command -v "$tool" >/dev/null || die "$tool is missing; on Debian: apt-get install qemu-utils util-linux e2fsprogs"
done
[ -f "$image" ] || die "IMAGE is '$image': no such file"
[ ! -d "$out" ] || die "OUT is '$out', which is a folder; name the file of the new image"
[ -x "$agent" ] || die "$agent: no program; make static builds target/$(uname -m)-unknown-linux-gnu/release/virtfleet-agent"
[ ! -e "$out" ] || die "$out exists; remove it, or choose another name"
# With a folder in its name, or the shell would look for it in PATH.
agent=$(realpath "$agent")
[ -z "$settings" ] || "$agent" --config "$settings" check-config >/dev/null || die "$settings: the agent refuses these settings"

# Beside the result, which is renamed. Absolute, as useradd needs it.
work=$(mktemp -d "$(realpath "$(dirname "$out")")/.bake.XXXXXX")
loop='' mounted=''
cleanup() {
    [ -z "$mounted" ] || umount "$work/root" || true
    [ -z "$loop" ] || losetup --detach "$loop" || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "unpacking $image"
format=$(qemu-img info --output=json "$image" | sed -n 's/^    "format": "\(.*\)",\{0,1\}$/\1/p')
qemu-img convert -f "$format" -O raw "$image" "$work/disk.raw"

# Partitions of the file, as start and length in bytes; without a partition table, the whole disk. By
# offset, so that no device nodes of partitions are needed, which containers do not have.
partitions=$(partx --noheadings --bytes --raw --output START,SIZE "$work/disk.raw" 2>/dev/null |
    awk '{ print $1 * 512, $2 }') || true
[ -n "$partitions" ] || partitions="0 $(stat -c %s "$work/disk.raw")"

attach() { # START SIZE
    loop=$(losetup --find --show --offset "$1" --sizelimit "$2" "$work/disk.raw")
}
detach() {
    losetup --detach "$loop"
    loop=
}

# The one filesystem with /etc/os-release: that of the system. Others are /boot, EFI, data.
mkdir "$work/root"
roots=() found=()
while read -r start size; do
    attach "$start" "$size"
    kind=$(blkid --probe --output value --match-tag TYPE "$loop" 2>/dev/null) || true
    found+=("${kind:-no filesystem} at byte $start")
    case $kind in
    ext4 | xfs | btrfs)
        if mount -o ro "$loop" "$work/root"; then
            mounted=yes
            # In an image a link may lead out of it: that it exists is enough.
            if [ -e "$work/root/etc/os-release" ] || [ -L "$work/root/etc/os-release" ]; then
                roots+=("$start $size $kind")
            fi
            umount "$work/root"
            mounted=
        fi
        ;;
    esac
    detach
done <<<"$partitions"
case ${#roots[@]} in
1) ;;
0) die "$image: no ext4, xfs or btrfs filesystem has /etc/os-release; found: $(printf '%s; ' "${found[@]}")" ;;
*) die "$image: more than one filesystem has /etc/os-release: $(printf '%s; ' "${roots[@]}")" ;;
esac
read -r start size kind <<<"${roots[0]}"
attach "$start" "$size"
if [ "$kind" = ext4 ]; then
    e2fsck -p "$loop" >&2 || [ $? -le 1 ] || die "$image: the root filesystem needs a repair; run e2fsck on a copy"
fi

say "installing $("$agent" --version)"
mount "$loop" "$work/root"
mounted=yes
"$agent" install --root "$work/root" >&2
if [ -n "$settings" ]; then
    install -D -m 644 "$settings" "$work/root/etc/virtfleet/agent.yaml"
fi
# Blocks that became free would be stored.
fstrim "$work/root" 2>/dev/null || true
umount "$work/root"
mounted=
detach

say "packing $out"
qemu-img convert -f raw -O qcow2 -c "$work/disk.raw" "$work/disk.qcow2"
mv "$work/disk.qcow2" "$out"
say "$out: $(($(stat -c %s "$out") >> 20)) MiB"
