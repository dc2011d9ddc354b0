// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

const someMarks = `{"members":{"bremen":{"since":"2026-11-20T12:00:00Z","longestGap":"15m0s","quotes":3,"offers":2,"declined":1,` +
	`"offerTime":"1.2s","handOvers":4,"invitations":1,"refusals":2}}}`

// marksHold is until when the statements of these tests hold.
var marksHold = time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC)

func TestMarksOfMembers(t *testing.T) {
	of := func(fields string) string {
		return `{"members":{"bremen":{"since":"2026-11-20T12:00:00Z",` + fields + `}}}`
	}
	many := func(count int) string {
		var all []string
		for i := range count {
			all = append(all, fmt.Sprintf(`"m%d":{"since":"2026-11-20T12:00:00Z"}`, i))
		}
		return `{"members":{` + strings.Join(all, ",") + `}}`
	}
	for name, test := range map[string]struct{ body, want string }{
		"marks":                              {someMarks, ""},
		"of nobody":                          {`{}`, ""},
		"what a later version says":          {of(`"smiles":7`), ""},
		"of as many as may be":               {many(MaxMarked), ""},
		"of too many":                        {many(MaxMarked + 1), "body.members"},
		"of the broker":                      {`{"members":{"hamburg":{"since":"2026-11-20T12:00:00Z"}}}`, `body.members["hamburg"]`},
		"of what is no cluster":              {`{"members":{"\u001b[2J":{"since":"2026-11-20T12:00:00Z"}}}`, "no member"},
		"of a long id":                       {`{"members":{"` + strings.Repeat("a", 31) + `":{"since":"2026-11-20T12:00:00Z"}}}`, "no member"},
		"since never":                        {`{"members":{"bremen":{}}}`, ".since"},
		"since before all clocks":            {`{"members":{"bremen":{"since":"0000-01-01T00:00:00Z"}}}`, ".since"},
		"since tomorrow":                     {`{"members":{"bremen":{"since":"2026-11-21T12:00:00Z"}}}`, ".since"},
		"since what is no time":              {`{"members":{"bremen":{"since":"noon"}}}`, "body"},
		"a negative gap":                     {of(`"longestGap":"-1s"`), ".longestGap"},
		"a gap of centuries":                 {of(`"longestGap":"1000000h"`), ".longestGap"},
		"a gap that is no time":              {of(`"longestGap":"1e999h"`), "body"},
		"a negative time":                    {of(`"offerTime":"-1s"`), ".offerTime"},
		"offers that take longer than a day": {of(`"offerTime":"24h1s"`), ".offerTime"},
		"negative Quotes":                    {of(`"quotes":-1`), ".quotes"},
		"more Quotes than are counted":       {of(`"quotes":1000000001`), ".quotes"},
		"a huge number":                      {of(`"quotes":1000000000000000000`), "body"},
		"a number in another form":           {of(`"quotes":1e18`), "body"},
		"more offers than Quotes":            {of(`"quotes":1,"offers":2`), ".offers"},
		"more that decline than offers":      {of(`"quotes":1,"offers":1,"declined":2`), ".declined"},
		"negative offers":                    {of(`"offers":-1`), ".offers"},
		"more answers than requests":         {of(`"handOvers":1,"invitations":1,"refusals":1`), ".refusals"},
		"more invitations than requests":     {of(`"handOvers":1,"invitations":2`), ".invitations"},
		"a text":                             {of(`"quotes":"3"`), "body"},
		"a list":                             {`[]`, "body"},
		"nothing":                            {``, "body"},
		"cut off":                            {someMarks[:40], "body"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadMarks([]byte(test.body), "hamburg", marksHold)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func FuzzReadMarks(f *testing.F) {
	f.Add([]byte(someMarks))
	f.Add([]byte(`{"members":{"a":{"since":"2026-11-20T12:00:00Z","quotes":1000000000,"handOvers":-1}},"Members":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		marks, err := ReadMarks(body, "hamburg", marksHold)
		if err != nil {
			return
		}
		if len(marks.Members) > MaxMarked {
			t.Errorf("took marks of %d members", len(marks.Members))
		}
		for id, of := range marks.Members {
			expectPlausible(t, id, &of)
		}
		text, err := json.Marshal(marks)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadMarks(text, "hamburg", marksHold); err != nil {
			t.Errorf("%s was taken, and is not when it is told again: %v", body, err)
		}
	})
}

func expectPlausible(t *testing.T, id string, of *v1alpha1.MemberMarks) {
	t.Helper()
	if id == "hamburg" || len(id) > 30 || of.Since.After(marksHold) {
		t.Errorf("took marks of %q since %s", id, of.Since)
	}
	for _, count := range []int32{of.Quotes, of.Offers, of.Declined, of.Requests, of.Acknowledged, of.HandOvers, of.Invitations, of.Refusals} {
		if count < 0 || count > v1alpha1.MaxMark {
			t.Errorf("took a count of %d", count)
		}
	}
	for _, span := range []*metav1.Duration{of.LongestGap, of.OfferTime} {
		if span != nil && (span.Duration < 0 || span.Duration > maxGap) {
			t.Errorf("took a time of %s", span.Duration)
		}
	}
}
