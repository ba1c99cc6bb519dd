//go:build programs

// Package kubeconform names the program that kubeconform.sh builds, so that `go mod tidy` keeps what
// it needs in go.mod and go.sum. To change the release: set its version in go.mod, and run
// `go mod tidy`.
package kubeconform

import (
	_ "github.com/yannh/kubeconform/cmd/kubeconform"
)
