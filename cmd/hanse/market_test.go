package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/hanse-dev/hanse/api/v1alpha1"
)

func TestDefaultOffloadingIsRead(t *testing.T) {
	flags := offloadingFlags{namespaces: "team in (batch,web)", spec: `{"strategy": "Remote", "placement": {"exclude": ["bremen"]}}`}
	if err := flags.parse(); err != nil {
		t.Fatal(err)
	}
	spec := flags.defaults.Spec
	if spec.Strategy != v1alpha1.StrategyRemote || spec.Placement.Exclude[0] != "bremen" {
		t.Errorf("spec: %+v", spec)
	}
	if !flags.defaults.Selector.Matches(labels.Set{"team": "web"}) || flags.defaults.Selector.Matches(labels.Set{"team": "db"}) {
		t.Errorf("selector: %s", flags.defaults.Selector)
	}
	if none := (&offloadingFlags{}); none.parse() != nil || none.defaults != nil {
		t.Error("without flags some namespaces are offloaded")
	}
}

func TestDefaultOffloadingThatMakesNoSense(t *testing.T) {
	for name, flags := range map[string]offloadingFlags{
		"no selector":           {namespaces: "(in"},
		"no JSON":               {namespaces: "a=b", spec: "{"},
		"a field that is none":  {namespaces: "a=b", spec: `{"strategie": "Remote"}`},
		"a spec for no purpose": {spec: `{"strategy": "Remote"}`},
	} {
		if err := flags.parse(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
