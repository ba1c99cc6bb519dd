# url URL: downloads to $new.
url() {
    t=$(left)
    t=$((t > 5 ? t : 5))
    if command -v curl >/dev/null; then
        curl -fsSL --connect-timeout 10 -m $t -o $new "$1"
    elif command -v wget >/dev/null; then
        timeout $t wget -q -T 10 -t 1 -O $new "$1"
    elif command -v python3 >/dev/null; then
        timeout $t python3 -c 'import socket, sys, urllib.request as u
socket.setdefaulttimeout(10)
u.urlretrieve(*sys.argv[1:])' "$1" $new
    else
        say 'no curl, wget or python3: add one of them to the image, or use a disk'
        false
    fi
}
