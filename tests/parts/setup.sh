#!/usr/bin/env bash
# Everything that `make test` needs beside a Rust toolchain. Run twice, it does nothing the second time.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/parts/debian.sh

say() { printf 'setup: %s\n' "$*"; }

# Debian package → a file or command that shows that it is there.
packages='
gcc                    command:cc
libc6-dev              file:/usr/include/stdio.h
git                    command:git
file                   command:file
ca-certificates        file:/etc/ssl/certs/ca-certificates.crt
curl                   command:curl
iproute2               command:ip
dpkg-dev               command:dpkg-source
debhelper              command:dh
lintian                command:lintian
systemd                command:systemd-analyze
systemd-container      command:systemd-nspawn
udev                   command:udevadm
e2fsprogs              command:mkfs.ext4
xfsprogs               command:mkfs.xfs
btrfs-progs            command:mkfs.btrfs
fdisk                  command:sfdisk
acl                    command:setfacl
attr                   command:setfattr
debian-archive-keyring file:/usr/share/keyrings/debian-archive-keyring.gpg
bcache-tools           command:make-bcache
btrfs-progs            command:mkfs.btrfs
cryptsetup-bin         command:cryptsetup
dosfstools             command:mkfs.vfat
e2fsprogs              command:mkfs.ext4
erofs-utils            command:mkfs.erofs
exfatprogs             command:mkfs.exfat
f2fs-tools             command:mkfs.f2fs
fdisk                  command:sfdisk
gdisk                  command:sgdisk
genisoimage            command:genisoimage
genromfs               command:genromfs
gfs2-utils             command:mkfs.gfs2
hfsutils               command:hformat
jfsutils               command:mkfs.jfs
libnbd-bin             command:nbdfuse
lvm2                   command:pvcreate
mount                  command:losetup
nbdkit                 command:nbdkit
nilfs-tools            command:mkfs.nilfs2
ntfs-3g                command:mkfs.ntfs
ocfs2-tools            command:mkfs.ocfs2
reiser4progs           command:mkfs.reiser4
reiserfsprogs          command:mkfs.reiserfs
sqlite3                command:sqlite3
squashfs-tools         command:mksquashfs
udftools               command:mkudffs
dnsmasq-base           command:dnsmasq
isc-dhcp-client        command:dhclient
unbound                command:unbound
util-linux             command:mkfs.cramfs
xfsprogs               command:mkfs.xfs
'

mapfile -t missing < <(missing_packages "$packages")

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing ${missing[*]}"
        install_packages "${missing[@]}"
    else
        say "missing: ${missing[*]}; as root: apt-get install ${missing[*]}"
        [ "${CI:-}" != true ] || exit 1
    fi
fi

command -v cargo >/dev/null || {
    say "cargo is missing; install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer"
    exit 1
}

# Real servers. Without them tier 3 is skipped, or fails in CI, and says what is missing.
if ! tests/parts/parts.sh fetch prometheus promtool node-exporter vmagent cloud-init etcd >/dev/null; then
    say "without these parts the tests that need them are skipped (see above)"
    [ "${CI:-}" != true ] || exit 1
fi

# A real Kubernetes API server, built once. Without it the tests that need it are skipped, or fail in CI.
if ! tests/parts/kube-apiserver.sh fetch >/dev/null; then
    say "without kube-apiserver the tests with a real API server are skipped (see above)"
    [ "${CI:-}" != true ] || exit 1
fi

# Real guests. Without them tier 4 is skipped, or fails in CI.
if ! tests/guests/host.sh || ! { tests/guests/image.sh trixie && tests/guests/image.sh bookworm; } >/dev/null; then
    say "without these the tests with real guests are skipped (see above)"
    [ "${CI:-}" != true ] || exit 1
fi
# Machines in containers. Without them the tests that boot systemd are skipped, or fail in CI.
if ! { tests/parts/machine-root.sh trixie && tests/parts/machine-root.sh bookworm && tests/parts/owners-root.sh trixie; } >/dev/null; then
    say "without these the tests with machines in containers are skipped (see above)"
    [ "${CI:-}" != true ] || exit 1
fi
say "ready"
