// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"flag"
	"html/template"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

var page = template.Must(template.New("").Parse(`<!doctype html>
<title>Orders</title>
<h1>{{.Greeting}}</h1>
<p>{{.Orders}} orders</p>
<p>web {{.Web}}, version {{.WebVersion}}; api {{.API}}, version {{.Version}}, user {{.User}}</p>
`))

// web shows a page, which is made of what the API says, and passes orders on to it.
func web(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("web", flag.ContinueOnError)
	listen := flags.String("listen", ":8080", "where to listen")
	apiAt := flags.String("api", "http://api", "where the API is")
	if err := flags.Parse(args); err != nil {
		return err
	}
	target, err := url.Parse(*apiAt)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	orders := httputil.NewSingleHostReverseProxy(target)
	orders.Transport = client.Transport
	mux.Handle("/orders", orders)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		var shown struct {
			summary
			Web, WebVersion string
		}
		body, err := fetch(r.Context(), http.MethodGet, *apiAt)
		if err == nil {
			err = json.Unmarshal(body, &shown.summary)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		shown.Web, shown.WebVersion = host, os.Getenv("VERSION")
		_ = page.Execute(w, shown)
	})
	return serve(ctx, *listen, mux)
}
