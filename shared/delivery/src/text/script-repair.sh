# Files that an interrupted first boot left empty. Zeros only count as empty, too: a filesystem may
# record the length of data that never reached the disk.
empty=$(find etc/systemd/network etc/netplan etc/network/interfaces.d etc/NetworkManager/system-connections \
    var/lib/cloud/data -type f \( -name '*cloud-init*' -o -name '*.json' -o -name set-hostname -o -name instance-id \) \
    ! -exec grep -q '[[:graph:]]' {} \; -print 2>/dev/null)
if [ "$empty" ]; then
    empty=$(echo $empty)
    n=$(cat $state/repairs 2>/dev/null)
    why=
    if ! grep -q '^repair yes' $state/wanted; then
        why=' (repairCloudInit is false)'
    # A cloud-init module that runs user-data has run in this instance; it must not run twice.
    elif ls var/lib/cloud/instance var/lib/cloud/instance/sem 2>/dev/null |
        grep -Eq '^(boot-finished|config_(scripts_(user|per_instance|vendor)|runcmd|write_files|disk_setup|package_))'; then
        why=' (user-data has run already)'
    elif [ "${n:-0}" -gt 1 ]; then
        why=' (two repairs did not help)'
    # Beside the unit, cloud-init may be at work.
    elif [ "$1" = --boot ]; then
        alert "an interrupted first boot left empty below /: $empty: running cloud-init again (repair $((n + 1)) of 2)"
        # Left empty, the files would count as an administrator's settings.
        if echo $((n + 1)) | put 644 $state/repairs && timeout 60 cloud-init clean && rm -f $empty && sync; then
            timeout 30 systemctl reboot || timeout 30 systemctl --force reboot || reboot -f
            # No user-data may run in this boot. If the reboot fails, continue.
            sleep 60
        fi
        why=' (the repair failed)'
    fi
    alert "an interrupted first boot left empty below /: $empty: run \`cloud-init clean --reboot\` once it is safe to run user-data again$why"
fi
