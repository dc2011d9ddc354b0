// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const (
	// answerTimeout is how long the API server may take to say that it is there.
	answerTimeout = 5 * time.Second
	// leaseLost is the text of the error of controller-runtime, which has no value for it, when the lease was lost.
	leaseLost = "leader election lost"
)

// outlive runs a server for as long as it is wanted, also when the API server goes away. The lease is lost then, and with
// it the right to act, so the process begins anew, in place. Were it to end, Kubernetes would start it again with a pause
// that grows with every outage to five minutes.
func (f *serverFlags) outlive(ctx context.Context, run func(context.Context) error) error {
	if err := f.setLogger(); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	config.QPS = -1 // the API server's own priority levels protect it
	f.config = config
	if err := f.await(ctx, "the API server", f.answers); err != nil {
		return err
	}
	err = run(ctx)
	if err == nil || ctx.Err() != nil || err.Error() != leaseLost && f.answers(ctx) == nil {
		return err
	}
	ctrl.Log.Info("The API server was away; starting anew", "cause", err.Error())
	return startAnew()
}

// startAnew makes this process one that has just been started. It returns only if that fails.
func startAnew() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find our own program: %w", err)
	}
	return fmt.Errorf("start anew: %w", syscall.Exec(program, os.Args, os.Environ())) //nolint:gosec // it is this very program
}

// clusterID returns the id of this cluster when the manager has written it.
func (f *serverFlags) clusterID(ctx context.Context) (string, error) {
	clients, err := corev1client.NewForConfig(f.config)
	if err != nil {
		return "", err
	}
	id := ""
	err = f.await(ctx, "the manager to write which cluster this is", func(ctx context.Context) error {
		info, err := clients.ConfigMaps(f.namespace).Get(ctx, v1alpha1.ClusterInfo, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if id = info.Data[v1alpha1.ClusterInfoID]; id == "" {
			return fmt.Errorf("ConfigMap %s/%s has no %s", f.namespace, info.Name, v1alpha1.ClusterInfoID)
		}
		return nil
	})
	return id, err
}

// await returns when the check succeeds. Meanwhile the process is healthy, but not ready.
func (f *serverFlags) await(ctx context.Context, what string, check func(context.Context) error) error {
	err := check(ctx)
	if err == nil {
		return nil
	}
	ctrl.Log.Info("Waiting for "+what, "cause", err.Error())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.health)
	if err != nil {
		return fmt.Errorf("serve --health-probe-bind-address: %w", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(aliveOnly), ReadHeaderTimeout: answerTimeout}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // says that it was closed
	}()
	err = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		return check(ctx) == nil, nil
	})
	err = errors.Join(err, server.Close())
	<-served
	return err
}

func aliveOnly(w http.ResponseWriter, request *http.Request) {
	if request.URL.Path != "/healthz" {
		http.Error(w, "waiting; the log says for what", http.StatusServiceUnavailable)
	}
}

// answers asks the API server whether it is there. Any answer that is not its own failure is one.
func (f *serverFlags) answers(ctx context.Context) error {
	clients, err := corev1client.NewForConfig(f.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err = clients.RESTClient().Get().AbsPath("/readyz").MaxRetries(0).DoRaw(ctx)
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError {
		return nil
	}
	return err
}
