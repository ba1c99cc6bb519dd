#!/usr/bin/env bash
# The build of kube-apiserver.sh. The hash of this file is part of the cache's key, so a change
# causes a new build.
#
#   kube-apiserver-build.sh WORK VERSION OUT
#
# WORK/download has the source package, and the packages of Go and of two libraries.
set -euo pipefail
work=$1 version=$2 out=$3

# All output below goes to this file. If the build fails, its last lines are shown.
log="$work/build.log"
trap '[ $? = 0 ] || { say "the build failed; its output ends with:"; tail -n 30 "$log" >&3; }' EXIT
exec 3>&2 >"$log" 2>&1
say() { printf 'kube-apiserver: %s\n' "$*" >&3; }

for deb in "$work"/download/*.deb; do dpkg -x "$deb" "$work/go"; done
export GOROOT="$work/go/usr/lib/go-1.19" GOPATH="$work/gopath" GOCACHE="$work/gocache" GOFLAGS= GO111MODULE=off CGO_ENABLED=0
PATH="$GOROOT/bin:$PATH"

# The tree must be at the path of its import path.
tree="$GOPATH/src/k8s.io/kubernetes"
mkdir -p "${tree%/*}"
# apt has verified the hashes against the archive's signature.
dpkg-source --no-check -x "$work"/download/kubernetes_*.dsc "$tree"
cd "$tree"

# Go 1.18 changed the iteration over maps, and the vendored reflect2 1.0.1 then reads invalid
# memory: a custom resource with labels crashes the server. reflect2 1.0.2 supports both ways. The
# vendored json-iterator was written for 1.0.1; with 1.0.2 it parses an empty string as null, and
# managedFields are lost. Debian's versions of the two work together.
for package in github.com/modern-go/reflect2 github.com/json-iterator/go; do
    rm -r "vendor/$package"
    cp -r "$work/go/usr/share/gocode/src/$package" "vendor/$package"
done

# The only generated file that the server needs and the source package lacks: the OpenAPI
# definitions of every tagged package.
say "1 of 2: generating OpenAPI definitions"
mapfile -t packages < <(
    grep -rlE --include='*.go' '^// *\+k8s:openapi-gen=' pkg cmd plugin staging/src/k8s.io | xargs -n1 dirname | sort -u |
        grep -vE '/sample-|/testdata|/kube-openapi/' |
        sed -e 's,^staging/src/,,' -e t -e 's,^,k8s.io/kubernetes/,'
)
say "packages with definitions: ${#packages[@]}"
go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
generated=k8s.io/kubernetes/pkg/generated/openapi
"$work/openapi-gen" -O zz_generated.openapi -h hack/boilerplate/boilerplate.generatego.txt -r "$work/violations" \
    --output-base "$work/generated" -p "$generated" -i "$(IFS=,; printf '%s' "${packages[*]}")"
cp "$work/generated/$generated/zz_generated.openapi.go" "$GOPATH/src/$generated/"

# 1.20.5+really1.20.2-1.1 is Kubernetes 1.20.2; clients read the version.
upstream=${version%%-*}
upstream=${upstream##*really}
IFS=. read -r major minor _ <<<"$upstream"
stamp=k8s.io/component-base/version
say "2 of 2: building kube-apiserver $upstream"
go build -trimpath -o "$out" -ldflags "-s -w -X $stamp.gitVersion=v$upstream -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor" \
    ./cmd/kube-apiserver
"$out" --version
