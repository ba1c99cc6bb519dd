//! The shell scripts that start the container and clean up after it.

/// `$1` the folder of the machine, `$2` the root, `$3` its control group's name, `$4` the network
/// namespace's path, `$5` `first` before the first boot, `$6` units to enable, `$7` units to mask;
/// then arguments of systemd-nspawn. It runs in its own PID and mount namespaces.
pub(super) const BOOT: &str = r#"set -e
folder=$1 root=$2 group=$3 network=$4 boot=$5 enabled=$6 masked=$7; shift 7
# Two containers in one control group would take each other's services for theirs.
for top in /sys/fs/cgroup/unified /sys/fs/cgroup; do
    [ -e "$top/cgroup.procs" ] && [ -e "$top/cgroup.controllers" ] || continue
    mkdir -p "$top/$group"; echo 0 >"$top/$group/cgroup.procs"; break
done
mount -t overlay overlay -o "lowerdir=$root,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
if [ "$boot" = first ]; then
    systemd-sysusers --root="$folder/root" >/dev/null 2>&1 || [ ! -e "$folder/root/usr/lib/sysusers.d/virtfleet.conf" ] || exit 1
    [ -z "$masked" ] || systemctl --quiet --root="$folder/root" mask $masked
    [ -z "$enabled" ] || systemctl --quiet --root="$folder/root" enable $enabled
fi
export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
# Not in the shell's place: as the first process of its namespace it would be the parent of what it does not know.
systemd-nspawn --quiet --directory="$folder/root" --boot --register=no --keep-unit --network-namespace-path="$network" \
    --machine="$group" --hostname=machine --console=pipe --capability=all --link-journal=no --resolv-conf=off --timezone=off "$@" </dev/null"#;

/// `$1` the control group's name, `$2` the folder: ends the remaining processes, then removes both.
pub(super) const END: &str = r#"for top in /sys/fs/cgroup/unified /sys/fs/cgroup; do
    [ -d "$top/$1" ] || continue
    echo 1 >"$top/$1/cgroup.kill" 2>/dev/null
    i=0; while grep -qs 'populated 1' "$top/$1/cgroup.events" && [ "$i" -lt 200 ]; do sleep 0.05; i=$((i + 1)); done
    find "$top/$1" -depth -type d -exec rmdir {} + 2>/dev/null
done
rm -rf --one-file-system -- "$2""#;
