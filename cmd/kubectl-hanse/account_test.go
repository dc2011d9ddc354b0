// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/testkit"
)

// kept are the accounts with two peers, of which one has counted something else.
func kept() []client.Object {
	account := func(peer, name string, own v1alpha1.AccountEntry) *v1alpha1.Account {
		a := &v1alpha1.Account{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(peer), Name: name}}
		a.Own().Entries = []v1alpha1.AccountEntry{own}
		testkit.SetCondition(&a.Status.Conditions, v1alpha1.ConditionAgreed, metav1.ConditionTrue, v1alpha1.ReasonCountsAgree)
		return a
	}
	type hours = map[corev1.ResourceName]v1alpha1.Decimal
	old := account("hamburg", "borrowed-2026-03-01", v1alpha1.AccountEntry{Used: hours{"cpu": "1"}})
	web := account("hamburg", "borrowed-2026-03-04", v1alpha1.AccountEntry{
		Application: "shop/web", Currency: "EUR", Used: hours{"cpu": "1.500000049", "memory": "0.25"}, Reserved: hours{"cpu": "4"}, Cost: "0.2",
	})
	lent := account("bremen", "lent-2026-03-04", v1alpha1.AccountEntry{Used: hours{"cpu": "0.3", "example.org/gpu": "2"}})
	lent.Spec.Entries = []v1alpha1.AccountEntry{{Used: hours{"cpu": "9"}}}
	lent.Status.Conditions[0].Status, lent.Status.Conditions[0].Message = metav1.ConditionFalse, "The counts differ: cpu used is 9\x1b[31m"
	return []client.Object{web, old, lent, account("bremen", "notes", v1alpha1.AccountEntry{})}
}

func TestAccountsAreShown(t *testing.T) {
	shown := func(flags accountFlags) string {
		t.Helper()
		var out bytes.Buffer
		if err := showAccounts(t.Context(), &out, newWorld(t, kept()...).client, &flags, now); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	table := shown(accountFlags{output: "table"})
	for _, line := range []string{
		"2026-03-01 hamburg borrowed - cpu=1 - free True",
		"2026-03-04 bremen lent - cpu=0.3 example.org/gpu=2 - free False",
		"2026-03-04 hamburg borrowed shop/web cpu=1.5 memory=0.25 cpu=4 0.2 EUR True",
		"2026-03-04, bremen, lent: The counts differ: cpu used is 9",
	} {
		if !strings.Contains(strings.Join(strings.Fields(table), " "), line) {
			t.Errorf("%q is missing in\n%s", line, table)
		}
	}
	if strings.Contains(table, "\x1b") || strings.Contains(table, "notes") {
		t.Errorf("%q", table)
	}

	want := "day,peer,direction,application,cost,currency,agreed,used cpu,used memory,reserved cpu\n" +
		"2026-03-04,hamburg,borrowed,shop/web,0.2,EUR,True,1.500000049,0.25,4\n"
	if diff := cmp.Diff(want, shown(accountFlags{output: "csv", peer: "hamburg", since: "2026-03-02"})); diff != "" {
		t.Errorf("csv: -want +got:\n%s", diff)
	}
	var view accountsView
	if err := json.Unmarshal([]byte(shown(accountFlags{output: "json", since: "2026-03-04"})), &view); err != nil {
		t.Fatal(err)
	}
	if len(view.Accounts) != 2 || view.Accounts[0].ByPeer.Entries[0].Used["cpu"] != "9" || view.Accounts[0].Agreed != metav1.ConditionFalse {
		t.Errorf("%+v", view)
	}
	if got := shown(accountFlags{output: "table", peer: "wismar"}); !strings.HasPrefix(got, "Nothing was used") {
		t.Errorf("of a peer without accounts: %q", got)
	}
}

func TestSince(t *testing.T) {
	for since, want := range map[string]string{"": "0001-01-01", "2026-11-01": "2026-11-01", "0s": now.UTC().Format("2006-01-02")} {
		if got, err := firstDay(since, now); err != nil || got.Format("2006-01-02") != want {
			t.Errorf("%q: %s, %v", since, got, err)
		}
	}
	for _, since := range []string{"yesterday", "-24h", "2026-13-01"} {
		if _, err := firstDay(since, now); !errors.Is(err, errSince) {
			t.Errorf("%q: %v", since, err)
		}
	}
}
