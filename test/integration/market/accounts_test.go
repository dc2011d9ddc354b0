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
	"github.com/hanse-dev/hanse/test/integration/framework"
)

// slots is an extended resource. The test uses so much of it that usage which differs by some seconds exceeds the tolerance.
const slots corev1.ResourceName = "accounts.example/slots"

// accountOf returns the Account of today for the peer.
func accountOf(ctx context.Context, c *framework.Cluster, direction v1alpha1.AccountDirection, peer string) (*v1alpha1.Account, error) {
	account := &v1alpha1.Account{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(peer), Name: v1alpha1.AccountName(direction, time.Now())}
	return account, c.Get(ctx, key, account)
}

// accounts returns the usage of lubeck at hamburg today, as recorded by lubeck and by hamburg.
func accounts(ctx context.Context) (borrowed, lent *v1alpha1.Account, err error) {
	if borrowed, err = accountOf(ctx, lubeck, v1alpha1.AccountBorrowed, "hamburg"); err == nil {
		lent, err = accountOf(ctx, hamburg, v1alpha1.AccountLent, "lubeck")
	}
	return borrowed, lent, err
}

// resetAccounts runs a pod of lubeck at hamburg, and deletes the Accounts of both sides once they record its usage. The Accounts of
// earlier tests and packages may disagree: managers that have just started continue from the last recorded usage.
func resetAccounts(t *testing.T) {
	t.Helper()
	ns := lubeck.MustOffloadTo(t, hamburg)
	lubeck.MustCreate(t, framework.Pod(ns, "worker"))
	lubeck.AwaitReadyPods(t, ns, "worker", 1)
	ready := time.Now()
	framework.Eventually(t, "both sides record the usage of the pod", func(ctx context.Context) error {
		borrowed, lent, err := accounts(ctx)
		if err != nil {
			return err
		}
		for _, count := range []*v1alpha1.AccountCount{borrowed.Own(), lent.Own()} {
			if count.CountedUntil == nil || !count.CountedUntil.After(ready) {
				return fmt.Errorf("usage is recorded until %v", count.CountedUntil)
			}
		}
		return nil
	})
	for side, peer := range map[*framework.Cluster]string{lubeck: "hamburg", hamburg: "lubeck"} {
		if err := side.DeleteAllOf(t.Context(), &v1alpha1.Account{}, client.InNamespace(v1alpha1.TenantNamespace(peer))); err != nil {
			t.Fatal(err)
		}
	}
	awaitAgreed(t, metav1.ConditionTrue, "")
}

// awaitAgreed waits until condition Agreed of both Accounts has the status, and a message with the text.
func awaitAgreed(t *testing.T, status metav1.ConditionStatus, text string) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("condition Agreed is %s in lubeck and hamburg", status), func(ctx context.Context) error {
		borrowed, lent, err := accounts(ctx)
		if err != nil {
			return err
		}
		for _, account := range []*v1alpha1.Account{borrowed, lent} {
			agreed := meta.FindStatusCondition(account.Status.Conditions, v1alpha1.ConditionAgreed)
			if agreed == nil || agreed.Status != status || !strings.Contains(agreed.Message, text) {
				return fmt.Errorf("in Account %s it is %+v", account.Name, agreed)
			}
		}
		return nil
	})
}

// slotHours returns the slot hours that the application has used, those that were reserved for it, and the cost.
func slotHours(count *v1alpha1.AccountCount, application string) (used, reserved float64, cost v1alpha1.Decimal) {
	for _, entry := range count.Entries {
		if entry.Application == application {
			usedHere, _ := strconv.ParseFloat(string(entry.Used[slots]), 64)
			reservedHere, _ := strconv.ParseFloat(string(entry.Reserved[slots]), 64)
			used, reserved, cost = used+usedHere, reserved+reservedHere, max(cost, entry.Cost)
		}
	}
	return used, reserved, cost
}

// awaitUsed waits until both sides have recorded so many slot hours of the application, about half of what was reserved for it, and agree.
func awaitUsed(t *testing.T, application string, least float64) {
	t.Helper()
	framework.Eventually(t, fmt.Sprintf("both sides have recorded %g slot hours of %s", least, application), func(ctx context.Context) error {
		borrowed, lent, err := accounts(ctx)
		if err != nil {
			return err
		}
		for name, count := range map[string]*v1alpha1.AccountCount{"lubeck": borrowed.Own(), "hamburg": lent.Own()} {
			used, reserved, cost := slotHours(count, application)
			if used < least || reserved < 1.9*used || cost == "" {
				return fmt.Errorf("%s has recorded %g of %g reserved hours for %q", name, used, reserved, cost)
			}
		}
		return nil
	})
	awaitAgreed(t, metav1.ConditionTrue, "")
}

