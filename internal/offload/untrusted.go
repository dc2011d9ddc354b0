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
