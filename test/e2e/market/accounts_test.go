// SPDX-License-Identifier: Apache-2.0

package market

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/test/e2e/framework"
)

// slots are a resource of which so much is used that counts which differ by some seconds differ by more than is put up with.
const slots corev1.ResourceName = "accounts.example/slots"

// accountOf is that of today.
func accountOf(ctx context.Context, c *framework.Cluster, direction v1alpha1.AccountDirection, peer *framework.Cluster) (*v1alpha1.Account, error) {
	found := &v1alpha1.Account{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer.Name), Name: v1alpha1.AccountName(direction, time.Now())}
	return found, c.Get(ctx, key, found)
}

// accounts are what lubeck has used at hamburg today, as each of them keeps it.
func accounts(ctx context.Context) (borrowed, lent *v1alpha1.Account, err error) {
	if borrowed, err = accountOf(ctx, lubeck, v1alpha1.AccountBorrowed, hamburg); err == nil {
		lent, err = accountOf(ctx, hamburg, v1alpha1.AccountLent, lubeck)
	}
	return borrowed, lent, err
}

// countAnew has lubeck run a pod at hamburg, and both begin anew once they count it: stories that kill managers and cut links may have
// had them disagree before, and a manager that has just started counts from where its last Account ends.
func countAnew(t *testing.T) {
	t.Helper()
	ns := lubeck.CreateOffloadedNamespaceWith(t, v1alpha1.NamespaceOffloadingSpec{
		Strategy: v1alpha1.StrategyRemote, ClusterSelector: &v1alpha1.ClusterSelector{MatchLabels: map[string]v1alpha1.LabelValue{v1alpha1.LabelPeer: "hamburg"}},
	})
	lubeck.MustCreate(t, framework.NewShellPod(ns, "worker", framework.RunForever))
	lubeck.AwaitReadyPods(t, ns, "worker", 1)
	ready := time.Now()
	framework.Eventually(t, "both count the pod", func(ctx context.Context) error {
		borrowed, lent, err := accounts(ctx)
		if err != nil {
			return err
		}
		for _, count := range []*v1alpha1.AccountCount{borrowed.Own(), lent.Own()} {
			if count.CountedUntil == nil || !count.CountedUntil.After(ready) {
				return fmt.Errorf("one has counted until %v", count.CountedUntil)
			}
		}
		return nil
	})
	for side, namespace := range map[*framework.Cluster]string{lubeck: v1alpha1.TenantNamespace("hamburg"), hamburg: v1alpha1.TenantNamespace("lubeck")} {
		if err := side.DeleteAllOf(t.Context(), &v1alpha1.Account{}, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
	}
	awaitAgreed(t, metav1.ConditionTrue, "")
}

// awaitAgreed waits until both say this.
func awaitAgreed(t *testing.T, status metav1.ConditionStatus, text string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("lubeck and hamburg say that Agreed is %s", status), func(ctx context.Context) error {
		borrowed, lent, err := accounts(ctx)
		if err != nil {
			return err
		}
		for _, account := range []*v1alpha1.Account{borrowed, lent} {
			said := meta.FindStatusCondition(account.Status.Conditions, v1alpha1.ConditionAgreed)
			if said == nil || said.Status != status || !strings.Contains(said.Message, text) {
				return fmt.Errorf("%s says %+v", account.Name, said)
			}
		}
		return nil
	})
}

// hoursOf are the hours of slots that the application has used and that were reserved for it.
func hoursOf(count *v1alpha1.AccountCount, application string) (used, reserved float64, cost v1alpha1.Decimal) {
	for _, e := range count.Entries {
		if e.Application == application {
			more, _ := strconv.ParseFloat(string(e.Used[slots]), 64)
			kept, _ := strconv.ParseFloat(string(e.Reserved[slots]), 64)
			used, reserved, cost = used+more, reserved+kept, max(cost, e.Cost)
		}
	}
	return used, reserved, cost
}

// awaitUsed waits until both have counted so many hours of slots for the application, about half of what was reserved for it, and agree.
func awaitUsed(t *testing.T, application string, least float64) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("both have counted %g hours for %s", least, application), func(ctx context.Context) error {
		borrowed, lent, err := accounts(ctx)
		if err != nil {
			return err
		}
		for name, count := range map[string]*v1alpha1.AccountCount{"lubeck": borrowed.Own(), "hamburg": lent.Own()} {
			used, reserved, cost := hoursOf(count, application)
			if used < least || reserved < 1.9*used || cost == "" {
				return fmt.Errorf("by %s it is %g of %g for %q", name, used, reserved, cost)
			}
		}
		return nil
	})
	awaitAgreed(t, metav1.ConditionTrue, "")
}