// TestAccountsAgree: consumer and provider each record what an Application uses and what is reserved for it. Both agree, also after a crash
// of both managers. kubectl hanse account prints the usage and its cost as CSV.
func TestAccountsAgree(t *testing.T) {
	begin(t)
	resetAccounts(t)
	hamburg.SetExtendedResource(t, slots, 80)
	hamburg.SetPrices(t, lubeck, "0.02")
	framework.Eventually(t, "lubeck has received the offer of slots, and the price", func(ctx context.Context) error {
		ad, err := lubeck.CopyOf(ctx, hamburg)
		if offered := ad.Spec.Availability[slots]; err == nil && (ad.Spec.Prices == nil || offered.Value() < 80) {
			err = fmt.Errorf("%s slots are offered for %+v", &offered, ad.Spec.Prices)
		}
		return err
	})
	ns := offloadedNamespace(t, v1alpha1.StrategyRemote)
	app := framework.Application(ns, &v1alpha1.ApplicationPlacement{Clusters: []string{"hamburg"}}, "50m", "web")
	app.Spec.Components[0].Resources[slots] = resource.MustParse("80")
	lubeck.MustCreate(t, app)
	lubeck.AwaitApplication(t, app, v1alpha1.ApplicationPlaced)
	spec := framework.PodSpec()
	spec.Containers[0].Resources.Requests[slots] = resource.MustParse("40")
	spec.Containers[0].Resources.Limits = corev1.ResourceList{slots: resource.MustParse("40")}
	lubeck.MustCreate(t, framework.Deployment(ns, "web", 1, spec))
	lubeck.AwaitReadyPods(t, ns, "web", 1)

	application := ns + "/" + app.Name
	awaitUsed(t, application, 0.03)
	for _, side := range []*framework.Cluster{hamburg, lubeck} {
		crashManager(t, side)
	}
	awaitUsed(t, application, 0.1)

	lubeck.DeleteAndWait(t, app)
	out, err := lubeck.Hanse(t.Context(), "account", "--peer", "hamburg", "--since", "24h", "-o", "csv")
	if err != nil || !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
		return strings.Contains(line, ",hamburg,borrowed,"+application+",0.0") && strings.Contains(line, ",EUR,")
	}) {
		t.Errorf("kubectl hanse account: %v\n%s", err, out)
	}
	// The next test deletes the Accounts of the two sides at different moments. No slots may be in use then.
	lubeck.DeleteAndWait(t, &corev1.Namespace{ObjectMeta: framework.Named("", ns)})
}

// crashManager kills the manager, and starts it again as a kubelet would.
func crashManager(t *testing.T, c *framework.Cluster) {
	t.Helper()
	c.KillServer("manager")
	if err := c.StartServer(t.Context(), "manager"); err != nil {
		t.Fatal(err)
	}
}

// TestAccountsDisagree: when a consumer claims other usage than its provider has recorded, both report the difference in a condition, in
// kubectl hanse account, and by an event. A claim that the consumer has not signed is not believed.
func TestAccountsDisagree(t *testing.T) {
	begin(t)
	resetAccounts(t)
	claim := func(change float64) {
		framework.Eventually(t, fmt.Sprintf("lubeck claims %+g core hours", change), func(ctx context.Context) error {
			borrowed, _, err := accounts(ctx)
			if err != nil {
				return err
			}
			hours, _ := strconv.ParseFloat(string(borrowed.Spec.Entries[0].Used[corev1.ResourceCPU]), 64)
			borrowed.Spec.Entries[0].Used[corev1.ResourceCPU] = v1alpha1.Decimal(strconv.FormatFloat(hours+change, 'f', 9, 64))
			return lubeck.Update(ctx, borrowed)
		})
	}
	claim(100)
	awaitAgreed(t, metav1.ConditionFalse, "The counts differ: cpu used is 100.")
	for _, side := range []*framework.Cluster{lubeck, hamburg} {
		out, err := side.Hanse(t.Context(), "account", "--since", "24h")
		if err := outputContains(out, "cpu used is 100.", err); err != nil {
			t.Errorf("kubectl hanse account in %s: %v", side.Name, err)
		}
	}
	framework.Eventually(t, "hamburg has an event about the difference", func(ctx context.Context) error {
		out, err := hamburg.Kubectl(ctx, "get", "events", "-n", v1alpha1.TenantNamespace("lubeck"), "--field-selector", "reason="+v1alpha1.ReasonCountsDiffer)
		return outputContains(out, "lent-", err)
	})
	claim(-100)
	awaitAgreed(t, metav1.ConditionTrue, "")

	t.Run("a claim without the key of the consumer", func(t *testing.T) {
		lubeck.PauseServer(t, "manager") // which would write its own record again
		framework.Eventually(t, "an administrator of hamburg changes the claim of lubeck", func(ctx context.Context) error {
			lent, err := accountOf(ctx, hamburg, v1alpha1.AccountLent, "lubeck")
			if err != nil {
				return err
			}
			lent.Spec.Entries[0].Used[corev1.ResourceCPU] = "0.000000001"
			return hamburg.Update(ctx, lent)
		})
		framework.Eventually(t, "hamburg reports the claim as forged", func(ctx context.Context) error {
			lent, err := accountOf(ctx, hamburg, v1alpha1.AccountLent, "lubeck")
			if err != nil {
				return err
			}
			agreed := meta.FindStatusCondition(lent.Status.Conditions, v1alpha1.ConditionAgreed)
			if agreed == nil || agreed.Reason != v1alpha1.ReasonForged || !strings.Contains(agreed.Message, "the count of the consumer") {
				err = fmt.Errorf("condition Agreed is %+v", agreed)
			}
			return err
		})
	})
	awaitAgreed(t, metav1.ConditionTrue, "")
}
