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
zstd                   command:zstd
runc                   command:runc
udftools               command:mkudffs
dnsmasq-base           command:dnsmasq
isc-dhcp-client        command:dhclient
unbound                command:unbound
chromium               command:chromium
nginx-light            file:/usr/sbin/nginx
nodejs                 command:node
npm                    command:npm
util-linux-extra       command:mkfs.cramfs
'

# A full disk or missing memory fails tests with errors that do not name it, so both are checked
# first. What is not enough ends the set-up in CI; elsewhere it is only reported.
short_of() { # MESSAGE
    say "$1"
    [ "${CI:-}" != true ] || exit 1
}

# Adds to what is needed on the filesystem of a folder. Several folders may share one filesystem.
declare -A needed_on=() purpose_on=() folder_on=()
need() { # FOLDER NEEDED-GB PURPOSE
    local folder=$1 device
    while [ ! -e "$folder" ]; do folder=$(dirname "$folder"); done
    device=$(stat -c %d "$folder")
    needed_on[$device]=$((${needed_on[$device]:-0} + $2))
    purpose_on[$device]+="${purpose_on[$device]:+, }$2 GB for $3 in $1"
    folder_on[$device]=$folder
}

check_space() {
    local device free
    for device in "${!needed_on[@]}"; do
        free=$(df --output=avail --block-size=GB "${folder_on[$device]}" | tail -n 1 | tr -dc 0-9)
        [ "${free:-0}" -ge "${needed_on[$device]}" ] ||
            short_of "the filesystem of ${folder_on[$device]} has ${free:-0} GB left, and a run needs ${needed_on[$device]} GB (${purpose_on[$device]}): remove what you do not need there, and run this again"
    done
}

# A guest has 1 GiB, and a test of clusters up to three API servers of 480 MiB. The rest is for
# compilers, linkers and the other tests.
check_memory() {
    local needed=6 available limit
    available=$(awk '$1 == "MemAvailable:" { printf "%d", $2 * 1024 / 1e9 }' /proc/meminfo)
    # The limit of a container, if there is one.
    limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)
    case $limit in
    '' | *[!0-9]*) ;;
    *) [ "$((limit / 1000000000))" -ge "$available" ] || available=$((limit / 1000000000)) ;;
    esac
    [ "$available" -ge "$needed" ] ||
        short_of "$available GB of memory are available, and a run needs $needed GB: end what you do not need, and run this again"
}

# Measured from empty folders: 3 GB of build files (15 GB with incremental builds, which are off in
# CI) and 6 GB of servers and images in the cache. A filled cache gets new images when their scripts
# change. What is in the cache from an older recipe is built again, which needs as much as the first
# build. Guests' disks and the images of loop devices take 2 GB while tests run; they are sparse
# files, and their use of space differs from run to run.
build=${CARGO_TARGET_DIR:-$PWD/target} cache=${XDG_CACHE_HOME:-$HOME/.cache}/virtfleet
needed=16
[ "${CI:-}" != true ] || needed=4
[ ! -e "$build/debug" ] || needed=3
need "$build" "$needed" 'build files'
needed=7
if [ -e "$cache/guests" ] && tests/parts/kubernetes.sh fresh && tests/parts/cortex.sh fresh; then needed=3; fi
need "$cache" "$needed" 'servers and images'
need "${TMPDIR:-/tmp}" 6 "guests' disks and loop devices"
check_space
check_memory

