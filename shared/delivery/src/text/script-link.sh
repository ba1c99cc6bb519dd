# Enables the unit.
wants=etc/systemd/system/multi-user.target.wants
[ "$(readlink $wants/virtfleet-delivery.service)" = ../virtfleet-delivery.service ] ||
    { mkdir -p $wants && ln -sfn ../virtfleet-delivery.service $wants && changed=1; } ||
    alert "cannot write /$wants: is the disk full or read-only?"
