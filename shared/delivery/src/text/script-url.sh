# url URL: downloads to $new.
url() {
    t=$(left)
    t=$((t > 5 ? t : 5))
    if command -v curl >/dev/null; then
        curl -fsSL --connect-timeout 10 -m $t -o $new "$1"
    elif command -v wget >/dev/null; then
        timeout $t wget -q -T 10 -t 1 -O $new "$1"
    else
        timeout $t python3 -c 'import sys, urllib.request as u; u.urlretrieve(*sys.argv[1:])' "$1" $new
    fi
}
