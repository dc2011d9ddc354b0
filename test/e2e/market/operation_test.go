// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// webAt is an application of one component, as large as its Deployment, which the change places.
func webAt(ns string, change func(*v1alpha1.Application)) *v1alpha1.Application {
	app := framework.NewApplication(ns, &v1alpha1.ApplicationPlacement{}, "10m", "web")
	app.Spec.Components[0].Replicas, app.Spec.Components[0].Resources = 0, nil
	change(app)
	return app
}

// awaitDeployment creates a Deployment of small pods once admission knows that they are of an application.
func awaitDeployment(t *testing.T, c *framework.Cluster, ns, name string, replicas int32) {
	t.Helper()
	awaitGates(t, c, ns, name)
	c.MustCreate(t, framework.NewDeployment(ns, name, replicas, framework.SmallPodSpec()))
}

// A cluster that is cut off for longer than the user wants to wait loses its component: it gets its room in another one, and its pods are
// made anew there. When the cluster is back, nothing of it is left there, and no pod ran twice under one UID.
func TestLostComponentIsPlacedAgain(t *testing.T) {
	ctx := framework.Begin(t)
	framework.SetCorePrices(t, "0.01", "0.02")
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	app := webAt(ns, func(app *v1alpha1.Application) {
		app.Spec.Placement.ReplaceAfter = &metav1.Duration{Duration: 10 * time.Second}
	})
	lubeck.MustCreate(t, app)
	awaitDeployment(t, lubeck, ns, "web", 1)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	lubeck.ExpectComponentAt(t, app, "web", "hamburg")
	before := lubeck.AwaitReadyPods(t, ns, "web", 1)[0]
	framework.CutOff(t)
	framework.Eventually(t, "its pod runs at bremen", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := lubeck.List(ctx, pods, client.InNamespace(ns), client.MatchingLabels{"app": "web"})
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Spec.NodeName == "hanse-bremen" && framework.IsPodReady(pod) {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("it does not: %+v", app.Status.Components))
	})
	framework.MustTestbed(t, "heal", "lubeck", "hamburg")
	framework.Eventually(t, "nothing is left at hamburg", func(ctx context.Context) error {
		return errors.Join(hasNoRequest(ctx, hamburg, app, lubeck), lubeck.CheckGone(ctx, before.DeepCopy()))
	})
	if _, err := hamburg.GetRemotePod(ctx, &before); err == nil {
		t.Error("its old pod still runs at hamburg")
	}
	lubeck.DeleteAndWait(t, app)
}

// hasNoRequest is nil if the provider has no Request of the consumer's application.
func hasNoRequest(ctx context.Context, c *framework.Cluster, app *v1alpha1.Application, consumer *framework.Cluster) error {
	if _, err := c.RequestOf(ctx, app, consumer); !apierrors.IsNotFound(err) {
		return errors.Join(err, fmt.Errorf("%s has the Request of %s", c.Name, app.Name))
	}
	return nil
}

// An application that is deleted while its cluster is cut off says that this one cannot be told. When it is back it is told, and has the room
// for others again.
func TestReleaseReachesCutOffProvider(t *testing.T) {
	ctx := framework.Begin(t)
	app := framework.NewApplication(lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote), &v1alpha1.ApplicationPlacement{Clusters: []string{"hamburg"}}, "10m", "web")
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	framework.CutOff(t)
	if err := lubeck.Delete(ctx, app); err != nil {
		t.Fatal(err)
	}
	framework.Eventually(t, "it says that it is released and whom it cannot tell", func(ctx context.Context) error {
		err := lubeck.Get(ctx, client.ObjectKeyFromObject(app), app)
		if err == nil && (app.Status.Phase != v1alpha1.ApplicationReleased || !slices.Equal(app.Status.AskedAt, []string{"hamburg"})) {
			err = fmt.Errorf("it says %+v", app.Status)
		}
		return err
	})
	if request, err := hamburg.RequestOf(ctx, app, lubeck); err != nil || len(request.Locked()) == 0 {
		t.Errorf("hamburg does not reserve its room any more: %+v (%v)", request.Status, err)
	}
	framework.MustTestbed(t, "heal", "lubeck", "hamburg")
	framework.Eventually(t, "the room is given back", func(ctx context.Context) error {
		return errors.Join(hasNoRequest(ctx, hamburg, app, lubeck), lubeck.CheckGone(ctx, app))
	})
}
