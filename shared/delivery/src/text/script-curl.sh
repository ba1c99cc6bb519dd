# url URL: downloads to $new. Flatcar has curl, and OSM's own script needs it.
url() {
    t=$(left)
    curl -fsSL --connect-timeout 10 -m $((t > 5 ? t : 5)) -o $new "$1"
}
