// Package relay has a TCP relay that can be cut and mended.
package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Relay forwards TCP connections to a target that can be changed. A cut relay
// forwards no byte in either direction, but keeps its connections open and
// accepts new ones, like a network that drops packets. Mending forwards the
// held bytes; no byte is lost.
type Relay struct {
	// Name identifies the relay in `ctl` and in messages.
	Name     string
	listener net.Listener
	dial     func(address string) (net.Conn, error)

	mu     sync.Mutex
	opened *sync.Cond // signalled when cut, closed or target change
	cut    bool
	closed bool
	target string // host:port
	conns  map[net.Conn]struct{}
}

// Open starts a relay at an address; name is for messages.
func Open(name, address, target string) (*Relay, error) {
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		return nil, fmt.Errorf("failed to open the relay %s: %w", name, err)
	}
	dial := func(address string) (net.Conn, error) { return net.Dial("tcp4", address) }
	return Serve(name, listener, target, dial), nil
}

// Serve starts a relay at a listener, which connects to the target with dial.
func Serve(name string, listener net.Listener, target string, dial func(address string) (net.Conn, error)) *Relay {
	r := &Relay{Name: name, listener: listener, dial: dial, target: target, conns: map[net.Conn]struct{}{}}
	r.opened = sync.NewCond(&r.mu)
	go r.accept()
	return r
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		go r.serve(client)
	}
}

func (r *Relay) serve(client net.Conn) {
	if !r.track(client) {
		return
	}
	defer r.untrack(client)
	target, ok := r.awaitOpen()
	if !ok {
		return
	}
	server, err := r.dial(target)
	if err != nil {
		return
	}
	if !r.track(server) {
		return
	}
	defer r.untrack(server)
	done := make(chan struct{}, 2)
	go r.pass(server, client, done)
	go r.pass(client, server, done)
	// Half-open connections are of no use to gRPC or HTTP/2, so the first end
	// ends both directions.
	<-done
}

func (r *Relay) pass(to, from net.Conn, done chan<- struct{}) {
	defer func() { done <- struct{}{} }()
	buffer := make([]byte, 32*1024)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			// Bytes that were read while the relay is cut wait here.
			if _, ok := r.awaitOpen(); !ok {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// awaitOpen blocks while the relay is cut and returns the target.
func (r *Relay) awaitOpen() (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.cut && !r.closed {
		r.opened.Wait()
	}
	return r.target, !r.closed
}

// SetCut cuts the relay or mends it.
func (r *Relay) SetCut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	r.opened.Broadcast()
}

// SetTarget sends new connections to another target and ends the existing ones.
func (r *Relay) SetTarget(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
	for conn := range r.conns {
		_ = conn.Close()
	}
}

func (r *Relay) track(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = conn.Close()
		return false
	}
	r.conns[conn] = struct{}{}
	return true
}

func (r *Relay) untrack(conn io.Closer) {
	_ = conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn.(net.Conn))
}

// Close ends the relay and its connections.
func (r *Relay) Close() {
	_ = r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.opened.Broadcast()
	for conn := range r.conns {
		_ = conn.Close()
	}
}

// Status is the entry of a relay in `ctl status`.
type Status struct {
	Name        string `json:"name"`
	Cut         bool   `json:"cut"`
	Target      string `json:"target"`
	Connections int    `json:"connections"` // both ends counted
}

// Status returns the current state of the relay.
func (r *Relay) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Status{r.Name, r.cut, r.target, len(r.conns)}
}
