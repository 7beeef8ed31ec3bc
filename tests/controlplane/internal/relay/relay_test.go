package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo answers every byte with the same byte, after its greeting.
func echo(t *testing.T, greeting string) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, greeting)
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func open(t *testing.T, target string) *Relay {
	t.Helper()
	r, err := Open("test", "127.0.0.1:0", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func dial(t *testing.T, r *Relay) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp4", r.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

func expectSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want nothing", n, err)
	}
}

func TestHoldsWhileCutAndLosesNothing(t *testing.T) {
	r := open(t, echo(t, "hello"))
	before := dial(t, r)
	expect(t, before, "hello")
	r.SetCut(true)
	if _, err := io.WriteString(before, "abc"); err != nil {
		t.Fatal(err)
	}
	during := dial(t, r)
	expectSilence(t, before)
	expectSilence(t, during)
	r.SetCut(false)
	expect(t, before, "abc")
	expect(t, during, "hello")
}

func TestNewTargetEndsOldConnections(t *testing.T) {
	r := open(t, echo(t, "one"))
	old := dial(t, r)
	expect(t, old, "one")
	r.SetTarget(echo(t, "two"))
	_ = old.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := old.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the old connection lives: %v", err)
	}
	expect(t, dial(t, r), "two")
}

func TestCloseEndsHeldConnections(t *testing.T) {
	r := open(t, echo(t, "hello"))
	conn := dial(t, r)
	expect(t, conn, "hello")
	r.SetCut(true)
	r.Close()
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection lives: %v", err)
	}
}
