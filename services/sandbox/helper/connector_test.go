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
)

func startConnector(t *testing.T) (ask func(request string) string, end func()) {
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
	ask = func(request string) string {
		connection, err := net.Dial("unix", filepath.Join(folder, "connector"))
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		fmt.Fprintln(connection, request)
		answer, _ := bufio.NewReader(connection).ReadString('\n')
		return answer
	}
	end = func() {
		stdin.Close()
		if err := connector.Wait(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Error("the folder is left", err)
		}
	}
	return ask, end
}

// That it connects is tested with a container, by the contract suite of the runtime's operations.
func TestConnectorEntersNothingButTheContainer(t *testing.T) {
	ask, end := startConnector(t)
	container := strings.Repeat("a", 64)
	for _, request := range []string{
		fmt.Sprintf("%d %s 0", os.Getpid(), container),
		fmt.Sprintf("%d / 0", os.Getpid()),
		fmt.Sprintf("99999999 %s 0", container),
		"nonsense",
	} {
		if answer := ask(request); !strings.HasPrefix(answer, "barred: ") {
			t.Errorf("%q was answered %q", request, answer)
		}
	}
	end()
}
