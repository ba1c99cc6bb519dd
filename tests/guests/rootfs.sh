#!/usr/bin/env bash
# Makes a guest's root filesystem from Debian's packages, as a tar (as root):
#
#   rootfs.sh SUITE OUT.tar
set -euo pipefail
cd "$(dirname "$0")"
. ../parts/debian.sh
suite=${1:?suite} out=${2:?tar}

packages='
systemd systemd-sysv systemd-resolved udev dbus kmod procps util-linux less
linux-image-cloud-amd64 initramfs-tools zstd cpio busybox-static
cloud-init python3-yaml qemu-guest-agent ca-certificates curl
e2fsprogs xfsprogs btrfs-progs dosfstools cryptsetup-bin dmsetup fdisk parted
iproute2 ethtool
'
# Packages for opening LUKS with a TPM. systemd loads the TPM libraries by name, so no package of
# systemd depends on them.
case $suite in
bookworm) packages+='libtss2-esys-3.0.2-0 libtss2-mu0 libtss2-rc0 libtss2-tcti-device0' ;;
*) packages+='systemd-cryptsetup libtss2-esys-3.0.2-0t64 libtss2-mu-4.0.1-0t64 libtss2-rc0t64 libtss2-tcti-device0t64' ;;
esac
archive=$(debian_mirror)
# Documentation and languages are a third of the size, and the tests do not use them. The initramfs
# of the package is not used.
mmdebstrap --quiet --variant=apt --mode=root --include="$(xargs <<<"$packages" | tr ' ' ,)" \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Apt::Key::gpgvcommand "/usr/bin/gpgv"' --aptopt='Acquire::Retries "3"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/lintian/*' \
    --essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" && printf "MODULES=list\nCOMPRESS=lz4\n" >"$1/etc/initramfs-tools/conf.d/small"' \
    "$suite" "$out" "deb [signed-by=$debian_keyring] $archive $suite main"
