#!/usr/bin/env bash
# Customises a Debian root filesystem for a guest:  customise.sh TREE
#
# Removes or masks what costs time on an emulated processor. systemd, udev, networkd, resolved and
# cloud-init are not changed.
set -euo pipefail
cd "$(dirname "$0")"
tree=${1:?tree}

rm -f "$tree"/boot/initrd* "$tree"/boot/vmlinuz* "$tree/var/lib/dbus/machine-id"
# Empty: the first boot sets it, from the SMBIOS UUID.
: >"$tree/etc/machine-id"
echo 'LABEL=root / ext4 rw,relatime 0 1' >"$tree/etc/fstab"
echo localhost >"$tree/etc/hostname"
# A guest can be reached only through the console and the guest agent, so root needs no password.
sed -i 's/^root:[^:]*:/root::/' "$tree/etc/shadow"
ln -sf ../run/systemd/resolve/stub-resolv.conf "$tree/etc/resolv.conf"
cp -r overlay/. "$tree/"
chmod 755 "$tree/usr/local/sbin/test-hold"

quiet() { systemctl --root="$tree" "$@" 2>/dev/null; }
quiet enable systemd-networkd systemd-resolved qemu-guest-agent test-hold || true
quiet set-default multi-user.target
# No unit that the tests inspect waits for one of these.
quiet mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
    dpkg-db-backup.timer man-db.timer systemd-pstore.service \
    getty@tty1.service serial-getty@ttyS0.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount \
    dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
    sys-fs-fuse-connections.mount modprobe@drm.service modprobe@configfs.service modprobe@fuse.service \
    modprobe@efi_pstore.service systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-rfkill.socket \
    cloud-init-hotplugd.socket systemd-boot-system-token.service systemd-tpm2-setup.service \
    systemd-tpm2-setup-early.service systemd-pcrphase.service ldconfig.service systemd-hwdb-update.service \
    systemd-sysext.socket
# Each stage of cloud-init imports the schema checker, which takes seconds. The template modules are
# optional only up to 22.4.
packages="$tree/usr/lib/python3/dist-packages"
rm -rf "$packages"/{jsonschema,jsonschema_specifications,referencing,rpds}
grep -qE '^from jinja2' "$packages/cloudinit/templater.py" || rm -rf "$packages/jinja2"
# Newer than /usr; otherwise the first boot updates caches.
touch -d "@$(($(date +%s) + 5))" "$tree/etc/.updated" "$tree/var/.updated"
