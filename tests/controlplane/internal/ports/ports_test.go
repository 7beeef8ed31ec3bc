package ports

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestKeepsFreePortsAndReplacesTakenOnes(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state.json")
	first, err := Choose(state)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", Loopback(first.APIServer))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	second, err := Choose(state)
	if err != nil {
		t.Fatal(err)
	}
	if second.APIServer == first.APIServer {
		t.Error("kept a port that is taken")
	}
	second.APIServer = first.APIServer
	if second != first {
		t.Errorf("replaced free ports: %+v, then %+v", first, second)
	}
}

func TestPortsAreDistinct(t *testing.T) {
	p, err := Choose(filepath.Join(t.TempDir(), "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range p.all() {
		if seen[*port] {
			t.Errorf("%d twice in %+v", *port, p)
		}
		seen[*port] = true
	}
}

func TestBrokenStateIsAnError(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(state, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Choose(state); err == nil {
		t.Error("accepted a broken file")
	}
}
