point ../virtfleet-delivery.service /etc/systemd/system/multi-user.target.wants/virtfleet-delivery.service
settle
exec 9>&-
if [ -n "$changed" ]; then
    # systemd may know an older text of these units, or none.
    timeout 30 systemctl daemon-reload || say 'systemctl daemon-reload failed; the units are read at the next boot'
fi
# Not through systemd: what is ordered after cloud-init or the network cannot be waited for from inside cloud-init.
if ! timeout -k 5 "$wait" sh "$root/var/lib/virtfleet/delivery/deliver" --boot "$wait"; then
    failed=1
    say 'the agent is not in place yet; virtfleet-delivery.service goes on trying (journalctl -u virtfleet-delivery)'
    timeout 30 systemctl start --no-block virtfleet-delivery.service || :
fi
settle
[ -z "$failed" ] || say 'not everything is in place; see above'
exit 0
)
