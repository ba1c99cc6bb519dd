//go:build tools

// Package tools names what prometheus-operator.sh runs and reads, so that go.mod keeps it.
package tools

import (
	_ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	_ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1alpha1"
	_ "sigs.k8s.io/controller-tools/cmd/controller-gen"
)
