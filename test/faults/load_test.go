// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"slices"
	"time"
)

// verb is what a user does.
type verb string

const (
	createPod        verb = "create-pod"        // a pod that runs until it is deleted
	createShort      verb = "create-short"      // a pod that completes
	createJob        verb = "create-job"        // a Job of a few pods that complete
	createDeployment verb = "create-deployment" // its pods run until it is deleted
	createSet        verb = "create-set"        // a StatefulSet, as createDeployment
	scale            verb = "scale"             // a Deployment or StatefulSet
	relabel          verb = "relabel"
	changeImage      verb = "change-image"
	deleteObject     verb = "delete"
	createNamespace  verb = "create-namespace" // offloaded, with a StatefulSet of one pod in it
	deleteNamespace  verb = "delete-namespace"
	movePod          verb = "move-pod"  // of any Deployment, to the other provider
	moveLone         verb = "move-lone" // of nobody's, which keeps its name. Nobody touches it any more
)

// verbs are how often each is done, and how many objects there must be for it.
var verbs = []struct {
	verb   verb
	weight int
}{
	{createPod, 24},
	{createShort, 12},
	{createJob, 6},
	{createDeployment, 8},
	{createSet, 6},
	{scale, 8},
	{relabel, 8},
	{changeImage, 6},
	{deleteObject, 22},
	{createNamespace, 8},
	{deleteNamespace, 4},
	{movePod, 16},
	{moveLone, 6},
}

// object is something that a user made.
type object struct {
	made     verb
	name     string
	replicas int32
	seconds  int  // how long its pods take to complete
	deaf     bool // its containers do not end when they are asked to
}

// An operation is one thing that a user does.
type operation struct {
	at    time.Duration
	verb  verb
	on    object
	grace []int64 // with which the object is deleted, one time after the other; -1 is its own
	to    string  // the value of the label, the tag of the image, or the deadline of the move
}

func (o operation) String() string {
	return fmt.Sprintf("%6.1fs %-18s %s grace %v %s", o.at.Seconds(), o.verb, o.on.name, o.grace, o.to)
}

// atMostPods bounds how many pods there are at a time: the clusters are on one machine.
const atMostPods = 24

// drawing is a load while it is drawn: what there is at this point of it.
type drawing struct {
	dice

	next    int
	objects []object
}

// newLoad draws what users do, one operation after the other.
func newLoad(d dice, duration time.Duration) []operation {
	var load []operation
	l := &drawing{dice: d}
	for at := time.Duration(0); at < duration; at += d.between(300*time.Millisecond, 1300*time.Millisecond) {
		if o, ok := l.draw(); ok {
			o.at = at
			load = append(load, o)
		}
	}
	return load
}

func (l *drawing) draw() (operation, bool) {
	total := 0
	for _, v := range verbs {
		total += v.weight
	}
	at := l.IntN(total)
	for _, v := range verbs {
		if at -= v.weight; at < 0 {
			return l.drawVerb(v.verb)
		}
	}
	return operation{}, false
}

func (l *drawing) drawVerb(v verb) (operation, bool) {
	switch v {
	case createPod, createShort, createJob, createDeployment, createSet, createNamespace:
		return l.drawCreation(v)
	case scale:
		o, ok := l.drawChange(v, createDeployment, createSet)
		o.on.replicas = int32(l.IntN(4))
		l.replace(o.on)
		return o, ok
	case relabel:
		o, ok := l.drawChange(v, createPod)
		o.to = fmt.Sprint(l.IntN(1000))
		return o, ok
	case changeImage:
		o, ok := l.drawChange(v, createPod)
		o.to = pick(l.dice, imageTags)
		return o, ok
	case movePod:
		return operation{verb: v, to: pick(l.dice, moveDeadlines)}, true
	case moveLone:
		o, ok := l.drawDeletion(v, createPod)
		o.grace, o.to = nil, pick(l.dice, moveDeadlines)
		return o, ok
	case deleteNamespace:
		return l.drawDeletion(v, createNamespace)
	default:
		return l.drawDeletion(v, createPod, createShort, createDeployment, createSet, createJob)
	}
}

// imageTags are those of the image of all pods.
var imageTags = []string{"v1", "v2"}

// moveDeadlines are one that is over before what is broken is mended, and one that is not over for a clock that is wrong either.
var moveDeadlines = []string{"20s", "15m"}

func (l *drawing) drawCreation(v verb) (operation, bool) {
	o := object{made: v, replicas: 1, deaf: l.IntN(4) == 0}
	if v == createJob || v == createDeployment || v == createSet {
		o.replicas = int32(1 + l.IntN(3))
	}
	if v == createShort || v == createJob {
		o.seconds = l.IntN(6)
	}
	pods := o.replicas
	for _, other := range l.objects {
		pods += other.replicas
	}
	if pods > atMostPods {
		return operation{}, false
	}
	l.next++
	o.name = fmt.Sprintf("%s-%d", v[len("create-"):], l.next)
	l.objects = append(l.objects, o)
	return operation{verb: v, on: o}, true
}

func (l *drawing) drawChange(v verb, made ...verb) (operation, bool) {
	var some []object
	for _, o := range l.objects {
		if slices.Contains(made, o.made) {
			some = append(some, o)
		}
	}
	if len(some) == 0 {
		return operation{}, false
	}
	return operation{verb: v, on: pick(l.dice, some)}, true
}

func (l *drawing) drawDeletion(v verb, made ...verb) (operation, bool) {
	o, ok := l.drawChange(v, made...)
	o.grace = pick(l.dice, [][]int64{{-1}, {-1}, {0}, {1}, {5}, {8, 1}, {5, 0}})
	l.objects = slices.DeleteFunc(l.objects, func(have object) bool { return have.name == o.on.name })
	return o, ok
}

func (l *drawing) replace(o object) {
	for i := range l.objects {
		if l.objects[i].name == o.name {
			l.objects[i] = o
		}
	}
}

// remaining are the objects that nobody has deleted.
func remaining(load []operation) map[string]object {
	left := map[string]object{}
	for _, o := range load {
		switch o.verb {
		case deleteObject, deleteNamespace:
			delete(left, o.on.name)
		case movePod, moveLone: // which is one of several, and which is there still
		default:
			left[o.on.name] = o.on
		}
	}
	return left
}
