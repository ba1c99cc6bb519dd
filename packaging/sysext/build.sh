#!/usr/bin/env bash
# Builds the agent's systemd-sysext image, for systems whose /usr is read-only:  build.sh FOLDER STATIC-AGENT [URL]
#
# FOLDER becomes an update channel: serve it at URL. It gets the image, its SHA256SUMS, and the
# description of the channel for systemd-sysupdate. Images of other versions in it stay. The same
# commit and binary give the same image, byte by byte. Needs no root.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?folder} agent=${2:?path of the static agent} url=${3:-https://mirror.example/virtfleet}

die() {
    echo "sysext: $*" >&2
    exit 1
}
command -v mksquashfs >/dev/null || die "mksquashfs is missing; as root: apt-get install squashfs-tools"
# systemd's names of architectures.
case $(uname -m) in
x86_64) arch=x86-64 ;;
aarch64) arch=arm64 ;;
*) die "no image for $(uname -m)" ;;
esac
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export SOURCE_DATE_EPOCH
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
into() { # TARGET SOURCE…
    local target=$tree/usr/lib/$1
    shift
    mkdir -p "$target"
    install -m 644 "$@" "$target/"
}
install -D -m 755 "$agent" "$tree/usr/bin/virtfleet-agent"
into systemd/system packaging/systemd/virtfleet-* packaging/sysext/virtfleet-extension.service
for unit in kubelet containerd; do
    into "systemd/system/$unit.service.d" "packaging/systemd/drop-ins/$unit.service.d/10-virtfleet.conf"
done
into systemd/system/multi-user.target.d packaging/sysext/10-virtfleet.conf
into sysusers.d packaging/sysusers.d/virtfleet.conf
into tmpfiles.d packaging/tmpfiles.d/virtfleet.conf
into udev/rules.d packaging/udev/90-virtfleet.rules
# The name after the dot is that of the image where it is used: virtfleet-agent.raw. The agent is
# static, so the image fits each system.
mkdir "$tree/usr/lib/extension-release.d"
printf 'ID=_any\nARCHITECTURE=%s\n' "$arch" >"$tree/usr/lib/extension-release.d/extension-release.virtfleet-agent"
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

mkdir -p "$out"
image=virtfleet-agent-$version-$arch.raw
mksquashfs "$tree" "$work/image" -all-root -noappend -no-xattrs -no-progress -comp zstd >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
}
install -m 644 "$work/image" "$out/$image"
sed "s|@URL@|$url|; s|@ARCH@|$arch|g" packaging/sysext/sysupdate.conf >"$out/virtfleet-agent.conf"
(cd "$out" && sha256sum virtfleet-agent-*.raw >SHA256SUMS)
echo "sysext: $out/$image"
