// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// An object is JSON that is written in parts, so that many megabytes of lies take no memory where they are told.
type object struct {
	kind, namespace, name, uid string
	version                    int
	metadata, rest             string // what else it has, each beginning with a comma
}

func (o object) write(w io.Writer) {
	_, _ = fmt.Fprintf(w, `{"apiVersion":"hanse.dev/v1alpha1","kind":%q,"metadata":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":"%d"`,
		o.kind, o.namespace, o.name, o.uid, o.version)
	for _, part := range []string{o.metadata, "}", o.rest, "}"} {
		_, _ = io.WriteString(w, part)
	}
}

func (o object) event(w io.Writer, kind string) {
	_, _ = fmt.Fprintf(w, `{"type":%q,"object":`, kind)
	o.write(w)
	_, _ = io.WriteString(w, "}")
}

// invented is an object of the kind that is asked for, of which nobody has heard.
func invented(r *http.Request, number int) object {
	name := fmt.Sprintf("invented-%d", number)
	return object{kind: kinds[resourceOf(r)], namespace: namespaceOf(r), name: name, uid: name, version: number + 1}
}

// padded is what makes an object so many bytes large.
func padded(bytes int) string {
	return `,"annotations":{"padding":"` + strings.Repeat("x", bytes) + `"}`
}

// page returns what writes so many invented objects of so many bytes, with other names on each page.
func page(count, bytes int) func(w io.Writer, r *http.Request, page int) {
	padding := padded(bytes)
	return func(w io.Writer, r *http.Request, page int) {
		for i := range count {
			if i > 0 {
				_, _ = io.WriteString(w, ",")
			}
			o := invented(r, page*count+i)
			o.metadata = padding
			o.write(w)
		}
	}
}

// repeated is a list of so many equal parts, without its brackets.
func repeated(part string, count int) string {
	return strings.TrimSuffix(strings.Repeat(part+",", count), ",")
}
