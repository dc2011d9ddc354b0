// SPDX-License-Identifier: Apache-2.0

package netprobe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"
)

// Port is where pods serve unless they are told otherwise.
const Port = 9474

// A Kind is what a question is about.
type Kind string

const (
	// Greet asks over HTTP who serves at the target.
	Greet Kind = "greet"
	// Resolve looks the target up in DNS.
	Resolve Kind = "resolve"
	// API asks the API server at the target, whose certificate must be valid for its name.
	API Kind = "api"
	// Packet sends a packet over UDP that nobody may split, and waits for the answer.
	Packet Kind = "packet"
	// Throughput sends as much as it can over TCP.
	Throughput Kind = "throughput"
	// Latency measures round trips over UDP, one at a time.
	Latency Kind = "latency"
	// Rate sends as many small packets over UDP as are answered.
	Rate Kind = "rate"
)

// A Question is one thing to try.
type Question struct {
	Kind   Kind   `json:"kind"`
	Target string `json:"target"` // host:port; of Resolve a name
	// Size is how long a Packet is, in bytes, with its IP header.
	Size int `json:"size,omitempty"`
	// Streams is how many connections Throughput uses at once. None means one.
	Streams int `json:"streams,omitempty"`
	// Seconds is how long Throughput and Rate measure.
	Seconds int `json:"seconds,omitempty"`
	// CA are the certificate authorities of the API server, in PEM.
	CA string `json:"ca,omitempty"`
}

// An Answer is what came of a question. Which fields it has depends on the kind.
type Answer struct {
	// Error says what went wrong. The rest counts for nothing then.
	Error string `json:"error,omitempty"`
	// Name is what the server calls itself, and Source the address that it sees us at.
	Name   string `json:"name,omitempty"`
	Source string `json:"source,omitempty"`
	// Addresses are those that DNS has.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Fits is the size of the largest packet that passes whole, where that of the question does not and the network said so.
	Fits int `json:"fits,omitempty"`
	// BytesPerSecond is what Throughput measured.
	BytesPerSecond float64 `json:"bytesPerSecond,omitempty"`
	// Median and P99 are round trips.
	Median time.Duration `json:"median,omitempty"`
	P99    time.Duration `json:"p99,omitempty"`
	// LostPercent is how many of a hundred packets were not answered.
	LostPercent float64 `json:"lostPercent,omitempty"`
	// PacketsPerSecond is how many packets were answered.
	PacketsPerSecond float64 `json:"packetsPerSecond,omitempty"`
}

const (
	maxText      = 1 << 20 // bytes of questions or answers
	maxQuestions = 64
	maxSize      = 9000
	minSize      = 64
	maxStreams   = 16
	maxSeconds   = 60
)

// Validate returns an error if the question makes no sense.
func (q Question) Validate() error {
	switch {
	case q.Target == "":
		return fmt.Errorf("%s: the target is missing", q.Kind)
	case q.Kind == Packet && (q.Size < minSize || q.Size > maxSize):
		return fmt.Errorf("a packet has %d to %d bytes, not %d", minSize, maxSize, q.Size)
	case q.Streams < 0 || q.Streams > maxStreams:
		return fmt.Errorf("there are at most %d streams", maxStreams)
	case (q.Kind == Throughput || q.Kind == Rate) && (q.Seconds < 1 || q.Seconds > maxSeconds):
		return fmt.Errorf("a measurement takes 1 to %d seconds", maxSeconds)
	default:
		return nil
	}
}

// ReadQuestions reads a list of questions in JSON.
func ReadQuestions(from io.Reader) ([]Question, error) {
	var questions []Question
	if err := decode(from, &questions); err != nil {
		return nil, fmt.Errorf("read questions: %w", err)
	}
	if len(questions) > maxQuestions {
		return nil, fmt.Errorf("there are at most %d questions, not %d", maxQuestions, len(questions))
	}
	for _, q := range questions {
		if err := q.Validate(); err != nil {
			return nil, err
		}
	}
	return questions, nil
}

var errCount = errors.New("there is not one answer for each question")

// ReadAnswers reads the answers to as many questions, in JSON. They may come from a pod at a peer, so their texts are to be
// printed with care, and their numbers are claims.
func ReadAnswers(from io.Reader, questions int) ([]Answer, error) {
	var answers []Answer
	if err := decode(from, &answers); err != nil {
		return nil, fmt.Errorf("read answers: %w", err)
	}
	if len(answers) != questions {
		return nil, errCount
	}
	return answers, nil
}

func decode(from io.Reader, into any) error {
	return json.NewDecoder(io.LimitReader(from, maxText)).Decode(into)
}
