package kubelet

import "sync"

// A gate lets work in until it ends, and then waits for what is inside. The zero value is open.
type gate struct {
	mu     sync.Mutex
	ended  bool
	inside sync.WaitGroup
}

// enter reports whether the work may begin. It must leave then.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	g.inside.Add(1)
	return true
}

func (g *gate) leave() { g.inside.Done() }

// run starts f inside the gate, unless that has ended.
func (g *gate) run(f func()) {
	if !g.enter() {
		return
	}
	go func() {
		defer g.leave()
		f()
	}()
}

// end closes the gate and waits until nothing is inside.
func (g *gate) end() {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.inside.Wait()
}
