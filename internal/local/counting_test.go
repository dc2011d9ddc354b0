// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var installedAt = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// timed is an API server with a clock.
type timed struct {
	client.Client
	now   time.Time
	err   error
	asked int
}

func newTimed(age time.Duration) *timed {
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hanse-system", CreationTimestamp: metav1.NewTime(installedAt)}}
	s := &timed{now: installedAt.Add(age)}
	s.Client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(own).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			s.asked++
			o.(*authenticationv1.SelfSubjectReview).CreationTimestamp = metav1.NewTime(s.now)
			return s.err
		},
	}).Build()
	return s
}

func TestQuotasCountOfAnAge(t *testing.T) {
	for name, test := range map[string]struct{ age, want time.Duration }{
		"new":                           {0, CountingDelay},
		"young":                         {CountingDelay - time.Second, time.Second},
		"just old enough":               {CountingDelay, 0},
		"old":                           {1000 * time.Hour, 0},
		"made by a server that is late": {-time.Second, CountingDelay + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			wait, err := NewCounting(newTimed(test.age), "hanse-system").Wait(t.Context())
			if err != nil || wait != test.want {
				t.Errorf("got %s, %v, want %s", wait, err, test.want)
			}
		})
	}
}

func TestTheTimeIsAskedForUntilTheInstallationIsOldEnough(t *testing.T) {
	s := newTimed(0)
	counting := NewCounting(s, "hanse-system")
	for _, age := range []time.Duration{0, time.Second, CountingDelay, time.Hour, 0} {
		s.now = installedAt.Add(age)
		if _, err := counting.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s.asked != 3 {
		t.Errorf("asked %d times, want 3", s.asked)
	}
}

func TestAnAgeThatIsNotKnownIsNone(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "selfsubjectreviews"}, "", nil)
	for name, test := range map[string]struct {
		change    func(*timed)
		namespace string
		is        func(error) bool
	}{
		"it may not be asked for": {func(s *timed) { s.err = refused }, "hanse-system", apierrors.IsForbidden},
		"no time in the answer": {
			func(s *timed) { s.now = time.Time{} }, "hanse-system", func(err error) bool { return errors.Is(err, errNoTime) },
		},
		"no namespace of ours": {func(*timed) {}, "elsewhere", apierrors.IsNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTimed(time.Hour)
			test.change(s)
			if _, err := NewCounting(s, test.namespace).Wait(t.Context()); !test.is(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}
