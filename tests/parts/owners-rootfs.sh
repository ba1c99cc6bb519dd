#!/usr/bin/env bash
# Makes a root filesystem with every owner of /etc/resolv.conf that Debian has, as a tar (as root):
#
#   owners-rootfs.sh SUITE OUT.tar
#
# No owner is enabled; the scenario that boots the root chooses one. resolvconf cannot be installed
# together with systemd-resolved, so its package is in /opt/packages.
set -euo pipefail
cd "$(dirname "$0")"
. ./debian.sh
suite=${1:?suite} out=${2:?tar}

packages='
systemd systemd-sysv systemd-resolved udev dbus procps util-linux iproute2 libnss-myhostname
network-manager netplan.io ifupdown isc-dhcp-client dhcpcd-base
'
archive=$(debian_mirror)
# Documentation, languages and data of hardware that no container has are half of the size.
mmdebstrap --quiet --variant=apt --mode=root --include="$(xargs <<<"$packages" | tr ' ' ,)" \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Apt::Key::gpgvcommand "/usr/bin/gpgv"' --aptopt='Acquire::Retries "3"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/lintian/*' --dpkgopt='path-exclude=/usr/lib/udev/hwdb.d/*' \
    --customize-hook='mkdir -m 755 "$1/opt/packages" && cd "$1/opt/packages" && APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get -qq download resolvconf' \
    --customize-hook='./owners-rest.sh "$1"' \
    "$suite" "$out" "deb [signed-by=$debian_keyring] $archive $suite main"