// What an application uses, and what is reserved for it, both sides count by themselves, and come to the same, also when the managers are
// killed meanwhile. The user sees it as a table for an invoice.
func TestAccountsAgree(t *testing.T) {
	ctx := framework.Begin(t)
	countAnew(t)
	hamburg.AddExtendedResource(t, string(slots), 80)
	hamburg.SetPrices(t, "0.02")
	framework.Eventually(t, "lubeck knows what hamburg has, and the price", func(ctx context.Context) error {
		ad, err := lubeck.ReceivedOffer(ctx, hamburg)
		if there := ad.Spec.Availability[slots]; err == nil && (ad.Spec.Prices == nil || there.Value() < 80) {
			err = fmt.Errorf("it is offered %s at %+v", there.String(), ad.Spec.Prices)
		}
		return err
	})
	ns := lubeck.CreateOffloadedNamespace(t, v1alpha1.StrategyRemote)
	app := framework.NewApplication(ns, &v1alpha1.ApplicationPlacement{Clusters: []string{"hamburg"}}, "50m", "web")
	app.Spec.Components[0].Resources[slots] = resource.MustParse("80")
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	spec := framework.NewShellPodSpec(framework.RunForever)
	spec.Containers[0].Resources.Requests[slots] = resource.MustParse("40")
	spec.Containers[0].Resources.Limits = corev1.ResourceList{slots: resource.MustParse("40")}
	lubeck.MustCreate(t, framework.NewDeployment(ns, "web", 1, spec))
	lubeck.AwaitReadyPods(t, ns, "web", 1)

	application := ns + "/" + app.Name
	awaitUsed(t, application, 0.03)
	hamburg.KillHanse(t, "manager")
	lubeck.KillHanse(t, "manager")
	awaitUsed(t, application, 0.1)

	lubeck.DeleteAndWait(t, app)
	out, err := lubeck.Hanse(ctx, "account", "--peer", "hamburg", "--since", "24h", "-o", "csv")
	if err != nil || !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
		return strings.Contains(line, ",hamburg,borrowed,"+application+",0.0") && strings.Contains(line, ",EUR,")
	}) {
		t.Errorf("kubectl hanse account: %v\n%s", err, out)
	}
	lubeck.DeleteAndWait(t, &corev1.Namespace{ObjectMeta: framework.ObjectMeta(ns)}) // what still ran would begin anew at two moments when others count anew
}

// A consumer that claims to have used something else than its provider has counted is told so, and so is the provider. Nobody claims
// anything in its name.
func TestAccountsDisagree(t *testing.T) {
	ctx := framework.Begin(t)
	countAnew(t)
	claims := func(more float64) {
		framework.Eventually(t, fmt.Sprintf("lubeck claims %g core hours more", more), func(ctx context.Context) error {
			borrowed, _, err := accounts(ctx)
			if err != nil {
				return err
			}
			hours, _ := strconv.ParseFloat(string(borrowed.Spec.Entries[0].Used[corev1.ResourceCPU]), 64)
			borrowed.Spec.Entries[0].Used[corev1.ResourceCPU] = v1alpha1.Decimal(strconv.FormatFloat(hours+more, 'f', 9, 64))
			return lubeck.Update(ctx, borrowed)
		})
	}
	claims(100)
	awaitAgreed(t, metav1.ConditionFalse, "The counts differ: cpu used is 100.")
	for _, side := range []*framework.Cluster{lubeck, hamburg} {
		out, err := side.Hanse(ctx, "account", "--since", "24h")
		if err != nil || !strings.Contains(out, "cpu used is 100.") {
			t.Errorf("kubectl hanse account at %s: %v\n%s", side.Name, err, out)
		}
	}
	framework.Eventually(t, "hamburg's administrator finds an event", func(ctx context.Context) error {
		out, err := hamburg.Kubectl(ctx, "get", "events", "-n", v1alpha1.TenantNamespace("lubeck"), "--field-selector", "reason="+v1alpha1.ReasonCountsDiffer)
		if err == nil && !strings.Contains(out, "lent-") {
			err = fmt.Errorf("there are %s", out)
		}
		return err
	})
	claims(-100)
	awaitAgreed(t, metav1.ConditionTrue, "")

	t.Run("said without the consumer's key", func(t *testing.T) {
		lubeck.PauseHanse(t, "manager") // which would write its own count again
		framework.Eventually(t, "somebody writes in lubeck's name at hamburg", func(ctx context.Context) error {
			lent, err := accountOf(ctx, hamburg, v1alpha1.AccountLent, lubeck)
			if err != nil {
				return err
			}
			lent.Spec.Entries[0].Used[corev1.ResourceCPU] = "0.000000001"
			return hamburg.Update(ctx, lent)
		})
		framework.Eventually(t, "hamburg does not believe it", func(ctx context.Context) error {
			lent, err := accountOf(ctx, hamburg, v1alpha1.AccountLent, lubeck)
			if err != nil {
				return err
			}
			said := meta.FindStatusCondition(lent.Status.Conditions, v1alpha1.ConditionAgreed)
			if said == nil || said.Reason != v1alpha1.ReasonForged || !strings.Contains(said.Message, "the count of the consumer") {
				err = fmt.Errorf("it says %+v", said)
			}
			return err
		})
	})
	awaitAgreed(t, metav1.ConditionTrue, "")
}
