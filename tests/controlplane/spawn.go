package main

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts all child processes from one operating-system thread.
// The kernel sends a child its parent-death signal when the *thread* that
// forked it ends, so that thread must live as long as the supervisor: with
// that, even a SIGKILL of the supervisor leaves no process behind.
type spawner struct{ requests chan spawnRequest }

type spawnRequest struct {
	command *exec.Cmd
	result  chan error
}

func newSpawner() spawner {
	s := spawner{make(chan spawnRequest)}
	go func() {
		// Never unlocked: the goroutine, and so the thread, never ends.
		runtime.LockOSThread()
		for request := range s.requests {
			request.result <- request.command.Start()
		}
	}()
	return s
}

func (s spawner) start(command *exec.Cmd) error {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	// A group of its own, so that an interrupt from the terminal reaches
	// only the supervisor, which ends the children in order.
	command.SysProcAttr.Setpgid = true
	result := make(chan error)
	s.requests <- spawnRequest{command, result}
	return <-result
}
