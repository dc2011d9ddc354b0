// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// delayName is the name of the plugin in a scheduler's configuration.
const delayName = "TestbedDelay"

// delay is a scheduler plugin that makes a scheduler slow: it holds up each pod, and those behind it, for a while.
type delay struct {
	duration time.Duration
}

func newDelay(_ context.Context, args runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
	var config struct {
		Delay string `json:"delay"`
	}
	if err := frameworkruntime.DecodeInto(args, &config); err != nil {
		return nil, fmt.Errorf("decode arguments of %s: %w", delayName, err)
	}
	duration, err := time.ParseDuration(config.Delay)
	if err != nil {
		return nil, fmt.Errorf("delay of %s: %w", delayName, err)
	}
	return delay{duration: duration}, nil
}

// Name implements the scheduler's interface of plugins.
func (d delay) Name() string {
	return delayName
}

// Reserve waits. It is part of the scheduling cycle, where pods go through one at a time.
func (d delay) Reserve(ctx context.Context, _ fwk.CycleState, _ *corev1.Pod, _ string) *fwk.Status {
	timer := time.NewTimer(d.duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fwk.AsStatus(ctx.Err())
	}
}

// Unreserve has nothing to give back.
func (d delay) Unreserve(context.Context, fwk.CycleState, *corev1.Pod, string) {}
