// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	strictjson "sigs.k8s.io/json"

	"github.com/hanse-dev/hanse/api/v1alpha1"
	"github.com/hanse-dev/hanse/internal/sanitize"
)

const (
	maxMessage     = 1024
	maxTermination = 4096
	maxWord        = 128
)

// MaxStatusBytes bounds what a provider tells of the status of one pod. That of an ordinary pod has 3 KB, and one with a hundred
// containers stays far below the bound.
const MaxStatusBytes = 192 << 10

// tooLarge is kept in the place of a status that is larger than that.
const tooLarge = `"too large"`

// DropTooLarge drops the recorded status of a pod that is too large to be read. Inbound says of what is left that it was.
func DropTooLarge(status *v1alpha1.ShadowPodStatus) {
	if status.Pod != nil && len(status.Pod.Raw) > MaxStatusBytes {
		status.Pod.Raw = []byte(tooLarge)
	}
}

// bounded cuts a string to so many bytes at a rune's edge, and makes it valid UTF-8.
func bounded(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "")
}

// quantities are those of a type that decode reads into, by the type.
var quantities sync.Map

func quantitiesIn(t reflect.Type) sanitize.Quantities {
	known, ok := quantities.Load(t)
	if !ok {
		known, _ = quantities.LoadOrStore(t, sanitize.QuantitiesIn(t))
	}
	return known.(sanitize.Quantities) //nolint:forcetypeassert // nothing else is stored
}

// decode reads what another has written, and refuses unknown fields if that is asked for.
func decode(raw []byte, into any, strict bool) error {
	if len(raw) > v1alpha1.MaxShadowPodBytes {
		return fmt.Errorf("%d bytes, at most %d are taken", len(raw), v1alpha1.MaxShadowPodBytes)
	}
	err := quantitiesIn(reflect.TypeOf(into)).Check(raw)
	var unknown []error
	if err == nil {
		unknown, err = strictjson.UnmarshalStrict(raw, into)
	}
	if err == nil && strict && len(unknown) > 0 {
		err = unknown[0]
	}
	if err != nil {
		return errors.New(bounded(err.Error(), maxMessage))
	}
	return nil
}
