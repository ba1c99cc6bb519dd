//go:build programs

// Package helm names the programs that helm.sh builds, so that `go mod tidy` keeps what they need in
// go.mod and go.sum. To change a release: set its version in go.mod, and run `go mod tidy`.
package helm

import (
	_ "helm.sh/helm/v4/cmd/helm"
	_ "sigs.k8s.io/kustomize/kustomize/v5"
)
