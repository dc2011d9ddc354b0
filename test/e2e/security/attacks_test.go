// SPDX-License-Identifier: Apache-2.0

package security

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// expectRefusal checks that an answer of the API server is a refusal.
func expectRefusal(t *testing.T, answer error) {
	t.Helper()
	if answer == nil {
		t.Fatal("it was let through")
	}
	if !apierrors.IsForbidden(answer) && !apierrors.IsInvalid(answer) && !apierrors.IsBadRequest(answer) &&
		!tooLarge(answer) && !apierrors.IsMethodNotSupported(answer) {
		t.Errorf("the answer is no refusal: %v", answer)
	}
}

// tooLarge reports whether the API server says so, or the store behind it.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(err.Error(), "larger than max")
}
