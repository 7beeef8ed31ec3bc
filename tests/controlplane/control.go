package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// The control socket speaks JSON lines: one request a line, one response a
// line, in order.

// controlRequest is one line from a client.
type controlRequest struct {
	Verb string   `json:"verb"`
	Args []string `json:"args,omitempty"`
}

// controlResponse is one line to a client: a result or an error.
type controlResponse struct {
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"`
	Result any    `json:"result,omitempty"`
}

// controlServer answers the verbs of one cluster.
type controlServer struct {
	cluster  *cluster
	listener net.Listener
	shutdown func()
}

func listenControl(c *cluster, shutdown func()) (*controlServer, error) {
	path, release, err := shortSocketPath(c.layout.socket())
	if err != nil {
		return nil, err
	}
	defer release()
	// This supervisor holds the lock of the directory, so a socket is a leftover.
	if err := os.Remove(c.layout.socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("failed to open the control socket: %w", err)
	}
	// Go would remove the short path, which is gone by then.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Chmod(c.layout.socket(), 0o600); err != nil {
		_ = listener.Close()
		return nil, err
	}
	s := &controlServer{c, listener, shutdown}
	go s.accept()
	return s, nil
}

// shortSocketPath gives a path of the same socket that fits into the 108 bytes
// that the kernel allows, however long the directory's is.
func shortSocketPath(path string) (string, func(), error) {
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	short := fmt.Sprintf("/proc/self/fd/%d/%s", directory.Fd(), filepath.Base(path))
	return short, func() { _ = directory.Close() }, nil
}

func (s *controlServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		go s.serve(conn)
	}
}

func (s *controlServer) serve(conn net.Conn) {
	defer conn.Close()
	// No client waits for the verb after its connection has ended, so the
	// verb's context ends with the connection.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lines := make(chan []byte)
	go func() {
		defer cancel()
		defer close(lines)
		for scanner := bufio.NewScanner(conn); scanner.Scan(); {
			select {
			case lines <- append([]byte(nil), scanner.Bytes()...):
			case <-ctx.Done():
				return
			}
		}
	}()
	answers := json.NewEncoder(conn)
	for line := range lines {
		if err := answers.Encode(s.answer(ctx, line)); err != nil {
			return
		}
	}
}

func (s *controlServer) answer(ctx context.Context, line []byte) controlResponse {
	var request controlRequest
	if err := json.Unmarshal(line, &request); err != nil {
		return controlResponse{Error: fmt.Sprintf("failed to read the request: %v; send one JSON object a line", err)}
	}
	result, err := s.run(ctx, request)
	if err != nil {
		return controlResponse{Error: err.Error()}
	}
	return controlResponse{OK: true, Result: result}
}

func (s *controlServer) close() {
	_ = s.listener.Close()
	_ = os.Remove(s.cluster.layout.socket())
}
