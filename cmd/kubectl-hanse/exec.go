// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxSaid is how much a command in a pod may say. The pod may run at a peer.
const maxSaid = 8 << 20

var errTooMuch = errors.New("the command says too much")

// A bounded buffer takes no more than maxSaid.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(data []byte) (int, error) {
	if b.Len()+len(data) > maxSaid {
		return 0, errTooMuch
	}
	return b.Buffer.Write(data)
}

// execIn runs a command in a pod.
func (c *connection) execIn(ctx context.Context, pod client.ObjectKey, command []string, input []byte) ([]byte, error) {
	clients, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	request := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.config, "GET", request.URL().String())
	if err != nil {
		return nil, err
	}
	var out, complaints bounded
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: bytes.NewReader(input), Stdout: &out, Stderr: &complaints})
	if text := strings.TrimSpace(complaints.String()); err != nil && text != "" {
		return nil, fmt.Errorf("%w: %s", err, printable(text))
	}
	return out.Bytes(), err
}
