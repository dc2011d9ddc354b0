// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

// rules returns the rules that were broken, in order.
func rules(found []violation) []string {
	var names []string
	for _, v := range found {
		names = append(names, v.rule)
	}
	return names
}

func expectRules(t *testing.T, found []violation, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, rules(found)); diff != "" {
		t.Errorf("broken rules: %s\n%v", diff, found)
	}
}

// at is a moment of the cases.
func at(seconds float64) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func lived(home, instance string, from, till float64) run {
	return run{home: home, instance: instance, from: at(from), till: at(till)}
}

func alive(home, instance string, from float64) run {
	return run{home: home, instance: instance, from: at(from), lives: true}
}

func completed(r run, when float64) run {
	r.completed = at(when)
	return r
}

func TestCheckSingle(t *testing.T) {
	for name, test := range map[string]struct {
		runs []run
		want []string
	}{
		"nothing":                           {},
		"one after the other":               {[]run{lived("h", "a", 0, 5), lived("h", "b", 5.1, 9)}, nil},
		"an end that was noticed late":      {[]run{lived("h", "a", 0, 5), alive("h", "b", 4.8)}, nil},
		"two pods":                          {[]run{alive("h", "a", 0), alive("i", "b", 1)}, nil},
		"two that live":                     {[]run{alive("h", "a", 0), alive("h", "b", 60)}, []string{ruleSingle}},
		"two for some seconds":              {[]run{lived("h", "a", 0, 8), lived("h", "b", 5, 9)}, []string{ruleSingle}},
		"the second ended before the first": {[]run{lived("h", "a", 0, 8), lived("h", "b", 5, 6)}, []string{ruleSingle}},
		"not next to each other":            {[]run{lived("h", "a", 0, 20), lived("i", "x", 1, 2), lived("h", "b", 10, 11), alive("h", "c", 21)}, []string{ruleSingle}},
	} {
		t.Run(name, func(t *testing.T) { expectRules(t, checkSingle(test.runs), test.want...) })
	}
}

func TestCheckRanAgain(t *testing.T) {
	succeeded := func(number uint64, uid, home string) version {
		return version{number: number, uid: uid, name: "twin/p", home: home, phase: corev1.PodSucceeded}
	}
	pending := func(number uint64, uid, home string) version {
		return version{number: number, uid: uid, name: "twin/p", home: home, phase: corev1.PodPending}
	}
	leaving := succeeded(2, "r1", "h")
	leaving.leaving = true
	once := leaving
	once.once = true
	for name, test := range map[string]struct {
		runs    []run
		history []version
		want    []string
	}{
		"completed once":                 {runs: []run{completed(lived("h", "a", 0, 5), 5)}},
		"restarted, then completed":      {runs: []run{lived("h", "a", 0, 2), completed(lived("h", "b", 3, 5), 5)}},
		"two that completed":             {runs: []run{completed(lived("h", "a", 0, 5), 5), completed(lived("i", "b", 6, 9), 9)}},
		"started again":                  {runs: []run{completed(lived("h", "a", 0, 5), 5), lived("h", "b", 6, 7)}, want: []string{ruleRanAgain}},
		"succeeded, as all should":       {history: []version{pending(1, "r1", "h"), succeeded(2, "r1", "h"), succeeded(3, "r1", "h")}},
		"made again after success":       {history: []version{succeeded(2, "r1", "h"), pending(3, "r2", "h")}, want: []string{ruleRanAgain}},
		"made again after deletion":      {history: []version{leaving, succeeded(3, "r1", "h"), pending(4, "r2", "h")}},
		"work done while it was deleted": {history: []version{once, pending(4, "r2", "h")}, want: []string{ruleRanAgain}},
		"another home pod of that name":  {history: []version{succeeded(2, "r1", "h"), pending(3, "r2", "i")}},
		"home pods are not made by us":   {history: []version{succeeded(2, "r1", ""), pending(3, "r2", "")}},
		"both say so":                    {[]run{completed(lived("h", "a", 0, 5), 5), lived("h", "b", 6, 7)}, []version{succeeded(2, "r1", "h"), pending(3, "r2", "h")}, []string{ruleRanAgain, ruleRanAgain}},
		"a third time is a second fault": {runs: []run{completed(lived("h", "a", 0, 5), 5), lived("h", "b", 6, 7), lived("h", "c", 8, 9)}, want: []string{ruleRanAgain, ruleRanAgain}},
	} {
		t.Run(name, func(t *testing.T) {
			expectRules(t, checkRanAgain(test.runs, map[string][]version{"hamburg": test.history}), test.want...)
		})
	}
}

