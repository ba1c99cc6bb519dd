# Runs at every boot before all other user-data. Never fails cloud-init. POSIX sh.
(
# The files in the script may be secret.
umask 077
f=${VIRTFLEET_ROOT:-}/run/virtfleet-deliver
mkdir -p "${f%/*}"
# Not through systemd: waiting inside cloud-init for a unit that starts after cloud-init would
# deadlock.
cat >"$f" <<'VIRTFLEET_END' && timeout -k 5 @WAIT@ sh "$f" --boot </dev/null
@SCRIPT@VIRTFLEET_END
case $? in
# 69: it has said why this system can never have the agent.
0 | 69) ;;
*)
    echo 'virtfleet-delivery: not done yet; virtfleet-delivery.service keeps trying (journalctl -u virtfleet-delivery)' >&2
    timeout 30 systemctl start --no-block virtfleet-delivery.service
    ;;
esac
exit 0
)