# Runs one step of the set-up and shows its progress. A step that fails runs again after a pause,
# because most failures are network failures. After the last attempt, prints its last lines and the
# consequence, and fails in CI.
pauses=(5 30) failures=()
step() { # CONSEQUENCE COMMAND…
    local consequence=$1 attempt status
    shift
    for ((attempt = 0; attempt <= ${#pauses[@]}; attempt++)); do
        if [ "$attempt" -gt 0 ]; then
            say "failed with exit code $status: $*; trying again in ${pauses[attempt - 1]} seconds"
            sleep "${pauses[attempt - 1]}"
        fi
        # parts.sh uses another suite only in the last attempt.
        VIRTFLEET_FETCH_AGAIN=yes
        [ "$attempt" -lt ${#pauses[@]} ] || VIRTFLEET_FETCH_AGAIN=
        export VIRTFLEET_FETCH_AGAIN
        status=0
        : >"$log"
        "$@" 2>&1 >/dev/null | tee -a "$log" >&2 || status=$?
        [ "$status" != 0 ] || return 0
    done
    say "failed $attempt times, now with exit code $status: $*; its last lines:"
    tail -n 20 "$log" | sed 's/^/setup:   /'
    say "$consequence"
    failures+=("$consequence")
    [ "${CI:-}" != true ] || {
        say "with CI=true, a failed step ends the set-up"
        exit 1
    }
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

mapfile -t missing < <(missing_packages "$packages")

if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing ${missing[*]}"
        step "Debian packages are missing, and tests that need them are skipped" install_packages "${missing[@]}"
        # apt-get can succeed without the file or command that tests use.
        mapfile -t absent < <(missing_proofs "$packages")
        if [ ${#absent[@]} -gt 0 ]; then
            short_of "still missing after the installation: $(printf '%s, ' "${absent[@]}")which tests need"
            failures+=("missing: ${absent[*]}")
        fi
    else
        say "missing: ${missing[*]}; as root: apt-get install ${missing[*]}"
        failures+=("missing: ${missing[*]}")
        [ "${CI:-}" != true ] || exit 1
    fi
fi

command -v cargo >/dev/null || {
    say "cargo is missing; install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer"
    exit 1
}

# Otherwise a failure to fetch crates would look like a failed lint or build. If all crates are
# there, the network is not used. tests/fuzz has its own lock file, but only `make fuzz` builds it.
cargo fetch --locked --offline >/dev/null 2>&1 ||
    step 'the crates could not be fetched: nothing can be built' cargo fetch --locked

# The test runner. Every test needs it.
step 'no test can run without the test runner' tests/parts/nextest.sh fetch

# Tools for real guests of tier 4. cloud-init of the parts needs its Python packages.
step 'tests with real guests are skipped' tests/guests/host.sh

# Real servers for tier 3.
mapfile -t parts < <(tests/parts/parts.sh list)
for part in "${parts[@]}"; do
    step "tests that need $part are skipped" tests/parts/parts.sh fetch "$part"
done
if [ "${CI:-}" = true ]; then
    step 'the current Kubernetes is missing; in CI, 1.20 does not replace it' tests/parts/kubernetes.sh fetch
else
    step 'tests with a real API server run on Kubernetes 1.20 if it can be built, and those with a scheduler or controller manager are skipped' \
        tests/parts/kubernetes.sh fetch
    tests/parts/kubernetes.sh path >/dev/null 2>&1 ||
        step 'tests with a real API server are skipped' tests/parts/kube-apiserver.sh fetch
fi
step "tests with KubeVirt's own objects are skipped" tests/parts/kubevirt.sh fetch
step "tests with prometheus-operator's kinds are skipped" tests/parts/prometheus-operator.sh fetch
step 'tests of the chart and of kustomize are skipped' tests/parts/helm.sh fetch
step 'manifests are not checked against the schemas of the API server' tests/parts/kubeconform.sh fetch
step 'tests with Cortex are skipped' tests/parts/cortex.sh fetch

step 'tests of the web page in a browser are skipped' tests/parts/web.sh fetch

# Real guests for tier 4.
for suite in trixie bookworm; do
    step "tests with guests of $suite are skipped" tests/guests/image.sh "$suite"
done

# Containers that boot systemd.
for suite in trixie bookworm; do
    step "tests with containers of $suite are skipped" tests/parts/machine-root.sh "$suite"
done
step 'tests with other owners of resolv.conf are skipped' tests/parts/owners-root.sh trixie

# Prints the version of each part, so that two runs can be compared.
versions() {
    local found suite
    rustc --version || true
    if found=$(tests/parts/nextest.sh path 2>/dev/null); then "$found/cargo-nextest" nextest --version | sed -n 1p; fi
    if found=$(tests/parts/kubernetes.sh path 2>/dev/null); then
        found=${found##*/}
        printf 'kubernetes %s (recipe %s)\n' "${found%-*}" "${found##*-}"
    elif found=$(tests/parts/kube-apiserver.sh path 2>/dev/null); then
        found=${found##*/}
        printf 'kube-apiserver %s (recipe %s)\n' "${found%-*}" "${found##*-}"
    fi
    if found=$(tests/parts/cortex.sh path 2>/dev/null); then
        found=${found##*/}
        printf 'cortex %s (recipe %s)\n' "${found%-*}" "${found##*-}"
    fi
    if found=$(tests/parts/kubevirt.sh path 2>/dev/null); then printf 'kubevirt (recipe %s)\n' "${found##*/}"; fi
    if command -v qemu-system-x86_64 >/dev/null; then qemu-system-x86_64 --version | sed -n 1p; fi
    for suite in trixie bookworm; do
        found=$(tests/guests/image.sh --path "$suite" 2>/dev/null) || continue
        printf 'guest of %s: %s\n' "$suite" "$(sed -n 's/^KERNEL=/kernel /p; s/^CLOUD_INIT=/cloud-init /p' "$found/facts" | paste -sd ' ')"
    done
    # Last, with those that are not pinned on standard error.
    tests/parts/parts.sh versions
}
versions | sed 's/^/setup: /'
if [ ${#failures[@]} -gt 0 ]; then
    say "ready, except:"
    printf 'setup:   %s\n' "${failures[@]}"
else
    say "ready"
fi
