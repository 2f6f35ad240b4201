package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

type testConnector struct {
	t      *testing.T
	pid    int
	folder string
	end    func()
}

func startConnector(t *testing.T) testConnector {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "own")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	connector := exec.Command("/proc/self/exe", "connector", folder)
	stdin, _ := connector.StdinPipe()
	stdout, _ := connector.StdoutPipe()
	if err := connector.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	return testConnector{t, connector.Process.Pid, folder, func() {
		stdin.Close()
		if err := connector.Wait(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Error("the folder is left", err)
		}
	}}
}

func (connector testConnector) dial() net.Conn {
	connector.t.Helper()
	connection, err := net.Dial("unix", filepath.Join(connector.folder, "connector"))
	if err != nil {
		connector.t.Fatal(err)
	}
	return connection
}

func (connector testConnector) ask(request string) string {
	connector.t.Helper()
	connection := connector.dial()
	defer connection.Close()
	fmt.Fprintln(connection, request)
	answer, _ := bufio.NewReader(connection).ReadString('\n')
	return answer
}

// That it connects is tested with a container, by the contract suite of the runtime's operations.
func TestConnectorEntersNothingButTheContainer(t *testing.T) {
	connector := startConnector(t)
	container := strings.Repeat("a", 64)
	for _, request := range []string{
		fmt.Sprintf("%d %s 0", os.Getpid(), container),
		fmt.Sprintf("%d / 0", os.Getpid()),
		fmt.Sprintf("99999999 %s 0", container),
		"nonsense",
	} {
		if answer := connector.ask(request); !strings.HasPrefix(answer, "barred: ") {
			t.Errorf("%q was answered %q", request, answer)
		}
	}
	connector.end()
}

func TestConnectorGoesOnAfterAWantOfDescriptors(t *testing.T) {
	connector := startConnector(t)
	const descriptors = 16
	limit := unix.Rlimit{Cur: descriptors, Max: descriptors}
	if err := unix.Prlimit(connector.pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	var idle []net.Conn
	for range 2 * descriptors {
		idle = append(idle, connector.dial())
	}
	last := fmt.Sprintf("/proc/%d/fd/%d", connector.pid, descriptors-1)
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(last); err == nil {
			break
		} else if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	for _, connection := range idle {
		connection.Close()
	}
	if answer := connector.ask("nonsense"); !strings.HasPrefix(answer, "barred: ") {
		t.Errorf("it answered %q", answer)
	}
	connector.end()
}
