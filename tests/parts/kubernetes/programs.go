//go:build programs

// Package kubernetes names the programs that build.sh builds, so that `go mod tidy` keeps what they need in go.mod and go.sum.
// To change the release: set its version and that of the staging modules (v0.MINOR.PATCH) in go.mod, and run `go mod tidy`. The
// list of staging modules is the one of `replace` lines in the go.mod of k8s.io/kubernetes.
package kubernetes

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
)
