// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"
)

// A second is what became of the requests that were sent within one.
type second struct {
	At      time.Time     `json:"at"`
	Sent    int           `json:"sent"`
	Failed  int           `json:"failed"`
	Slowest time.Duration `json:"slowest"`          // in nanoseconds
	Errors  []string      `json:"errors,omitempty"` // some of them
}

// A loader asks for pages and orders by turns, and remembers which orders were confirmed.
type loader struct {
	target, name string
	mutex        sync.Mutex
	last         int // the number of the last order
	confirmed    map[int]bool
}

// load asks at a constant rate, whether or not there are answers, and prints a line of JSON for each second.
func load(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	target := flags.String("target", "http://web", "whom to ask")
	rate := flags.Int("rate", 25, "requests in a second")
	listen := flags.String("listen", ":8080", "where to tell which orders are lost")
	if err := flags.Parse(args); err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	l := &loader{target: *target, name: name, confirmed: map[int]bool{}}
	go l.run(ctx, *rate)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /lost", answerWith(l.lost))
	return serve(ctx, *listen, mux)
}

// run begins a second each second. One whose requests take longer goes on beside the next.
func (l *loader) run(ctx context.Context, rate int) {
	for begin := time.NewTicker(time.Second); ; {
		go l.second(ctx, rate)
		select {
		case <-ctx.Done():
			return
		case <-begin.C:
		}
	}
}

func (l *loader) second(ctx context.Context, rate int) {
	s := second{At: time.Now().UTC(), Sent: rate}
	results := make(chan result, rate)
	next := time.NewTicker(time.Second / time.Duration(rate))
	defer next.Stop()
	for i := range rate {
		go func() { results <- l.ask(ctx, i%2 == 0) }()
		<-next.C
	}
	for range rate {
		s.add(<-results)
	}
	_ = json.NewEncoder(os.Stdout).Encode(s)
}

// A result is what became of one request.
type result struct {
	took time.Duration
	err  error
}

func (s *second) add(r result) {
	s.Slowest = max(s.Slowest, r.took)
	if r.err == nil {
		return
	}
	s.Failed++
	if len(s.Errors) < 3 {
		s.Errors = append(s.Errors, r.err.Error())
	}
}

// ask sends one request.
func (l *loader) ask(ctx context.Context, order bool) result {
	began := time.Now()
	if !order {
		_, err := fetch(ctx, http.MethodGet, l.target)
		return result{time.Since(began), err}
	}
	number := l.next()
	_, err := fetch(ctx, http.MethodPost, fmt.Sprintf("%s/orders?client=%s&number=%d", l.target, url.QueryEscape(l.name), number))
	if err == nil {
		l.confirm(number)
	}
	return result{time.Since(began), err}
}

func (l *loader) next() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.last++
	return l.last
}

func (l *loader) confirm(number int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.confirmed[number] = true
}

// A check says how many orders were confirmed, and which of these are not in the database.
type check struct {
	Confirmed int   `json:"confirmed"`
	Lost      []int `json:"lost"`
}

func (l *loader) lost(r *http.Request) (*check, error) {
	l.mutex.Lock()
	missing := map[int]bool{}
	for number := range l.confirmed {
		missing[number] = true
	}
	l.mutex.Unlock()
	found := &check{Confirmed: len(missing), Lost: []int{}}
	body, err := fetch(r.Context(), http.MethodGet, l.target+"/orders?client="+url.QueryEscape(l.name))
	if err != nil {
		return nil, err
	}
	var there []int
	if err := json.Unmarshal(body, &there); err != nil {
		return nil, err
	}
	for _, number := range there {
		delete(missing, number)
	}
	for number := range missing {
		found.Lost = append(found.Lost, number)
	}
	return found, nil
}
