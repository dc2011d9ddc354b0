// SPDX-License-Identifier: Apache-2.0

package namespaces

import (
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/hanse-dev/hanse/internal/testkit"
)

func TestEveryControllerIsSetUp(t *testing.T) {
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		Scheme: testkit.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := newWorld(t).controller.SetupWithManager(mgr); err != nil {
		t.Error(err)
	}
}

func TestWhatIsMissingIsTold(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("it works with nothing")
	}
}
