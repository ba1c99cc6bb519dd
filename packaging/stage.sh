#!/usr/bin/env bash
# Writes the tree of the agent's packages:  stage.sh TREE STATIC-AGENT MANUAL
#
# MANUAL is a directory with man pages and completions, as virtfleet-manual writes it. The tree has
# the paths of Debian and of distributions with RPM, except for zsh's completions.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=${1:?tree} agent=${2:?path of the static agent} manual=${3:?directory with man pages and completions}
umask 022

into() { # MODE TARGET SOURCE…
    local mode=$1 target=$tree/$2
    shift 2
    mkdir -p "$target"
    install -m "$mode" "$@" "$target/"
}
install -D -m 755 "$agent" "$tree/usr/bin/virtfleet-agent"
into 644 etc/virtfleet packaging/agent.yaml
mkdir -p "$tree/etc/virtfleet/agent.d"
into 644 usr/lib/systemd/system packaging/systemd/virtfleet-*
for unit in kubelet containerd; do
    into 644 "usr/lib/systemd/system/$unit.service.d" "packaging/systemd/drop-ins/$unit.service.d/10-virtfleet.conf"
done
into 644 usr/lib/sysusers.d packaging/sysusers.d/virtfleet.conf
into 644 usr/lib/tmpfiles.d packaging/tmpfiles.d/virtfleet.conf
into 644 usr/lib/udev/rules.d packaging/udev/90-virtfleet.rules
into 644 usr/share/man/man1 "$manual"/man/man1/virtfleet-agent*.1
into 644 usr/share/bash-completion/completions "$manual/completions/virtfleet-agent.bash"
mv "$tree/usr/share/bash-completion/completions/virtfleet-agent"{.bash,}
into 644 usr/share/zsh/vendor-completions "$manual/completions/_virtfleet-agent"
into 644 usr/share/fish/vendor_completions.d "$manual/completions/virtfleet-agent.fish"
into 644 usr/share/doc/virtfleet-agent README.md
install -m 644 CHANGELOG.md "$tree/usr/share/doc/virtfleet-agent/NEWS.md"
