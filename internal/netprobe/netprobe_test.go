// SPDX-License-Identifier: Apache-2.0

package netprobe

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
)

// serve runs a server on loopback until the test ends, and returns its address.
func serve(t *testing.T, network string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Listen(ctx, "stock", network)
	if err != nil {
		cancel()
		t.Skipf("no %s here: %v", network, err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s.Address()
}

func ask(t *testing.T, q Question) Answer {
	t.Helper()
	return Prober{Clock: clock.RealClock{}}.Ask(t.Context(), []Question{q})[0]
}

func TestAServerAnswersOverLoopback(t *testing.T) {
	for _, loopback := range []string{"127.0.0.1:0", "[::1]:0"} {
		target := serve(t, loopback)
		for name, test := range map[string]struct {
			question Question
			fine     func(Answer) bool
		}{
			"it says who it is and sees who asks": {Question{Kind: Greet}, func(a Answer) bool {
				host, _, err := net.SplitHostPort(a.Source)
				return err == nil && a.Name == "stock" && strings.Contains(target, host)
			}},
			"a packet of 1400 bytes passes": {Question{Kind: Packet, Size: 1400}, func(a Answer) bool { return a.Fits == 0 }},
			"a packet of 8000 bytes passes": {Question{Kind: Packet, Size: 8000}, func(a Answer) bool { return a.Fits == 0 }},
			"round trips are measured":      {Question{Kind: Latency}, func(a Answer) bool { return a.Median > 0 && a.P99 >= a.Median }},
			"throughput of one stream":      {Question{Kind: Throughput, Seconds: 1}, func(a Answer) bool { return a.BytesPerSecond > 1e6 }},
			"throughput of four streams":    {Question{Kind: Throughput, Seconds: 1, Streams: 4}, func(a Answer) bool { return a.BytesPerSecond > 1e6 }},
			"packets a second":              {Question{Kind: Rate, Seconds: 1}, func(a Answer) bool { return a.PacketsPerSecond > 100 }},
		} {
			t.Run(loopback+" "+name, func(t *testing.T) {
				test.question.Target = target
				if got := ask(t, test.question); got.Error != "" || !test.fine(got) {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

func TestWhatDoesNotAnswerIsAnError(t *testing.T) {
	closed := closedAddress(t)
	for name, q := range map[string]Question{
		"nobody serves HTTP":        {Kind: Greet, Target: closed},
		"nobody takes bytes":        {Kind: Throughput, Target: closed, Seconds: 1},
		"nobody takes packets":      {Kind: Packet, Target: closed, Size: 100},
		"nobody measures":           {Kind: Latency, Target: closed},
		"nobody counts":             {Kind: Rate, Target: closed, Seconds: 1},
		"the API has no authority":  {Kind: API, Target: closed},
		"a name does not exist":     {Kind: Resolve, Target: "nowhere.invalid"},
		"it is no question":         {Kind: "beauty", Target: closed},
		"a packet is without size":  {Kind: Packet, Target: closed},
		"a measurement has no time": {Kind: Rate, Target: closed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := ask(t, q); got.Error == "" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// closedAddress is an address of loopback at which nobody listens.
func closedAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func TestTheAPIServerMustShowItsCertificate(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "who are you?", http.StatusUnauthorized)
	}))
	defer server.Close()
	target := strings.TrimPrefix(server.URL, "https://")
	ours := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	if got := ask(t, Question{Kind: API, Target: target, CA: ours}); got.Error != "" {
		t.Errorf("its own: %+v", got)
	}
	_, port, _ := net.SplitHostPort(target)
	if got := ask(t, Question{Kind: API, Target: "localhost:" + port, CA: ours}); got.Error == "" {
		t.Errorf("another name: %+v", got)
	}
}

func TestTheLargestPacketIsFound(t *testing.T) {
	tooLong := &net.OpError{Op: "write", Err: syscall.EMSGSIZE}
	for name, test := range map[string]struct {
		takes  int  // bytes that pass
		tells  bool // the path says so
		claims int  // what it says
		want   int  // 0 is an error
	}{
		"all passes":                       {takes: 9000, want: 8000},
		"the path tells what it takes":     {takes: 1420, tells: true, claims: 1420, want: 1420},
		"the path drops in silence":        {takes: 1420},
		"the path claims more than passes": {takes: 1420, tells: true, claims: 9000},
		"the path claims nonsense":         {takes: 1420, tells: true, claims: 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := largest(8000, func(size int, _ uint64) error {
				switch {
				case size <= test.takes:
					return nil
				case test.tells:
					return tooLong
				default:
					return errSilence
				}
			}, func() (int, error) { return test.claims, nil })
			if got != test.want || (err != nil) != (test.want == 0) {
				t.Errorf("%d, %v, want %d", got, err, test.want)
			}
		})
	}
}

func TestALostPacketIsSentAgain(t *testing.T) {
	got, err := largest(1400, func(_ int, number uint64) error {
		if number < 2 {
			return errSilence
		}
		return nil
	}, func() (int, error) { return 0, errors.New("not asked") })
	if got != 1400 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
}

func TestQuestionsAreRead(t *testing.T) {
	want := []Question{{Kind: Packet, Target: "10.0.0.1:9474", Size: 1400}}
	got, err := ReadQuestions(strings.NewReader(`[{"kind":"packet","target":"10.0.0.1:9474","size":1400}]`))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for name, text := range map[string]string{
		"no JSON":            "packet",
		"no target":          `[{"kind":"greet"}]`,
		"a giant packet":     `[{"kind":"packet","target":"a:1","size":90000}]`,
		"many streams":       `[{"kind":"throughput","target":"a:1","seconds":1,"streams":1000}]`,
		"a day of measuring": `[{"kind":"rate","target":"a:1","seconds":86400}]`,
		"many questions":     "[" + strings.Repeat(`{"kind":"greet","target":"a:1"},`, 99) + `{"kind":"greet","target":"a:1"}]`,
	} {
		if _, err := ReadQuestions(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzReply(f *testing.F) {
	good := make([]byte, smallest)
	fill(good, 7)
	f.Add(good)
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		reply := appendReply(nil, datagram)
		if len(reply) >= len(datagram) && len(reply) > 0 {
			t.Errorf("%d bytes are answered by %d", len(datagram), len(reply))
		}
		if _, ok := numberOf(reply, len(datagram)); ok != (len(reply) > 0) {
			t.Errorf("the answer to %q cannot be read", datagram)
		}
		numberOf(datagram, smallest)
	})
}

func FuzzReadAnswers(f *testing.F) {
	f.Add([]byte(`[{"name":"stock","addresses":["10.0.0.1"],"median":5}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if answers, err := ReadAnswers(bytes.NewReader(text), 1); err == nil && len(answers) != 1 {
			t.Errorf("%d answers", len(answers))
		}
	})
}
