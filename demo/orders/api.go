// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A summary is what the API tells of the shop, and of the pod that answers.
type summary struct {
	Greeting string `json:"greeting"`
	Orders   int    `json:"orders"`
	User     string `json:"user"`    // whose credential the pod knows as the newest
	API      string `json:"api"`     // the pod
	Version  string `json:"version"` // of the pod
}

// store keeps orders in the database, and their number in the cache for a second.
type store struct {
	db    *sql.DB
	cache *redis.Client
	// greeting and credentials are files that may change at any time.
	greeting    string
	credentials credentialFile
}

func api(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("api", flag.ContinueOnError)
	listen := flags.String("listen", ":8080", "where to listen")
	databaseAt := flags.String("database", "database:5432", "where the database is")
	cacheAt := flags.String("cache", "cache:6379", "where the cache is")
	greeting := flags.String("greeting", "/etc/orders/config/greeting", "what to greet with")
	file := flags.String("credentials", "/etc/orders/secret/credentials", "how to log in to database and cache")
	if err := flags.Parse(args); err != nil {
		return err
	}
	credentials := credentialFile(*file)
	s := &store{openDatabase(*databaseAt, credentials), openCache(*cacheAt, credentials), *greeting, credentials}
	defer func() { _, _ = s.db.Close(), s.cache.Close() }()
	return serve(ctx, *listen, s.handler())
}

func (s *store) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", answerWith(s.summary))
	mux.HandleFunc("GET /orders", answerWith(s.orders))
	mux.HandleFunc("POST /orders", answerWith(s.order))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client that gives up does not end what it has begun: that would close a connection to the database, and when all is slow, all would
		// have to log in anew.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
		defer cancel()
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

// answerWith answers with what the function returns, as JSON.
func answerWith[T any](do func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result, err := do(r)
		if errors.Is(err, errBadRequest) {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(result)
	}
}

var errBadRequest = errors.New("an order needs a client and a number")

// order writes an order. Who orders the same again has one order, so a client may ask again when it got no answer.
func (s *store) order(r *http.Request) (string, error) {
	number, err := strconv.Atoi(r.FormValue("number"))
	if err != nil || r.FormValue("client") == "" {
		return "", errBadRequest
	}
	_, err = s.db.ExecContext(r.Context(), "INSERT INTO orders (client, number) VALUES ($1, $2) ON CONFLICT DO NOTHING", r.FormValue("client"), number)
	return "confirmed", err
}

// orders are the numbers of all orders of a client.
func (s *store) orders(r *http.Request) ([]int, error) {
	rows, err := s.db.QueryContext(r.Context(), "SELECT number FROM orders WHERE client = $1 ORDER BY number", r.FormValue("client"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := []int{}
	for rows.Next() {
		var number int
		if err := rows.Scan(&number); err != nil {
			return nil, err
		}
		all = append(all, number)
	}
	return all, rows.Err()
}

func (s *store) summary(r *http.Request) (*summary, error) {
	greeting, err := os.ReadFile(s.greeting)
	if err != nil {
		return nil, err
	}
	credentials, err := s.credentials.read()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	count, err := s.count(r.Context())
	return &summary{strings.TrimSpace(string(greeting)), count, credentials[0].user, host, os.Getenv("VERSION")}, err
}

// count asks the cache first. It need not be there.
func (s *store) count(ctx context.Context) (int, error) {
	if cached, err := s.cache.Get(ctx, "orders").Int(); err == nil {
		return cached, nil
	}
	var count int
	err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&count)
	if err == nil {
		_ = s.cache.Set(ctx, "orders", count, time.Second).Err()
	}
	return count, err
}
