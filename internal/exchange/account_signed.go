// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// A SignedCount is the body of the statement by which a cluster stands by what it has counted. It has the digest of the entries, which may be
// larger than a statement.
type SignedCount struct {
	// By is what the cluster is in this Account: consumer or provider.
	By string `json:"by"`
	// Day is the one that the Account is of (UTC), and CountedUntil as in the count.
	Day          string `json:"day"`
	CountedUntil string `json:"countedUntil"`
	// Entries is the SHA-256, in hexadecimal, of the JSON of the count with nothing but its entries, without white space, fields in the order
	// of the API reference, and resources by name.
	Entries string `json:"entries"`
}

// CountToSign is what the consumer, or the provider, signs of its count of the day.
func CountToSign(count *v1alpha1.AccountCount, by string, day time.Time) SignedCount {
	text, _ := json.Marshal(v1alpha1.AccountCount{Entries: count.Entries}) //nolint:errchkjson // it has nothing but text
	digest := sha256.Sum256(text)
	signed := SignedCount{By: by, Day: day.UTC().Format(time.DateOnly), Entries: hex.EncodeToString(digest[:])}
	if count.CountedUntil != nil {
		signed.CountedUntil = count.CountedUntil.UTC().Format(time.RFC3339)
	}
	return signed
}

// Same compares what is signed with what the count says: it returns why they differ, as the reason and the message of a condition, which are
// empty if they do not.
func (s SignedCount) Same(body []byte) (reason, message string) {
	said := SignedCount{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &said); err != nil {
		return v1alpha1.ReasonMalformed, err.Error()
	}
	if said != s {
		return v1alpha1.ReasonForged, "the count says something else than what was signed"
	}
	return "", ""
}
