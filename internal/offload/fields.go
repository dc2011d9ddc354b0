package offload

import (
	"regexp"
	"slices"
	"strings"
)

// verdict says what becomes of a field on its way.
type verdict string

const (
	kept    verdict = "kept"
	changed verdict = "changed"
	dropped verdict = "dropped"
	refused verdict = "refused"
)

// fieldLine is a line of the table of all fields of a pod. The line of a field that is dropped or refused is for all below it
// as well. What is kept or changed has a line for each field below, so that nothing new in Kubernetes travels unseen.
type fieldLine struct {
	path    string // as in JSON, lists as []
	verdict verdict
	why     string // needed unless the field is kept whatever it says
}

// fields is the table. The tests prove each line, and that there is one for each field of the Kubernetes in go.mod.
var fields = slices.Concat(podFields, containerFields, ephemeralFields, volumeFields, statusFields)

// likes are the parts of a pod that are made of the same fields as another. A line of its own takes precedence.
var likes = []struct{ path, like string }{
	{"spec.initContainers[]", "spec.containers[]"},
	{"spec.ephemeralContainers[]", "spec.containers[]"},
	{"spec.containers[].readinessProbe", "spec.containers[].livenessProbe"},
	{"spec.containers[].startupProbe", "spec.containers[].livenessProbe"},
	{"spec.containers[].lifecycle.postStart", "spec.containers[].lifecycle.preStop"},
	{"spec.volumes[].projected.sources[].downwardAPI.items[]", "spec.volumes[].downwardAPI.items[]"},
	{"status.initContainerStatuses[]", "status.containerStatuses[]"},
	{"status.ephemeralContainerStatuses[]", "status.containerStatuses[]"},
	{"status.containerStatuses[].lastState", "status.containerStatuses[].state"},
}

func lines(v verdict, why string, paths ...string) []fieldLine {
	out := make([]fieldLine, 0, len(paths))
	for _, path := range paths {
		out = append(out, fieldLine{path: path, verdict: v, why: why})
	}
	return out
}

// lineOf returns the line of the table that is for the field with the path.
func lineOf(path string) (fieldLine, bool) {
	if line, ok := ownLine(path); ok {
		return line, true
	}
	for _, l := range likes {
		if rest, ok := strings.CutPrefix(path, l.path); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return lineOf(l.like + rest)
		}
	}
	return fieldLine{}, false
}

func ownLine(path string) (fieldLine, bool) {
	i := slices.IndexFunc(fields, func(f fieldLine) bool {
		return f.path == path || f.coversAllBelow() && strings.HasPrefix(path, f.path) && strings.Contains(".[", path[len(f.path):len(f.path)+1])
	})
	if i < 0 {
		return fieldLine{}, false
	}
	return fields[i], true
}

func (f fieldLine) coversAllBelow() bool { return f.verdict == dropped || f.verdict == refused }

var subscripts = regexp.MustCompile(`\[[^]]*\]`)

// whyNot returns what the table says about a field that was found not to be allowed, such as spec.volumes[0].nfs.
func whyNot(path string) string {
	path = subscripts.ReplaceAllString(path, "[]")
	for path != "" {
		if line, ok := lineOf(path); ok && line.verdict != dropped {
			return line.why
		}
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
	}
	return ""
}
