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

into() { # MODE TARGET SOURCE…
    local mode=$1 target=$work/staged/$2
    shift 2
    mkdir -p "$target"
    install -m "$mode" "$@" "$target/"
}
install -D -m 755 "$agent" "$work/staged/usr/bin/virtfleet-agent"
into 644 etc/virtfleet packaging/agent.yaml
into 644 usr/lib/systemd/system packaging/systemd/virtfleet-*
for unit in kubelet containerd; do
    into 644 "usr/lib/systemd/system/$unit.service.d" "packaging/systemd/drop-ins/$unit.service.d/10-virtfleet.conf"
done
into 644 usr/lib/sysusers.d packaging/sysusers.d/virtfleet.conf
into 644 usr/lib/tmpfiles.d packaging/tmpfiles.d/virtfleet.conf
into 644 usr/lib/udev/rules.d packaging/udev/90-virtfleet.rules
into 644 usr/share/man/man1 "$manual"/man/man1/virtfleet-agent*.1
into 644 usr/share/bash-completion/completions "$manual/completions/virtfleet-agent.bash"
mv "$work/staged/usr/share/bash-completion/completions/virtfleet-agent"{.bash,}
into 644 usr/share/zsh/vendor-completions "$manual/completions/_virtfleet-agent"
into 644 usr/share/fish/vendor_completions.d "$manual/completions/virtfleet-agent.fish"
into 644 usr/share/doc/virtfleet-agent README.md
install -m 644 CHANGELOG.md "$work/staged/usr/share/doc/virtfleet-agent/NEWS.md"

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
