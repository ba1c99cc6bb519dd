flush
# systemd may have loaded older versions of these units, or none.
[ -z "$changed" ] || timeout 30 systemctl daemon-reload
