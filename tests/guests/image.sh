#!/usr/bin/env bash
# A guest's kernel, initrd and root filesystem, from the cache or newly made:
#
#   image.sh SUITE         print its folder; make it if it is missing (as root; network)
#   image.sh --path SUITE  print its folder; fail if it is missing; no network
#
# SUITE is bookworm or trixie. A folder has vmlinuz, initrd.cpio, root.img (ext4, raw and sparse,
# never written to) and facts. Its name has a hash of all scripts that make it, so a change makes a
# new folder.
#
#   VIRTFLEET_GUESTS  the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet/guests
set -euo pipefail
cd "$(dirname "$0")"

cache="${VIRTFLEET_GUESTS:-${XDG_CACHE_HOME:-${HOME:?neither VIRTFLEET_GUESTS, XDG_CACHE_HOME nor HOME is set}/.cache}/virtfleet/guests}"
say() { printf 'guests: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

only_path=no
if [ "${1:-}" = --path ]; then
    only_path=yes
    shift
fi
suite=${1:-}
case $suite in
bookworm | trixie) ;;
*) die "unknown suite '$suite'; use bookworm or trixie" ;;
esac

# Prints the hash of a list of files. It is the same on every machine.
hash_of() { sha256sum "$@" | sha256sum | cut -c1-12; }
root_key=$(hash_of rootfs.sh)
mapfile -t sources < <(find . -type f ! -name host.sh | LC_ALL=C sort)
key=$(hash_of "${sources[@]}")
folder="$cache/$suite-$key"
if [ -e "$folder/facts" ]; then
    printf '%s\n' "$folder"
    exit 0
fi
[ "$only_path" = no ] || die "the cache has no image of $suite for this checkout; run tests/guests/image.sh $suite"
[ "$(id -u)" = 0 ] || die "only root can make an image of $suite: files in it belong to many users"

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock -n 9 || {
    say "waiting for another process that makes images or roots"
    flock -w 1200 9 || die "another process has held $cache/.lock for 20 minutes"
}
if [ -e "$folder/facts" ]; then
    printf '%s\n' "$folder"
    exit 0
fi
work=$(mktemp -d "$cache/.new.XXXXXX")
trap 'rm -rf "$work"' EXIT

root="$cache/root-$suite-$root_key.tar.zst"
if [ ! -e "$root" ]; then
    say "$suite: installing packages into a new root filesystem (a minute or two)"
    ./rootfs.sh "$suite" "$work/root.tar" >&2
    zstd -q -3 -T0 "$work/root.tar" -o "$work/root.tar.zst"
    rm "$work/root.tar"
    mv "$work/root.tar.zst" "$root"
fi

say "$suite: making kernel, initrd and root image"
tree="$work/tree"
mkdir "$tree" "$work/out"
# tar ends at the archive's end mark. The rest is read too: otherwise SIGPIPE ends zstd now and
# then, and `pipefail` this script, without a message.
zstd -dcq "$root" | { tar -C "$tree" --numeric-owner --xattrs --xattrs-include='*' -xpf - && cat >/dev/null; }
version=$(basename "$(find "$tree/usr/lib/modules" -mindepth 1 -maxdepth 1 | sort -V | tail -n1)")
cp "$tree/boot/vmlinuz-$version" "$work/out/vmlinuz"
initrd/make.sh "$tree" "$version" "$work/out/initrd.cpio"
./customise.sh "$tree"
truncate -s 2G "$work/out/root.img"
mke2fs -q -F -t ext4 -L root -m 0 -E lazy_itable_init=0,lazy_journal_init=0 -d "$tree" "$work/out/root.img"
{
    printf 'SUITE=%s\nKEY=%s\nKERNEL=%s\n' "$suite" "$key" "$version"
    printf 'CLOUD_INIT=%s\n' "$(sed -n '/^Package: cloud-init$/,/^$/s/^Version: //p' "$tree/var/lib/dpkg/status")"
} >"$work/out/facts"
# A rename is atomic: a reader sees the complete image or nothing.
mv "$work/out" "$folder"
# Removes images of earlier versions of the scripts, with their snapshots, after a month.
find "$cache" -mindepth 1 -maxdepth 1 -name "*$suite-*" -mtime +30 ! -path "$folder" ! -path "$root" -exec rm -rf {} +
printf '%s\n' "$folder"
