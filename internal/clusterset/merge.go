// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// A Merged is what all exports of a name come to. Where they differ the oldest decides.
type Merged struct {
	Export    // of which Cluster, At and Slices are those of the oldest
	Clusters  []string
	Conflicts []Conflict
}

// A Conflict is a property in which exports of a name differ.
type Conflict struct {
	Reason  mcsv1beta1.ServiceExportConditionReason
	Message string
}

// Merge returns what the exports come to, of which there must be one. It sorts them, the oldest first.
func Merge(exports []*Export) Merged {
	slices.SortFunc(exports, func(a, b *Export) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Cluster, b.Cluster))
	})
	m := Merged{Export: *exports[0]}
	m.Ports = slices.Clone(m.Ports)
	for _, e := range exports {
		m.Clusters = append(m.Clusters, e.Cluster)
		m.addPorts(e.Ports)
	}
	slices.Sort(m.Clusters)
	m.compare(exports, mcsv1beta1.ServiceExportReasonPortConflict, "ports", func(e *Export) string { return portsText(e.Ports) })
	m.compare(exports, mcsv1beta1.ServiceExportReasonTypeConflict, "type", func(e *Export) string { return string(e.Type) })
	m.compare(exports, mcsv1beta1.ServiceExportReasonSessionAffinityConflict, "session affinity", affinityText)
	m.compare(exports, mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict, "seconds of session affinity", secondsText)
	m.compare(exports, mcsv1beta1.ServiceExportReasonLabelsConflict, "exported labels", func(e *Export) string { return mapText(e.Labels) })
	m.compare(exports, mcsv1beta1.ServiceExportReasonAnnotationsConflict, "exported annotations", func(e *Export) string { return mapText(e.Annotations) })
	return m
}

// addPorts adds those of a younger export that clash with none.
func (m *Merged) addPorts(ports []mcsv1beta1.ServicePort) {
	for _, p := range ports {
		clashes := slices.ContainsFunc(m.Ports, func(q mcsv1beta1.ServicePort) bool {
			// A Service of several ports has none without a name.
			return q.Name == p.Name || q.Protocol == p.Protocol && q.Port == p.Port || q.Name == "" || p.Name == ""
		})
		if !clashes {
			m.Ports = append(m.Ports, p)
		}
	}
}

// compare adds a conflict if the exports differ in what text says of them.
func (m *Merged) compare(exports []*Export, reason mcsv1beta1.ServiceExportConditionReason, what string, text func(*Export) string) {
	var said []string
	first := text(exports[0])
	differ := false
	for _, e := range exports {
		differ = differ || text(e) != first
		said = append(said, fmt.Sprintf("%s has %s", e.Cluster, text(e)))
	}
	if differ {
		slices.Sort(said)
		m.Conflicts = append(m.Conflicts, Conflict{reason, fmt.Sprintf("the %s differ: %s; that of %s counts, whose export is the oldest",
			what, strings.Join(said, ", "), m.Cluster)})
	}
}

func portsText(ports []mcsv1beta1.ServicePort) string {
	var texts []string
	for _, p := range ports {
		text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.Name != "" {
			text = p.Name + " " + text
		}
		if p.AppProtocol != nil {
			text += " (" + *p.AppProtocol + ")"
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return orNone(strings.Join(texts, " and "))
}

func affinityText(e *Export) string {
	return string(cmp.Or(e.SessionAffinity, corev1.ServiceAffinityNone))
}

func secondsText(e *Export) string {
	if e.SessionAffinity != corev1.ServiceAffinityClientIP {
		return "none" // then the seconds mean nothing
	}
	return fmt.Sprint(ptr.Deref(e.AffinitySeconds, corev1.DefaultClientIPServiceAffinitySeconds))
}

func mapText(all map[string]string) string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		texts = append(texts, key+"="+all[key])
	}
	return orNone(strings.Join(texts, " "))
}

func orNone(text string) string { return cmp.Or(text, "none") }
