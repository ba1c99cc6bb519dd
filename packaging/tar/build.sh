#!/usr/bin/env bash
# Builds an archive of the agent's files, for images that no package manager makes:
#   build.sh FOLDER STATIC-AGENT [MANUAL]
#
# MANUAL is a directory with man pages and completions (virtfleet-manual); without it, they are
# generated. The same commit and binary give the same archive, byte by byte.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?folder} agent=${2:?path of the static agent} manual=${3:-}
umask 022

command -v zstd >/dev/null || {
    echo "tar: zstd is missing; as root: apt-get install zstd" >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$manual" ]; then
    manual=$work/manual
    cargo run --quiet -p virtfleet-tests --bin virtfleet-manual -- "$manual"
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}

packaging/stage.sh "$work/tree" "$agent" "$manual"
# What enables the units: systemctl preset, or the first boot of an image without a machine id.
mkdir -p "$work/tree/usr/lib/systemd/system-preset"
install -m 644 packaging/rpm/50-virtfleet.preset "$work/tree/usr/lib/systemd/system-preset/"
mkdir -p "$out"
# Of folders only the agent's own: the others are the image's.
(cd "$work/tree" && find . \( -type f -o -path './etc/virtfleet*' \) -printf '%P\0' | LC_ALL=C sort -z |
    tar --null --no-recursion --files-from=- --format=gnu --mtime="@$epoch" --owner=root:0 --group=root:0 -cf -) |
    zstd -q -19 -f -o "$out/virtfleet-agent-$version-$(uname -m).tar.zst"
echo "tar: $out/virtfleet-agent-$version-$(uname -m).tar.zst"
