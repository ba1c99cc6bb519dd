symlink ../virtfleet-delivery.service /etc/systemd/system/multi-user.target.wants/virtfleet-delivery.service
sync_all
exec 9>&-
if [ -n "$changed" ]; then
    # systemd may have loaded an older version of these units, or none.
    timeout 30 systemctl daemon-reload || log 'systemctl daemon-reload failed; systemd reads the units at the next boot'
fi
# Not through systemd: waiting inside cloud-init for a unit that starts after cloud-init would deadlock.
timeout -k 5 "$wait" sh "$root/var/lib/virtfleet/delivery/deliver" --boot "$wait"
case $? in
0 | 69) ;; # 69: it has said why this system can never have the agent.
*)
    failed=1
    log 'the agent is not installed yet; virtfleet-delivery.service keeps trying (journalctl -u virtfleet-delivery)'
    timeout 30 systemctl start --no-block virtfleet-delivery.service || :
    ;;
esac
sync_all
[ -z "$failed" ] || log 'some steps failed; see above'
exit 0
)
