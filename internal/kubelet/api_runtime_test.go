// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upgrade "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/apiserver/pkg/util/proxy"
	clientremote "k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// runtimeStub is a container runtime behind the API server of a provider: it serves streams as a kubelet does, by SPDY,
// and runs programs of its own. Its API server translates WebSockets, with the code of Kubernetes.
type runtimeStub struct {
	t       *testing.T
	kubelet *httptest.Server
	ended   chan string // names of the streams that ended
}

func newRuntimeStub(t *testing.T) *runtimeStub {
	s := &runtimeStub{t: t, ended: make(chan string, 100)}
	s.kubelet = httptest.NewServer(http.HandlerFunc(s.serveSPDY))
	t.Cleanup(s.kubelet.Close)
	return s
}

// ServeHTTP is the API server of the provider.
func (s *runtimeStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !wsstream.IsWebSocketRequest(r) {
		s.serveSPDY(w, r)
		return
	}
	location, err := url.Parse(s.kubelet.URL + r.URL.Path + "?" + r.URL.RawQuery)
	if err != nil {
		s.t.Error(err)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/portforward") {
		upgrades := upgrade.NewUpgradeAwareHandler(location, nil, false, true, s)
		proxy.NewTunnelingHandler(upgrades).ServeHTTP(w, r)
		return
	}
	asked := askedFor(r)
	proxy.NewStreamTranslatorHandler(location, &http.Transport{DisableKeepAlives: true}, 0, proxy.Options{
		Stdin: asked["stdin"], Stdout: asked["stdout"], Stderr: asked["stderr"], Tty: asked["tty"],
	}).ServeHTTP(w, r)
}

// Error implements the ErrorResponder of the API server.
func (s *runtimeStub) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}

// askedFor returns the flags of a request for a stream.
func askedFor(r *http.Request) map[string]bool {
	flags := map[string]bool{}
	for name := range r.URL.Query() {
		flags[name], _ = strconv.ParseBool(r.URL.Query().Get(name))
	}
	return flags
}

// serveSPDY is the kubelet of the provider.
func (s *runtimeStub) serveSPDY(w http.ResponseWriter, r *http.Request) {
	defer func() { s.ended <- r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:] }()
	forwards := strings.HasSuffix(r.URL.Path, "/portforward")
	protocols := []string{remotecommand.StreamProtocolV4Name}
	if forwards {
		protocols = []string{"portforward.k8s.io"}
	}
	if _, err := httpstream.Handshake(r, w, protocols); err != nil {
		s.t.Errorf("handshake: %v", err)
		return
	}
	streams := make(chan httpstream.Stream, 10)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close() //nolint:errcheck // test
	if forwards {
		s.forward(streams, conn.CloseChan())
		return
	}
	s.run(r, streams, conn.CloseChan())
}

// forward answers each connection with what it says, in upper case, before the port.
func (s *runtimeStub) forward(streams <-chan httpstream.Stream, closed <-chan bool) {
	for {
		select {
		case stream := <-streams:
			if stream.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
				_ = stream.Close()
				continue
			}
			go func() {
				said, _ := io.ReadAll(stream)
				say(stream, strings.ToUpper(string(said))+" at "+stream.Headers().Get(corev1.PortHeader))
				_ = stream.Close()
			}()
		case <-closed:
			return
		}
	}
}

// run gathers the streams of a command and runs it.
func (s *runtimeStub) run(r *http.Request, streams <-chan httpstream.Stream, closed <-chan bool) {
	asked := askedFor(r)
	wanted := 1 // for errors
	for _, name := range []string{"stdin", "stdout", "stderr", "tty"} {
		if asked[name] {
			wanted++
		}
	}
	byType := map[string]httpstream.Stream{}
	for range wanted {
		select {
		case stream := <-streams:
			byType[stream.Headers().Get(corev1.StreamType)] = stream
		case <-closed:
			return
		}
	}
	command := r.URL.Query()["command"]
	if len(command) == 0 {
		command = []string{"cat"} // what attach finds
	}
	status := s.program(command, byType, closed)
	raw, err := json.Marshal(status)
	if err != nil {
		s.t.Error(err)
	}
	_, _ = byType[corev1.StreamTypeError].Write(raw)
}

func (s *runtimeStub) program(command []string, streams map[string]httpstream.Stream, closed <-chan bool) metav1.Status {
	switch command[0] {
	case "cat":
		_, _ = io.Copy(streams[corev1.StreamTypeStdout], streams[corev1.StreamTypeStdin])
	case "both":
		say(streams[corev1.StreamTypeStdout], "out")
		say(streams[corev1.StreamTypeStderr], "err")
	case "size":
		size := clientremote.TerminalSize{}
		if err := json.NewDecoder(streams[corev1.StreamTypeResize]).Decode(&size); err != nil {
			s.t.Errorf("decode size: %v", err)
		}
		say(streams[corev1.StreamTypeStdout], fmt.Sprintf("%dx%d", size.Width, size.Height))
	case "hang":
		say(streams[corev1.StreamTypeStdout], "started")
		<-closed
	case "yes":
		piece := bytes.Repeat([]byte("y\n"), 16<<10)
		for {
			if _, err := streams[corev1.StreamTypeStdout].Write(piece); err != nil {
				break
			}
		}
	case "exit":
		return metav1.Status{Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason, Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: command[1]}},
		}}
	}
	return metav1.Status{Status: metav1.StatusSuccess}
}
