// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hanse-dev/hanse/internal/testkit"
)

// paged is a reader of Secrets a-00 to a-49, whose lists have pages, as those of an API server. It fails after so many pages.
func paged(t *testing.T, fails int) (reader client.Reader, lists *int) {
	t.Helper()
	lists = new(int)
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, into client.ObjectList, options ...client.ListOption) error {
			asked := (&client.ListOptions{}).ApplyOptions(options)
			*lists++
			if *lists > fails {
				return errors.New("the continue token is too old")
			}
			from, _ := strconv.Atoi(asked.Continue) // none is 0
			page := into.(*corev1.SecretList)
			for i := from; i < min(50, from+int(asked.Limit)); i++ {
				secret := corev1.Secret{}
				secret.Name = fmt.Sprintf("a-%02d", i)
				page.Items = append(page.Items, secret)
			}
			if next := from + int(asked.Limit); next < 50 {
				page.Continue = strconv.Itoa(next)
			}
			return nil
		},
	}), lists
}

func TestWhatIsReadAhead(t *testing.T) {
	for name, test := range map[string]struct {
		fails int
		names string
		found string
		lists int
	}{
		"all of a page by one request":       {9, "a-00 a-01 a-19", "a-00 a-01 a-19", 1},
		"no page before it is needed":        {9, "a-00 a-20", "a-00 a-20", 2},
		"what steps that began earlier need": {9, "a-20 a-05", "a-20 a-05", 2},
		"but not from long before":           {9, "a-40 a-05", "a-40", 3},
		"nor what is not there":              {9, "a-19x b", "", 3},
		"nor after a failure":                {1, "a-05 a-25 a-45", "a-05", 2},
		"and each once":                      {9, "a-05 a-06 a-05", "a-05 a-06", 1},
	} {
		t.Run(name, func(t *testing.T) {
			reader, lists := paged(t, test.fails)
			read := &ahead{live: reader, namespace: "shop", empty: func() client.ObjectList { return &corev1.SecretList{} }}
			var found []string
			for _, name := range strings.Fields(test.names) {
				if object := read.find(t.Context(), name); object != nil {
					found = append(found, object.GetName())
				}
			}
			if got := strings.Join(found, " "); got != test.found || *lists != test.lists {
				t.Errorf("found %q by %d requests, want %q by %d", got, *lists, test.found, test.lists)
			}
		})
	}
}

// A look that makes few copies, or few of what is there, reads each object by itself.
func TestManyObjectsAreReadInPages(t *testing.T) {
	for _, count := range []int{aheadFrom - 1, aheadFrom} {
		w, req := withMany(t, count)
		var gets, lists atomic.Int32
		w.Home.OnRead(func(read testkit.Read) error {
			switch read.Kind {
			case "Secret":
				gets.Add(1)
			case "SecretList":
				lists.Add(1)
			}
			return nil
		})
		w.mustReconcile(req)
		if inPages := count == aheadFrom; inPages != (lists.Load() > 0) || inPages != (gets.Load() == 0) {
			t.Errorf("%d objects were read by %d requests for one and %d for many", count, gets.Load(), lists.Load())
		}
		there := &corev1.SecretList{}
		if err := w.Away.Client.List(t.Context(), there); err != nil || len(there.Items) != count {
			t.Errorf("there are %d copies of %d: %v", len(there.Items), count, err)
		}
	}
}
