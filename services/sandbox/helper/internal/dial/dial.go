// Package dial connects to the helper's daemon, which it starts when none runs.
package dial

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/daemon"
)

const startTimeout = 5 * time.Second

// Run hands the daemon its standard input and output, and ends when the daemon is done with them.
func Run() error {
	// Descriptors that the engine left open are no command's business.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	connection, err := connect()
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := daemon.HandOver(connection, 0, 1); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, connection)
	return err
}

// Start ends once a daemon runs, and prints the uid that is in its socket's name.
func Start() error {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	connection, err := connect()
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = fmt.Println(os.Geteuid())
	return err
}

// connect is free of races: of several that find no daemon one gets the socket's name, and starts it with that socket; the
// others' connections wait in its backlog.
func connect() (*net.UnixConn, error) {
	address := &net.UnixAddr{Name: daemon.SocketName(os.Geteuid()), Net: "unix"}
	for until := time.Now().Add(startTimeout); ; time.Sleep(time.Millisecond) {
		connection, err := net.DialUnix("unix", nil, address)
		if err == nil {
			if err := daemon.CheckPeer(connection, os.Geteuid()); err != nil {
				connection.Close()
				return nil, err
			}
			return connection, nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(until) {
			return nil, err
		}
		listener, err := net.ListenUnix("unix", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := start(listener); err != nil {
			return nil, err
		}
	}
}

func start(listener *net.UnixListener) error {
	defer listener.Close()
	socket, err := listener.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer write.Close()
	defer read.Close()
	_, err = syscall.ForkExec("/proc/self/exe", []string{os.Args[0], "daemon"}, &syscall.ProcAttr{
		Files: []uintptr{read.Fd(), null.Fd(), null.Fd(), socket.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(write, strings.Join(os.Environ(), "\x00"))
	return err
}
