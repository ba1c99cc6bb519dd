#!/usr/bin/env bash
# Writes the agent disk, an ext4 image with the agent that VMs attach, and beside it the input of
# `virtfleetctl render` that uses it, and a VM:  agent-disk.sh FOLDER STATIC-AGENT REGISTRY [TAG]
#
# FOLDER is replaced. REGISTRY is where the image is published (make publish); TAG is the version by
# default. The same commit, binary and e2fsprogs give the same disk, byte by byte, for each user.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:?folder} agent=${2:?path of the static agent} registry=${3:?registry, such as registry.example.org}

die() {
    echo "agent-disk: $*" >&2
    exit 1
}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
tag=${4:-$version}
packaging/image/reference.sh "$registry" "$tag"
# Debian has them in /usr/sbin, which is not in the PATH of its users.
PATH=$PATH:/usr/sbin:/sbin
for tool in mke2fs debugfs; do
    command -v "$tool" >/dev/null || die "$tool is missing; as root: apt-get install e2fsprogs"
done
[ -f "$agent" ] || die "$agent is missing; run make static"
bytes=$(stat -c %s "$agent")
mib=$((bytes / (1 << 20) + bytes / (16 << 20) + 2))
# The agent does not count smaller disks (MIN_DISK_BYTES), so this one moves no disk of the VM.
[ "$mib" -lt 64 ] || die "$agent needs a disk of $mib MiB, which \`size\` and \`order\` of declared disks would count"
sum=$(sha256sum <"$agent" | cut -d' ' -f1)
E2FSPROGS_FAKE_TIME=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export E2FSPROGS_FAKE_TIME

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree"
install -m 755 "$agent" "$work/tree/virtfleet-agent"
touch -d "@$E2FSPROGS_FAKE_TIME" "$work/tree/virtfleet-agent" "$work/tree"
rm -rf "$out"
mkdir -p "$out"
# Without a journal, because the disk is only read. The UUID and the hash seed are random by default.
id=${sum:0:8}-${sum:8:4}-4${sum:13:3}-8${sum:17:3}-${sum:20:12}
mke2fs -q -F -t ext4 -L virtfleet -U "$id" -E "hash_seed=$id,root_owner=0:0" -O ^has_journal -m 0 -N 16 \
    -d "$work/tree" "$out/agent.img" "${mib}M" >/dev/null
# mke2fs copies the owner of the tree, and the time at which its inodes were changed, which nothing
# can set.
for file in / /virtfleet-agent; do
    for field in uid:0 gid:0 "ctime:@$E2FSPROGS_FAKE_TIME" ctime_extra:0; do
        echo "set_inode_field $file ${field%%:*} ${field#*:}"
    done
done | debugfs -w -f - "$out/agent.img" >"$work/log" 2>&1 || die "debugfs: $(tail -n 1 "$work/log")"

cat >"$out/delivery.yaml" <<END
# Written by \`make agent-disk\`: a VM that has the agent disk installs the agent from it.
#   virtfleetctl render cloud-init $out/delivery.yaml >$out/userdata
# docs/delivery.md has further keys: settings, such as the VM's disks, and files.
apiVersion: virtfleet.io/v1alpha1
kind: Delivery
agent:
  sha256: "$sum"
  version: "$version"
  sources:
  - disk: { label: virtfleet, path: virtfleet-agent }
tls: { enrolment: true }
END
image=registry.example.org/virtfleet-agent-disk
sed "s|$image:[^\" ]*|$registry/${image#*/}:$tag|" cloud-init/virtual-machine.yaml >"$out/virtual-machine.yaml"
