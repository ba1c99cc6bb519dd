agent=opt/virtfleet/bin/virtfleet-agent
new=opt/virtfleet/bin/.virtfleet-new.agent
# An interrupted run may have left it.
rm -f $new
mkdir -p opt/virtfleet/bin
refuse() {
    alert "$*: not installed"
    exit 69
}
# True if the agent is the wanted one, or `virtfleet-agent install` replaced it while that one was
# wanted.
installed() {
    have=$(digest $agent)
    [ "$have" = $sha ] || [ "$(grep -cx "sha256 $have\|wanted $sha" $state/installed)" = 2 ]
} 2>/dev/null
# Seconds until the end, counted since boot: the wall clock may jump.
left() {
    read -r now _ </proc/uptime
    echo $((end - ${now%.*}))
}
end=0
end=$((@SECONDS@ - $(left)))
# try KIND ARGUMENT...: installs what a source gives if it is the wanted agent.
try() {
    if ! "$@"; then
        say "cannot get the agent from $*: is it there and reachable?"
    elif [ "$(digest $new)" != $sha ]; then
        alert "$* gave a file with the SHA-256 $(digest $new), not $sha: not used; correct one of them"
    elif chmod 755 $new && sync $new && mv -f $new $agent && sync opt/virtfleet/bin; then
        return
    else
        alert "cannot write /$agent: is the disk full or read-only?"
    fi
    rm -f $new
    false
}
