#!/usr/bin/env bash
# Installs everything that `make test` needs besides a Rust toolchain. A second run does nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/parts/debian.sh

say() { printf 'setup: %s\n' "$*"; }

# Debian package → a file or command that shows that it is installed.
packages='
gcc                    command:cc
libc6-dev              file:/usr/include/stdio.h
git                    command:git
file                   command:file
ca-certificates        file:/etc/ssl/certs/ca-certificates.crt
curl                   command:curl
wget                   command:wget
iproute2               command:ip
dpkg-dev               command:dpkg-source
debhelper              command:dh
lintian                command:lintian
rpm                    command:rpm
rpmlint                command:rpmlint
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
cryptsetup-bin         command:cryptsetup
dosfstools             command:mkfs.vfat
erofs-utils            command:mkfs.erofs
exfatprogs             command:mkfs.exfat
f2fs-tools             command:mkfs.f2fs
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
nftables               command:nft
nilfs-tools            command:mkfs.nilfs2
ntfs-3g                command:mkfs.ntfs
ocfs2-tools            command:mkfs.ocfs2
reiser4progs           command:mkfs.reiser4
reiserfsprogs          command:mkfs.reiserfs
sqlite3                command:sqlite3
tmux                   command:tmux
strace                 command:strace
squashfs-tools         command:mksquashfs
runc                   command:runc
udftools               command:mkudffs
dnsmasq-base           command:dnsmasq
isc-dhcp-client        command:dhclient
unbound                command:unbound
chromium               command:chromium
nginx-light            file:/usr/sbin/nginx
nodejs                 command:node
npm                    command:npm
util-linux             command:mkfs.cramfs
'

# A full disk fails tests with errors that do not name it, so it is checked first. Measured from
# empty folders: 3 GB of build files (15 GB with incremental builds, which are off in CI), 2 GB of
# guests' disks while tests run, and in the cache 6 GB of servers and images and 3 GB of crates.
space() { # FOLDER NEEDED-GB PURPOSE
    local folder=$1 needed=$2 purpose=$3 free
    while [ ! -e "$folder" ]; do folder=$(dirname "$folder"); done
    free=$(($(df --output=avail --block-size=GB "$folder" | tail -n 1 | tr -dc 0-9)))
    [ "$free" -lt "$needed" ] || return 0
    say "$folder has $free GB left, and $purpose needs $needed GB: remove what you do not need there, and run this again"
    [ "${CI:-}" != true ] || exit 1
}
build=target cache=${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet
needed=18
[ "${CI:-}" != true ] || needed=6
[ ! -e "$build/debug" ] || needed=3
space "$build" "$needed" 'a run of the tests'
[ -e "$cache/guests" ] || space "$cache" 10 'the cache of servers, images and compiled crates'

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

# Runs one step of the set-up and shows its progress. A failed step runs once more, because most
# failures are network failures. If it fails again, prints its last lines and the consequence.
step() { # CONSEQUENCE COMMAND…
    local consequence=$1 attempt status
    shift
    for attempt in 1 2; do
        : >"$log"
        status=0
        "$@" 2>&1 >/dev/null | tee -a "$log" >&2 || status=$?
        [ "$status" != 0 ] || return 0
        [ "$attempt" = 2 ] || say "failed with exit code $status: $*; trying once more"
    done
    say "failed twice, now with exit code $status: $*; its last lines:"
    tail -n 20 "$log" | sed 's/^/setup:   /'
    say "$consequence"
    [ "${CI:-}" != true ] || exit 1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# The test runner. Every test needs it.
step 'no test can run without the test runner' tests/parts/nextest.sh fetch

# Real servers for tier 3.
for part in prometheus promtool node-exporter vmagent cloud-init etcd; do
    step "tests that need $part are skipped" tests/parts/parts.sh fetch "$part"
done
step 'tests with a real API server run on Kubernetes 1.20, and those with a scheduler or controller manager are skipped' \
    tests/parts/kubernetes.sh fetch
tests/parts/kubernetes.sh path >/dev/null 2>&1 ||
    step 'tests with a real API server are skipped' tests/parts/kube-apiserver.sh fetch
step "tests with KubeVirt's own objects are skipped" tests/parts/kubevirt.sh fetch
step "tests with prometheus-operator's kinds are skipped" tests/parts/prometheus-operator.sh fetch
step 'tests of the chart and of kustomize are skipped' tests/parts/helm.sh fetch
step 'manifests are not checked against the schemas of the API server' tests/parts/kubeconform.sh fetch

step 'tests of the web page in a browser are skipped' tests/parts/web.sh fetch

# Real guests for tier 4.
step 'tests with real guests are skipped' tests/guests/host.sh
for suite in trixie bookworm; do
    step "tests with guests of $suite are skipped" tests/guests/image.sh "$suite"
done

# Containers that boot systemd.
for suite in trixie bookworm; do
    step "tests with containers of $suite are skipped" tests/parts/machine-root.sh "$suite"
done
step 'tests with other owners of resolv.conf are skipped' tests/parts/owners-root.sh trixie
say "ready"
