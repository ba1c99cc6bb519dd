#!/usr/bin/env bash
# Installs on this machine what real guests need: QEMU (8.2 or newer, for snapshots in files), tools
# for images and seeds, a software TPM, Ignition, and the imports of cloud-init's schema check
# (cloud-init itself is a part in the cache: parts.sh). Needs root and Debian. A second run does
# nothing.
#
#   VIRTFLEET_DEBIAN_MIRROR  Debian's archive; default: the one of this machine's apt
set -euo pipefail
cd "$(dirname "$0")"
. ../parts/debian.sh

# To standard error, which the set-up shows.
say() { printf 'setup: %s\n' "$*" >&2; }

# Debian package → a command or file that shows that it is installed.
packages='
qemu-utils          command:qemu-img
mmdebstrap          command:mmdebstrap
e2fsprogs           command:mke2fs
dosfstools          command:mkfs.vfat
mtools              command:mcopy
genisoimage         command:genisoimage
cpio                command:cpio
kmod                command:depmod
zstd                command:zstd
xz-utils            command:xz
socat               command:socat
swtpm               command:swtpm
python3             file:/usr/bin/python3
python3-configobj   file:/usr/lib/python3/dist-packages/configobj
python3-jinja2      file:/usr/lib/python3/dist-packages/jinja2/__init__.py
python3-jsonpatch   file:/usr/lib/python3/dist-packages/jsonpatch.py
python3-jsonschema  file:/usr/lib/python3/dist-packages/jsonschema/__init__.py
python3-oauthlib    file:/usr/lib/python3/dist-packages/oauthlib/__init__.py
python3-requests    file:/usr/lib/python3/dist-packages/requests/__init__.py
python3-yaml        file:/usr/lib/python3/dist-packages/yaml/__init__.py
ignition            command:ignition-validate
'
qemu_is_new_enough() {
    local version
    version=$(qemu-system-x86_64 --version 2>/dev/null | sed -n 's/.*version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    [ -n "$version" ] || return 1
    local major minor
    read -r major minor <<<"$version"
    [ "$major" -gt 8 ] || { [ "$major" = 8 ] && [ "$minor" -ge 2 ]; }
}

mapfile -t missing < <(missing_packages "$packages")
qemu=present
qemu_is_new_enough || qemu=missing
[ ${#missing[@]} -gt 0 ] || [ "$qemu" = missing ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    [ "$qemu" = present ] || missing+=("qemu-system-x86 (8.2 or newer)")
    say "missing for real guests: ${missing[*]}; as root: apt-get install them"
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    install_packages "${missing[@]}"
    mapfile -t absent < <(missing_proofs "$packages")
    if [ ${#absent[@]} -gt 0 ]; then
        say "still missing after the installation: ${absent[*]}"
        exit 1
    fi
fi
if [ "$qemu" = missing ]; then
    # bookworm's own QEMU is too old; its backports have a newer one. The machine's apt sources are
    # not changed: the script installs the packages with its own source lists.
    suite=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    archive=$(debian_mirror)
    target=$suite
    {
        printf 'deb [signed-by=%s] %s %s main\n' "$debian_keyring" "$archive" "$suite"
        if [ "$suite" = bookworm ]; then
            printf 'deb [signed-by=%s] %s %s-updates main\n' "$debian_keyring" "$archive" "$suite"
            printf 'deb [signed-by=%s] %s %s-backports main\n' "$debian_keyring" "$archive" "$suite"
        fi
    } >"$work/sources.list"
    [ "$suite" != bookworm ] || target=bookworm-backports
    mkdir -p "$work/lists/partial"
    own_sources=("${patient_apt[@]}" -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=-
        -o "Dir::State::lists=$work/lists" -o APT::Sandbox::User= -o Acquire::Languages=none)
    say "installing QEMU of $target"
    apt-get "${own_sources[@]}" update
    apt-get "${own_sources[@]}" install -y --no-install-recommends -t "$target" \
        qemu-system-x86 qemu-system-common qemu-system-data qemu-utils seabios >/dev/null
    qemu_is_new_enough || {
        say "Debian $target has no QEMU 8.2 or newer; install one by hand"
        exit 1
    }
fi
