// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Metrics are values that a server shows at one moment.
type Metrics map[string]float64 // series, such as workqueue_depth{name="pod"} → its value

// Metrics reads what the server shows.
func (s *Server) Metrics(ctx context.Context) (Metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.metrics+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read metrics of %s: %w", s.Name, err)
	}
	defer func() { _ = response.Body.Close() }() // it was read
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics of %s: %s", s.Name, response.Status)
	}
	return parseMetrics(response.Body)
}

func parseMetrics(text io.Reader) (Metrics, error) {
	m := Metrics{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		end := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || end < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("read metric %q: %w", line, err)
		}
		m[line[:end]] = value
	}
	return m, lines.Err()
}

// Sum adds up the series of a name that have the labels, each such as controller="pod".
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum := 0.0
	for series, value := range m {
		if its, rest, _ := strings.Cut(series, "{"); its == name && hasAll(rest, labels) {
			sum += value
		}
	}
	return sum
}

func hasAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// calm is how many looks in a row, a second apart, must find a server idle.
const calm = 3

// Settle waits until the server has nothing to do, and has done as much of it as enough says, which may be nil.
func (s *Server) Settle(ctx context.Context, enough func(Metrics) error) error {
	quiet := 0
	return Until(ctx, s.Name+" has nothing to do", time.Second, waitTimeout, func(ctx context.Context) error {
		m, err := s.Metrics(ctx)
		if err != nil {
			return err
		}
		if enough != nil {
			if err := enough(m); err != nil {
				return err
			}
		}
		if todo := m.Sum("workqueue_depth") + m.Sum("controller_runtime_active_workers"); todo > 0 {
			quiet = 0
			return fmt.Errorf("%.0f things are to do", todo)
		}
		if quiet++; quiet < calm {
			return errors.New("it has not been idle for long")
		}
		return nil
	})
}

// collections is how often garbage must be collected until what is left is in use: what pools hold survives one.
const collections = 3

// Live returns how many bytes of the server's heap are in use, and the metrics of that moment.
func (s *Server) Live(ctx context.Context) (float64, Metrics, error) {
	const collected = "go_gc_cycles_total_gc_cycles_total"
	first, err := s.Metrics(ctx)
	if err != nil {
		return 0, nil, err
	}
	var now Metrics
	// To show metrics makes garbage, so this does not take long; an idle process collects it every two minutes.
	err = Until(ctx, s.Name+" has collected its garbage", 50*time.Millisecond, waitTimeout, func(ctx context.Context) error {
		if now, err = s.Metrics(ctx); err != nil {
			return err
		}
		if done := now.Sum(collected) - first.Sum(collected); done < collections {
			return fmt.Errorf("it has done so %.0f times", done)
		}
		return nil
	})
	return now.Sum("go_gc_heap_live_bytes"), now, err
}
