#!/usr/bin/env bash
# Builds the agent's Debian package:  build.sh FOLDER STATIC-AGENT [MANUAL]
#
# MANUAL is a directory with man pages and completions (virtfleet-manual); without it, they are
# generated. The same commit and binary give the same package, byte by byte.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?folder} agent=${2:?path of the static agent} manual=${3:-}

for tool in dh dpkg-deb; do
    command -v "$tool" >/dev/null || {
        echo "deb: $tool is missing; as root: tests/parts/setup.sh" >&2
        exit 1
    }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$manual" ]; then
    manual=$work/manual
    cargo run --quiet -p virtfleet-tests --bin virtfleet-manual -- "$manual"
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export SOURCE_DATE_EPOCH
umask 022

packaging/stage.sh "$work/staged" "$agent" "$manual"

cp -r packaging/deb/debian "$work/debian"
cat >"$work/debian/changelog" <<END
virtfleet-agent ($version) unstable; urgency=medium

  * Version $version: /usr/share/doc/virtfleet-agent/NEWS.md says what changed.

 -- $(sed -n 's/^Maintainer: //p' packaging/deb/debian/control)  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END
(cd "$work" && LC_ALL=C debian/rules binary >"$work/log" 2>&1) || {
    cat "$work/log" >&2
    exit 1
}
mkdir -p "$out"
install -m 644 "$work"/deb/*.deb "$out/"
echo "deb: $out/$(basename "$work"/deb/*.deb)"
