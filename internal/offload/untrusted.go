package offload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	strictjson "sigs.k8s.io/json"

	"github.com/hanse-dev/hanse/api/v1alpha1"
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

// hugeExponent matches quantities such as 1e1000000000, on which the decoder of quantities computes for minutes.
var hugeExponent = regexp.MustCompile(`^\s*[+-]?[0-9.]*[eE][+-]?[0-9]{4,}\s*$`)

var errHugeExponent = errors.New("a number has an exponent of more than three digits")

// checkExponents reads JSON token by token, so that escapes and repeated keys hide nothing, and refuses numbers that
// would keep the decoder of quantities busy.
func checkExponents(raw []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var text string
		switch token := token.(type) {
		case string:
			text = token
		case json.Number:
			text = token.String()
		}
		if hugeExponent.MatchString(text) {
			return errHugeExponent
		}
	}
}

// decode reads what another has written, and refuses unknown fields if that is asked for.
func decode(raw []byte, into any, strict bool) error {
	if len(raw) > v1alpha1.MaxShadowPodBytes {
		return fmt.Errorf("%d bytes, at most %d are taken", len(raw), v1alpha1.MaxShadowPodBytes)
	}
	err := checkExponents(raw)
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
