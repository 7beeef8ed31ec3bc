package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"innkeeper.dev/tests/controlplane/internal/files"
)

const (
	// Time between SIGTERM and SIGKILL. API servers with open watches do not
	// end within 20 s, so a longer time would not help.
	stopGrace = time.Second
	// Delays before the restart of a dead process: the shortest one after a long
	// life, doubled each time when a process dies soon after its start.
	restartDelayMin = 100 * time.Millisecond
	restartDelayMax = 2 * time.Second
	// A life that resets the delay.
	livedLong = 5 * time.Second
)

// process is one supervised child. A goroutine (keep) starts it whenever it is
// wanted and not running; the verbs only set wanted, or send signals.
type process struct {
	name    string
	program string
	command func() []string
	health  func(context.Context) error // nil: healthy when it runs
	layout  layout
	logFrom int64 // where the log of this supervisor begins
	spawner spawner

	mu       sync.Mutex
	wanted   bool
	paused   bool
	running  *os.Process
	ended    chan struct{} // closed when the running process has ended
	changed  chan struct{} // closed and replaced at every change
	starts   int
	lastExit string
}

func newProcess(name, program string, l layout, s spawner, command func() []string, health func(context.Context) error) *process {
	p := &process{name: name, program: program, layout: l, spawner: s, command: command, health: health, changed: make(chan struct{})}
	if info, err := os.Stat(l.log(name)); err == nil {
		p.logFrom = info.Size()
	}
	return p
}

// notify wakes all waiters for a change; the caller holds mu.
func (p *process) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// keep starts the process whenever it is wanted, until the context ends.
func (p *process) keep(ctx context.Context) {
	delay := restartDelayMin
	for ctx.Err() == nil {
		p.mu.Lock()
		wanted, changed := p.wanted, p.changed
		p.mu.Unlock()
		if !wanted {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		if ended, err := p.startOnce(); err != nil {
			p.mu.Lock()
			p.lastExit = err.Error()
			p.notify()
			p.mu.Unlock()
		} else {
			<-ended
		}
		if time.Since(began) > livedLong {
			delay = restartDelayMin
		}
		// A stop and start in the meantime must not wait for the delay.
		p.mu.Lock()
		wanted, changed = p.wanted, p.changed
		p.mu.Unlock()
		if wanted {
			select {
			case <-time.After(delay):
				delay = min(2*delay, restartDelayMax)
			case <-changed:
			case <-ctx.Done():
			}
		} else {
			delay = restartDelayMin
		}
	}
}

// startOnce starts the process and returns a channel that closes at its end.
func (p *process) startOnce() (chan struct{}, error) {
	log, err := os.OpenFile(p.layout.log(p.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(p.program, p.command()...)
	command.Stdout, command.Stderr = log, log
	command.Dir = p.layout.dir

	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted {
		// Stopped between the decision to start and now.
		ended := make(chan struct{})
		close(ended)
		return ended, nil
	}
	if err := p.spawner.start(command); err != nil {
		return nil, fmt.Errorf("failed to start %s: %w", p.name, err)
	}
	p.running, p.paused, p.ended = command.Process, false, make(chan struct{})
	p.starts++
	p.notify()
	pid := []byte(strconv.Itoa(command.Process.Pid) + "\n")
	if err := files.Write(p.layout.pid(p.name), pid, 0o600); err != nil {
		fmt.Fprintln(os.Stderr, "warning: failed to write a pid file:", err)
	}
	go p.await(command, p.ended)
	return p.ended, nil
}

func (p *process) await(command *exec.Cmd, ended chan struct{}) {
	// The error only repeats the state, which is kept instead.
	_ = command.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.paused = nil, false
	p.lastExit = command.ProcessState.String()
	_ = os.Remove(p.layout.pid(p.name))
	close(ended)
	p.notify()
}

func (p *process) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
	p.notify()
}

// stop ends the process and keeps it down; it returns when the process is gone.
func (p *process) stop() {
	p.mu.Lock()
	p.wanted = false
	p.notify()
	running, paused, ended := p.running, p.paused, p.ended
	p.mu.Unlock()
	if running == nil {
		return
	}
	if !paused {
		_ = running.Signal(syscall.SIGTERM)
		select {
		case <-ended:
			return
		case <-time.After(stopGrace):
		}
	}
	_ = running.Kill()
	<-ended
}

// kill ends the process with SIGKILL; the supervisor then starts it again.
func (p *process) kill() error {
	p.mu.Lock()
	running, ended := p.running, p.ended
	p.mu.Unlock()
	if running == nil {
		return fmt.Errorf("%s is not running; `ctl start %s` starts it", p.name, p.name)
	}
	if err := running.Kill(); err != nil {
		return fmt.Errorf("failed to kill %s: %w", p.name, err)
	}
	<-ended
	return nil
}

// setPaused freezes or thaws the process.
func (p *process) setPaused(paused bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return fmt.Errorf("%s is not running; `ctl start %s` starts it", p.name, p.name)
	}
	signal := syscall.SIGCONT
	if paused {
		signal = syscall.SIGSTOP
	}
	if err := p.running.Signal(signal); err != nil {
		return fmt.Errorf("failed to signal %s: %w", p.name, err)
	}
	p.paused = paused
	p.notify()
	return nil
}

// processStatus is the entry of a process in `ctl status`.
type processStatus struct {
	Name     string `json:"name"`
	State    string `json:"state"` // running, paused, stopped or starting
	PID      int    `json:"pid,omitempty"`
	Starts   int    `json:"starts"`
	LastExit string `json:"lastExit,omitempty"`
}

func (p *process) status() processStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := processStatus{Name: p.name, Starts: p.starts, LastExit: p.lastExit}
	switch {
	case p.running == nil && p.wanted:
		s.State = "starting"
	case p.running == nil:
		s.State = "stopped"
	case p.paused:
		s.State, s.PID = "paused", p.running.Pid
	default:
		s.State, s.PID = "running", p.running.Pid
	}
	return s
}

// awaitHealthy returns when the process runs and is healthy. It fails when the
// process is not wanted, is paused, or the context ends.
func (p *process) awaitHealthy(ctx context.Context) error {
	const poll = 20 * time.Millisecond
	var last error
	for {
		status := p.status()
		switch status.State {
		case "stopped", "paused":
			return fmt.Errorf("%s is %s", p.name, status.State)
		case "running":
			if p.health == nil {
				return nil
			}
			if last = p.health(ctx); last == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			if last == nil {
				last = fmt.Errorf("last exit: %s", status.LastExit)
			}
			return fmt.Errorf("%s did not become healthy in time: %w\n%s", p.name, last, p.logTail())
		case <-time.After(poll):
		}
	}
}

// logTail returns the last log lines of this supervisor's process, for
// messages.
func (p *process) logTail() string {
	const bytesMax, linesMax = 4096, 15
	file, err := os.Open(p.layout.log(p.name))
	if err != nil {
		return ""
	}
	defer file.Close()
	if size, err := file.Seek(0, io.SeekEnd); err == nil {
		_, _ = file.Seek(max(p.logFrom, size-bytesMax), io.SeekStart)
	}
	data, _ := io.ReadAll(file)
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	lines = lines[max(0, len(lines)-linesMax):]
	return fmt.Sprintf("end of %s:\n%s", file.Name(), bytes.Join(lines, []byte("\n")))
}
