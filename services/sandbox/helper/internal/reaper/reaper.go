package reaper

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Reaper is the helper's side of one.
type Reaper struct {
	PID        int
	connection *net.UnixConn
}

// Pool keeps reapers that have nothing to do, since starting one takes longer than starting a command.
type Pool struct {
	mutex   sync.Mutex
	idle    []*Reaper
	trim    *time.Timer
	started chan struct{}
}

const (
	maxIdle   = 16
	trimAfter = 5 * time.Second
)

// NewPool also begins to reap: what a released or killed reaper leaves behind becomes this process's child.
func NewPool() (*Pool, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, err
	}
	pool := &Pool{started: make(chan struct{}, 1)}
	go pool.reap()
	return pool, nil
}

func (pool *Pool) reap() {
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		if errors.Is(err, unix.ECHILD) {
			<-pool.started
		}
	}
}

func (pool *Pool) spawn() (*Reaper, error) {
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(sockets[1])
	connection, err := connectionOf(uintptr(sockets[0]))
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		connection.Close()
		return nil, err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), null.Fd(), null.Fd(), uintptr(sockets[1])}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"helper", "run"}, &syscall.ProcAttr{
		// Each of its threads counts towards the sandbox's limit of pids.
		Env: []string{"GOMAXPROCS=1"}, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		connection.Close()
		return nil, err
	}
	select {
	case pool.started <- struct{}{}:
	default:
	}
	return &Reaper{PID: pid, connection: connection}, nil
}

// Warm starts a reaper for the first command.
func (pool *Pool) Warm() {
	if reaper, err := pool.spawn(); err == nil {
		pool.put(reaper)
	}
}

func (pool *Pool) take() *Reaper {
	pool.mutex.Lock()
	defer pool.mutex.Unlock()
	last := len(pool.idle) - 1
	if last < 0 {
		return nil
	}
	reaper := pool.idle[last]
	pool.idle = pool.idle[:last]
	return reaper
}

func (pool *Pool) put(reaper *Reaper) {
	pool.mutex.Lock()
	defer pool.mutex.Unlock()
	if len(pool.idle) >= maxIdle {
		reaper.Release()
		return
	}
	pool.idle = append(pool.idle, reaper)
	if pool.trim == nil {
		pool.trim = time.AfterFunc(trimAfter, pool.trimIdle)
	} else {
		pool.trim.Reset(trimAfter)
	}
}

func (pool *Pool) trimIdle() {
	pool.mutex.Lock()
	defer pool.mutex.Unlock()
	for len(pool.idle) > 1 {
		pool.idle[0].Release()
		pool.idle = pool.idle[1:]
	}
}

// Failure tells why a command did not start.
type Failure struct {
	Step  Step
	Errno syscall.Errno
}

func (failure *Failure) Error() string { return string(failure.Step) + ": " + failure.Errno.Error() }

// Start runs a command below a reaper; the descriptors are its stdin, stdout and stderr. An error is a *Failure.
func (pool *Pool) Start(request Request, descriptors ...int) (*Reaper, int, error) {
	for {
		reaper, reused := pool.take(), true
		if reaper == nil {
			var err error
			if reaper, err = pool.spawn(); err != nil {
				return nil, 0, forkFailure(err)
			}
			reused = false
		}
		var report Report
		err := send(reaper.connection, request, descriptors...)
		if err == nil {
			_, err = receive(reaper.connection, &report)
		}
		switch {
		case err != nil && reused:
			// Killed while it had nothing to do.
			reaper.connection.Close()
		case err != nil:
			// It got no thread, or was killed.
			reaper.connection.Close()
			return nil, 0, forkFailure(syscall.EAGAIN)
		case report.Failed != "":
			pool.put(reaper)
			return nil, 0, &Failure{Step: report.Failed, Errno: syscall.Errno(report.Errno)}
		default:
			return reaper, report.Started, nil
		}
	}
}

func forkFailure(err error) *Failure {
	errno := syscall.EAGAIN
	errors.As(err, &errno)
	return &Failure{Step: StepFork, Errno: errno}
}

// Next waits for the next report of the command. An error means that the reaper was killed.
func (reaper *Reaper) Next() (Report, error) {
	var report Report
	_, err := receive(reaper.connection, &report)
	return report, err
}

// Release ends the reaper; what is below it lives on.
func (reaper *Reaper) Release() {
	_ = send(reaper.connection, Request{Release: true})
	reaper.connection.Close()
}

// Close lets go of a reaper that was killed.
func (reaper *Reaper) Close() { reaper.connection.Close() }

// Return gives back a reaper that reported Idle.
func (pool *Pool) Return(reaper *Reaper) { pool.put(reaper) }
