// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kinds are the kinds whose lists and watches an attack answers, by resource.
var kinds = map[string]string{
	"advertisements": "Advertisement", "namespacemappings": "NamespaceMapping", "shadowpods": "ShadowPod",
}

// SlowWrites has every write hang for so long before it is done.
func SlowWrites(hang time.Duration) Lie {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			pauseFor(r.Context(), hang)
		}
		return false
	}
}

// Floods has each watch of a resource, such as shadowpods, show so many invented objects, and then change one of them after
// each pause for as long as somebody watches.
func Floods(resource string, count int, pause time.Duration, invent func(i, version int) any) Lie {
	return Events(resource, 0, func(w io.Writer, r *http.Request, i int) {
		kind := "ADDED"
		if i >= count {
			kind = "MODIFIED"
			pauseFor(r.Context(), pause)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": invent(i%count, i+1)})
	})
}

// Events has each watch of a resource, or of all if it is "", answered with events that are written one after the other, with
// a pause behind each, for as long as somebody watches.
func Events(resource string, pause time.Duration, write func(w io.Writer, r *http.Request, i int)) Lie {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !isWatch(r) || !isOf(r, resource) {
			return false
		}
		flush := startEvents(w)
		for i := 0; r.Context().Err() == nil; i++ {
			write(w, r, i)
			if flush() != nil {
				break
			}
			pauseFor(r.Context(), pause)
		}
		return true
	}
}

// Expires has each watch of a resource, or of all if it is "", end at once, because its resource version is too old.
func Expires(resource string) Lie {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !isWatch(r) || !isOf(r, resource) {
			return false
		}
		flush := startEvents(w)
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone,
		}})
		_ = flush()
		return true
	}
}

// ListsWithoutEnd has each page of a list of a resource, or of all if it is "", promise another one. The items of a page are
// written with commas between them.
func ListsWithoutEnd(resource string, items func(w io.Writer, r *http.Request, page int)) Lie {
	var pages atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !isList(r) || !isOf(r, resource) {
			return false
		}
		page := int(pages.Add(1))
		writeList(w, r, fmt.Sprintf("page-%d", page), func() { items(w, r, page) })
		return true
	}
}

// Lists has each list of a resource, or of all if it is "", answered with items that are written with commas between them.
func Lists(resource string, items func(w io.Writer, r *http.Request)) Lie {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !isList(r) || !isOf(r, resource) {
			return false
		}
		writeList(w, r, "", func() { items(w, r) })
		return true
	}
}

func writeList(w http.ResponseWriter, r *http.Request, next string, items func()) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"apiVersion":"hanse.dev/v1alpha1","kind":"%sList","metadata":{"resourceVersion":"1","continue":%q},"items":[`,
		kinds[resourceOf(r)], next)
	items()
	_, _ = io.WriteString(w, "]}")
}

// Answers has every request answered in the same way.
func Answers(write func(w http.ResponseWriter, r *http.Request)) Lie {
	return func(w http.ResponseWriter, r *http.Request) bool {
		write(w, r)
		return true
	}
}

// Either tells the first of the lies that there is for a request.
func Either(lies ...Lie) Lie {
	return func(w http.ResponseWriter, r *http.Request) bool {
		for _, lie := range lies {
			if lie(w, r) {
				return true
			}
		}
		return false
	}
}

func isWatch(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Query().Get("watch") != ""
}

func isList(r *http.Request) bool {
	return r.Method == http.MethodGet && !isWatch(r) && kinds[resourceOf(r)] != ""
}

func isOf(r *http.Request, resource string) bool {
	of := resourceOf(r)
	return kinds[of] != "" && (resource == "" || resource == of)
}

// resourceOf returns the last part of the path, which is the resource of a list or of a watch.
func resourceOf(r *http.Request) string { return r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] }

// namespaceOf returns the namespace that the request is about.
func namespaceOf(r *http.Request) string {
	_, rest, _ := strings.Cut(r.URL.Path, "/namespaces/")
	namespace, _, _ := strings.Cut(rest, "/")
	return namespace
}

func pauseFor(ctx context.Context, d time.Duration) {
	if d == 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
