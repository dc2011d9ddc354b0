// SPDX-License-Identifier: Apache-2.0

// Command metrics-server is that of Kubernetes SIG Instrumentation: it tells `kubectl top` and HorizontalPodAutoscalers
// what pods and nodes use.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	"sigs.k8s.io/metrics-server/cmd/metrics-server/app"
)

func main() {
	os.Exit(cli.Run(app.NewMetricsServerCommand(genericapiserver.SetupSignalHandler())))
}
