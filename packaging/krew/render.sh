#!/usr/bin/env bash
# Writes the krew manifest of `kubectl virtfleet`, and the archive that it names, into a folder with
# bin/virtfleetctl (make virtfleetctl, or make dist):  render.sh FOLDER URL [ARCH]
#
# URL is the address of the folder in which the archive will be published; ARCH is amd64 or arm64, by
# default that of this machine. The same program gives the same archive.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?folder} url=${2:?address of the published archive} arch=${3:-}

case ${arch:-$(uname -m)} in
amd64 | x86_64) arch=amd64 ;;
arm64 | aarch64) arch=arm64 ;;
*)
    echo "krew: unknown architecture '${arch:-$(uname -m)}'; use amd64 or arm64" >&2
    exit 2
    ;;
esac
program=$out/bin/virtfleetctl
[ -x "$program" ] || {
    echo "krew: $program is missing; run make virtfleetctl" >&2
    exit 1
}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
install -m 755 "$program" "$work/kubectl-virtfleet"
install -m 644 LICENSE "$work/LICENSE"
archive=kubectl-virtfleet-$version-linux-$arch.tar.gz
tar -C "$work" --owner=0 --group=0 --numeric-owner --sort=name --mtime=@0 -cf - kubectl-virtfleet LICENSE |
    gzip -9n >"$out/$archive"
sum=$(sha256sum "$out/$archive" | cut -d' ' -f1)
sed -e "s|@VERSION@|$version|; s|@ARCH@|$arch|; s|@URL@|${url%/}|; s|@ARCHIVE@|$archive|; s|@SHA256@|$sum|" \
    packaging/krew/virtfleet.yaml.in >"$out/virtfleet.yaml"
echo "krew: $out/virtfleet.yaml"
