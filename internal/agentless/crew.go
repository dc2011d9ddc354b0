package agentless

import "sync"

// A crew is the goroutines that work for links. The zero value takes on work.
type crew struct {
	mu      sync.Mutex
	ended   bool
	working sync.WaitGroup
}

// run starts the work, unless the crew has ended.
func (c *crew) run(work func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.working.Go(work)
	}
}

// end takes on no more work, and waits for what is going on.
func (c *crew) end() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.working.Wait()
}