func TestCheckIdentity(t *testing.T) {
	of := func(pod string, r run) run {
		r.pod = pod
		return r
	}
	for name, test := range map[string]struct {
		runs []run
		want []string
	}{
		"one after the other":       {[]run{of("db-0", lived("h", "a", 0, 5)), of("db-0", alive("i", "b", 5.2))}, nil},
		"an end noticed late":       {[]run{of("db-0", lived("h", "a", 0, 5)), of("db-0", alive("i", "b", 4.8))}, nil},
		"two names":                 {[]run{of("db-0", alive("h", "a", 0)), of("db-1", alive("i", "b", 1))}, nil},
		"two containers of one pod": {[]run{of("db-0", alive("h", "a", 0)), of("db-0", alive("h", "b", 1))}, nil},
		"two pods of one name":      {[]run{of("db-0", lived("h", "a", 0, 5)), of("db-0", alive("i", "b", 3))}, []string{ruleSingle}},
		"both live":                 {[]run{of("db-0", alive("h", "a", 0)), of("db-0", alive("i", "b", 60))}, []string{ruleSingle}},
	} {
		t.Run(name, func(t *testing.T) { expectRules(t, checkIdentity(test.runs), test.want...) })
	}
}

func TestCheckJobs(t *testing.T) {
	created := operation{verb: createJob, on: object{made: createJob, name: "job-3", replicas: 2}}
	deleted := operation{verb: deleteObject, on: created.on}
	done := func(pod string, when float64) run {
		r := completed(lived(pod, pod, 0, when), when)
		r.pod = pod
		return r
	}
	failed := lived("h", "x", 0, 1)
	failed.pod = "job-3-bbbbb"
	for name, test := range map[string]struct {
		runs []run
		load []operation
		want []string
	}{
		"all is done":              {[]run{done("job-3-aaaaa", 1), done("job-3-bbbbb", 2), done("job-4-aaaaa", 2)}, []operation{created}, nil},
		"one was tried again":      {[]run{done("job-3-aaaaa", 1), failed, done("job-3-ccccc", 2)}, []operation{created}, nil},
		"one is not done":          {[]run{done("job-3-aaaaa", 1), failed}, []operation{created}, []string{ruleLost}},
		"deleted before all ended": {[]run{done("job-3-aaaaa", 1), failed}, []operation{created, deleted}, nil},
		"one too many":             {[]run{done("job-3-aaaaa", 1), done("job-3-bbbbb", 1), done("job-3-ccccc", 2)}, []operation{created, deleted}, []string{ruleRanAgain}},
	} {
		t.Run(name, func(t *testing.T) { expectRules(t, checkJobs(test.runs, test.load), test.want...) })
	}
}

func TestCheckImages(t *testing.T) {
	pod := func(number uint64, image string, restarts int32) version {
		return version{number: number, uid: "r1", name: "twin/web", home: "h", image: image, restarts: map[string]int32{"main": restarts}}
	}
	change := []operation{{verb: changeImage, on: object{name: "web"}}}
	for name, test := range map[string]struct {
		history []version
		load    []operation
		want    []string
	}{
		"as the provider wants":  {[]version{pod(1, mirrored+"v1", 0), pod(2, mirrored+"v1", 0)}, nil, nil},
		"changed by a user":      {[]version{pod(1, mirrored+"v1", 0), pod(2, image+"v2", 0), pod(3, image+"v2", 1)}, change, nil},
		"put back":               {[]version{pod(1, mirrored+"v1", 0), pod(2, image+"v1", 0)}, nil, []string{ruleRestart}},
		"started again":          {[]version{pod(1, mirrored+"v1", 0), pod(2, mirrored+"v1", 1), pod(3, mirrored+"v1", 1)}, nil, []string{ruleRestart}},
		"put back and restarted": {[]version{pod(1, mirrored+"v1", 0), pod(2, image+"v1", 1)}, nil, []string{ruleRestart, ruleRestart}},
	} {
		t.Run(name, func(t *testing.T) { expectRules(t, checkImages("hamburg", test.history, test.load), test.want...) })
	}
}

