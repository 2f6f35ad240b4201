// Package connector runs beside the platform, on the machine of the containers: it connects the platform with the daemons in
// them, past the engine.
package connector

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/daemon"
)

const (
	// Of the socket in the folder.
	socketName = "connector"
	// Of a request, and of a daemon that takes no connection.
	timeout = 2 * time.Second
	// A container's id in hex, a pid, a uid.
	maxRequest = 128
	// Of one container: a tenant may keep each connection open that it was given.
	maxConnections = 32
	// After a connection that could not be accepted.
	acceptPause = 10 * time.Millisecond
)

// connections counts them, by container.
type connections struct {
	mutex sync.Mutex
	of    map[string]int
}

func (open *connections) take(container string) error {
	open.mutex.Lock()
	defer open.mutex.Unlock()
	if open.of[container] == maxConnections {
		return errors.New("away: the container keeps too many connections")
	}
	open.of[container]++
	return nil
}

func (open *connections) release(container string) {
	open.mutex.Lock()
	defer open.mutex.Unlock()
	open.of[container]--
	if open.of[container] == 0 {
		delete(open.of, container)
	}
}

type request struct {
	pid, uid  int
	container string
}

// Serve takes requests by a socket in the folder, which it removes in the end: once standard input, which the platform holds,
// has ended. A request is a line, `<pid> <container> <uid>`. The first line of the answer is the connector's own word, since
// nobody else holds the connection yet:
//   - `entered`: it goes to the daemon of that user in the container whose init has that pid;
//   - why not: `away: …` when there is no such daemon, `barred: …` when the container can't be entered from here.
//
// What follows on `entered` is no more than the tenant's word, who may have another program in the daemon's place: `ok` when
// the connection is one to the daemon from there on, `away: …` when that doesn't take it.
func Serve(folder string) error {
	defer os.RemoveAll(folder)
	listener, err := net.Listen("unix", filepath.Join(folder, socketName))
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		listener.Close()
	}()
	open := &connections{of: map[string]int{}}
	// The platform waits for it.
	fmt.Println("ready")
	for {
		connection, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			// For want of descriptors, which ends no other connection.
			time.Sleep(acceptPause)
			continue
		}
		go open.serve(connection.(*net.UnixConn))
	}
}

func parse(line string) (asked request, err error) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return asked, errors.New("a request has a pid, a container and a uid")
	}
	asked.container = fields[1]
	asked.pid, err = strconv.Atoi(fields[0])
	if err == nil {
		asked.uid, err = strconv.Atoi(fields[2])
	}
	return asked, err
}

func (open *connections) serve(platform *net.UnixConn) {
	defer platform.Close()
	_ = platform.SetDeadline(time.Now().Add(timeout))
	line, err := bufio.NewReader(io.LimitReader(platform, maxRequest)).ReadString('\n')
	if err != nil {
		return
	}
	asked, err := parse(line)
	if err != nil {
		fmt.Fprintln(platform, "barred:", err)
		return
	}
	err = open.take(asked.container)
	if err == nil {
		defer open.release(asked.container)
		err = connect(asked, platform)
	}
	if err != nil {
		fmt.Fprintln(platform, err)
	}
}

// connect hands the platform's connection to the daemon, and ends when that is done with it.
func connect(asked request, platform *net.UnixConn) error {
	dial, err := dialInside(asked)
	if err != nil {
		return err
	}
	defer dial.Close()
	if _, err := io.WriteString(platform, "entered\n"); err != nil {
		return err
	}
	if err := handOver(dial, platform); err != nil {
		return fmt.Errorf("away: %w", err)
	}
	// The daemon answers once it has the connection, by which it says nothing before the platform does.
	_ = dial.SetReadDeadline(time.Now().Add(timeout))
	if _, err := io.ReadFull(dial, make([]byte, 1)); err != nil {
		return fmt.Errorf("away: %w", err)
	}
	_ = dial.SetReadDeadline(time.Time{})
	_, err = io.WriteString(platform, "ok\n")
	platform.Close()
	if err == nil {
		// It says nothing more until it is done with it.
		_, _ = dial.Read(make([]byte, 1))
	}
	return nil
}

func handOver(dial, platform *net.UnixConn) error {
	raw, err := platform.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(descriptor uintptr) {
		failed = daemon.HandOver(dial, int(descriptor), int(descriptor))
	}); err != nil {
		return err
	}
	return failed
}

func dialInside(asked request) (*net.UnixConn, error) {
	type result struct {
		dial *net.UnixConn
		err  error
	}
	connected := make(chan result, 1)
	go func() {
		// A thread of its own, which ends with this: it stays in the container's network, as that user.
		runtime.LockOSThread()
		err := enter(asked.pid, asked.container)
		if err == nil {
			err = become(asked.uid)
		}
		if err != nil {
			connected <- result{nil, fmt.Errorf("barred: %w", err)}
			return
		}
		dial, err := dialDaemon(asked.uid)
		if err != nil {
			err = fmt.Errorf("away: %w", err)
		}
		connected <- result{dial, err}
	}()
	found := <-connected
	return found.dial, found.err
}

// enter takes this thread into the network namespace of the container. All is read by one descriptor of the process: once that
// has ended, nothing can be read by it, whoever has the pid then.
func enter(pid int, container string) error {
	process, err := unix.Open(fmt.Sprintf("/proc/%d", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	groups, err := read(process, "cgroup")
	if err != nil {
		return err
	}
	if len(container) != 64 || !strings.Contains(groups, container) {
		return fmt.Errorf("process %d is not of the container %s", pid, container)
	}
	// The ids of another user namespace are not those of this one.
	ids, err := read(process, "uid_map")
	if err != nil {
		return err
	}
	if strings.Join(strings.Fields(ids), " ") != "0 0 4294967295" {
		return errors.New("the container has a user namespace of its own")
	}
	network, err := unix.Openat(process, "ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(network)
	return unix.Setns(network, unix.CLONE_NEWNET)
}

func read(folder int, name string) (string, error) {
	descriptor, err := unix.Openat(folder, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	file := os.NewFile(uintptr(descriptor), name)
	defer file.Close()
	text, err := io.ReadAll(file)
	return string(text), err
}

// become gives this thread the user whom the daemon takes connections of.
func become(uid int) error {
	// The system call itself changes this thread alone.
	if _, _, failed := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); failed != 0 {
		return failed
	}
	return nil
}

// dialDaemon connects from this thread.
func dialDaemon(uid int) (*net.UnixConn, error) {
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(socket), "dial")
	defer file.Close()
	// A tenant may listen there and accept nothing.
	limit := unix.NsecToTimeval(int64(timeout))
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return nil, err
	}
	if err := unix.Connect(socket, &unix.SockaddrUnix{Name: daemon.SocketName(uid)}); err != nil {
		return nil, err
	}
	connection, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	dial := connection.(*net.UnixConn)
	if err := daemon.CheckPeer(dial, uid); err != nil {
		dial.Close()
		return nil, err
	}
	return dial, nil
}
