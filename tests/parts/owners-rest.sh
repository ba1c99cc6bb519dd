#!/usr/bin/env bash
# Disables the services of a root with all owners of /etc/resolv.conf: the owners, and services that
# are of no use in a container.
#
#   owners-rest.sh TREE
set -euo pipefail
tree=${1:?tree}

quiet() { systemctl --root="$tree" "$@" 2>/dev/null; }
quiet disable systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service systemd-resolved.service NetworkManager.service \
    NetworkManager-wait-online.service NetworkManager-dispatcher.service networking.service dhcpcd.service || true
quiet set-default multi-user.target
quiet mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer dpkg-db-backup.timer \
    getty@tty1.service console-getty.service systemd-pstore.service systemd-update-utmp.service systemd-update-utmp-runlevel.service \
    systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udev-trigger.service ldconfig.service \
    systemd-hwdb-update.service wpa_supplicant.service ModemManager.service
# The link of systemd-resolved's package. A scenario without systemd-resolved replaces it.
ln -sfn ../run/systemd/resolve/stub-resolv.conf "$tree/etc/resolv.conf"
: >"$tree/etc/machine-id"
echo localhost >"$tree/etc/hostname"
: >"$tree/etc/fstab"
rm -rf "$tree"/var/cache/apt/*.bin "$tree"/var/lib/apt/lists/* "$tree"/usr/lib/udev/hwdb.bin
# Newer than /usr; otherwise the first boot updates caches.
touch -d "@$(($(date +%s) + 5))" "$tree/etc/.updated" "$tree/var/.updated"