func TestEndedWithTwin(t *testing.T) {
	pod := func(node string, phase corev1.PodPhase, reason string) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase, Reason: reason}}
	}
	p := plan{steps: []step{{kind: deleteTwin, where: "hamburg"}, {kind: deleteRemote, where: "bremen"}}}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"its provider deleted a twin":         {pod("hanse-hamburg", corev1.PodFailed, v1alpha1.ReasonNamespaceTerminating), true},
		"it failed for another reason":        {pod("hanse-hamburg", corev1.PodFailed, "RemadeTooOften"), false},
		"it is said to run":                   {pod("hanse-hamburg", corev1.PodRunning, v1alpha1.ReasonNamespaceTerminating), false},
		"its provider has not deleted a twin": {pod("hanse-bremen", corev1.PodFailed, v1alpha1.ReasonNamespaceTerminating), false},
		"it ran at home":                      {pod("worker", corev1.PodFailed, v1alpha1.ReasonNamespaceTerminating), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := endedWithTwin(test.pod, p); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestCheckTwoRemotes(t *testing.T) {
	pod := func(number uint64, name, uid, home string, gone bool) version {
		return version{number: number, uid: uid, name: name, home: home, gone: gone}
	}
	for name, test := range map[string]struct {
		history []version
		want    []string
	}{
		"one":                    {[]version{pod(1, "a/p", "r1", "h", false), pod(2, "a/p", "r1", "h", false)}, nil},
		"made again":             {[]version{pod(1, "a/p", "r1", "h", false), pod(2, "a/p", "r1", "h", true), pod(3, "a/p", "r2", "h", false)}, nil},
		"its end was not logged": {[]version{pod(1, "a/p", "r1", "h", false), pod(3, "a/p", "r2", "h", false)}, nil},
		"two of different names": {[]version{pod(1, "a/p", "r1", "h", false), pod(3, "b/p", "r2", "h", false)}, []string{ruleSingle}},
		"two home pods":          {[]version{pod(1, "a/p", "r1", "h", false), pod(3, "a/q", "r2", "i", false)}, nil},
	} {
		t.Run(name, func(t *testing.T) { expectRules(t, checkTwoRemotes("hamburg", test.history), test.want...) })
	}
}

func TestCheckWentBack(t *testing.T) {
	pod := func(number uint64, uid string, phase corev1.PodPhase, restarts int32) version {
		return version{number: number, uid: uid, name: "ns/p", phase: phase, restarts: map[string]int32{"main": restarts}}
	}
	unknown := version{number: 3, uid: "h", name: "ns/p", phase: corev1.PodPending}
	for name, test := range map[string]struct {
		history []version
		want    []string
	}{
		"a life":                     {[]version{pod(1, "h", corev1.PodPending, 0), pod(2, "h", corev1.PodRunning, 0), pod(3, "h", corev1.PodRunning, 2), pod(4, "h", corev1.PodSucceeded, 2)}, nil},
		"out of Succeeded":           {[]version{pod(1, "h", corev1.PodSucceeded, 0), pod(2, "h", corev1.PodRunning, 0)}, []string{ruleWentBack}},
		"from Failed to Succeeded":   {[]version{pod(1, "h", corev1.PodFailed, 0), pod(2, "h", corev1.PodSucceeded, 0)}, []string{ruleWentBack}},
		"fewer restarts":             {[]version{pod(1, "h", corev1.PodRunning, 3), pod(2, "h", corev1.PodRunning, 2)}, []string{ruleWentBack}},
		"another pod of the name":    {[]version{pod(1, "h", corev1.PodFailed, 3), pod(2, "i", corev1.PodPending, 0)}, nil},
		"Pending while it is remade": {[]version{pod(1, "h", corev1.PodRunning, 3), pod(2, "h", corev1.PodPending, 3)}, nil},
		"no containers told":         {[]version{pod(1, "h", corev1.PodPending, 0), unknown}, nil},
	} {
		t.Run(name, func(t *testing.T) { expectRules(t, checkWentBack(test.history), test.want...) })
	}
}

func TestCheckEmpty(t *testing.T) {
	for name, test := range map[string]struct {
		left state
		want []string
	}{
		"nothing":               {state{runs: []run{lived("h", "a", 0, 1)}}, nil},
		"a home pod":            {state{home: []homePod{{uid: "h"}}}, []string{ruleOrphan}},
		"a record":              {state{records: []record{{"bremen", "twin/q", "q"}}}, []string{ruleOrphan}},
		"a remote pod":          {state{remotes: []remotePod{{"bremen", "twin/q", "q"}}}, []string{ruleOrphan}},
		"a move":                {state{moves: []podMove{{name: "ns/m", phase: v1alpha1.MoveSucceeded}}}, []string{ruleOrphan}},
		"a twin":                {state{twins: []twin{{"bremen", "twin", "ns"}}}, []string{ruleOrphan}},
		"a container that runs": {state{runs: []run{alive("h", "a", 0)}}, []string{ruleOrphan}},
	} {
		t.Run(name, func(t *testing.T) { expectRules(t, checkEmpty(test.left), test.want...) })
	}
}

func TestCheckState(t *testing.T) {
	fine := func() state {
		return state{
			home: []homePod{
				{uid: "h", name: "ns/p", provider: "hamburg", phase: corev1.PodRunning, ready: true},
				{uid: "l", name: "ns/local", phase: corev1.PodRunning, ready: true},
				{uid: "d", name: "ns/done", provider: "bremen", phase: corev1.PodSucceeded},
			},
			records:    []record{{"hamburg", "twin/p", "h"}, {"bremen", "twin/done", "d"}},
			remotes:    []remotePod{{"hamburg", "twin/p", "h"}, {"bremen", "twin/done", "d"}},
			twins:      []twin{{"hamburg", "twin", "ns"}, {"bremen", "twin", "ns"}},
			runs:       []run{alive("h", "a", 0), alive("l", "b", 0), completed(lived("d", "c", 0, 3), 3), lived("x", "y", 0, 1)},
			namespaces: []string{"ns"},
			moves:      []podMove{{name: "ns/m", phase: v1alpha1.MoveSucceeded}, {name: "ns/n", phase: v1alpha1.MoveFailed}},
		}
	}
	for name, test := range map[string]struct {
		spoil func(*state)
		want  []string
	}{
		"as it should be":                      {func(*state) {}, nil},
		"the load is not as its users left it": {func(s *state) { s.unmet = []string{"pod ns/q does not exist"} }, []string{ruleLost}},
		"not Ready":                            {func(s *state) { s.home[0].ready = false }, []string{ruleLost}},
		"stuck in deletion":                    {func(s *state) { s.home[0].leaving = true }, []string{ruleLost}},
		"Ready, but nothing runs":              {func(s *state) { s.runs = s.runs[1:] }, []string{ruleLost}},
		"two containers":                       {func(s *state) { s.runs = append(s.runs, alive("h", "z", 9)) }, []string{ruleLost}},
		"no record and no remote pod":          {func(s *state) { s.records, s.remotes = s.records[1:], s.remotes[1:] }, []string{ruleLost}},
		"no remote pod":                        {func(s *state) { s.remotes = s.remotes[1:] }, []string{ruleLost}},
		"a remote pod without a record":        {func(s *state) { s.records = s.records[1:] }, []string{ruleLost, ruleOrphan}},
		"a record without a home pod":          {func(s *state) { s.records = append(s.records, record{"bremen", "twin/q", "q"}) }, []string{ruleOrphan}},
		"a record at the wrong provider":       {func(s *state) { s.records = append(s.records, record{"bremen", "twin/p", "h"}) }, []string{ruleOrphan}},
		"a container for nobody":               {func(s *state) { s.runs = append(s.runs, alive("gone", "z", 9)) }, []string{ruleOrphan}},
		"a container after completion":         {func(s *state) { s.runs = append(s.runs, alive("d", "z", 9)) }, []string{ruleOrphan}},
		"a move that is not over":              {func(s *state) { s.moves[0].phase = v1alpha1.MoveHandingOver }, []string{ruleLost}},
		"a move that nobody has begun":         {func(s *state) { s.moves[0].phase = "" }, []string{ruleLost}},
		"a twin of no namespace":               {func(s *state) { s.twins = append(s.twins, twin{"bremen", "twin-2", "passed"}) }, []string{ruleOrphan}},
	} {
		t.Run(name, func(t *testing.T) {
			s := fine()
			test.spoil(&s)
			expectRules(t, checkState(s), test.want...)
		})
	}
}
