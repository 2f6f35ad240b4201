package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"sandgate/helper/internal/daemon"
	pb "sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/helperv1/helperv1connect"
)

// The tests run this program itself, in namespaces of their own: no other helper of this machine has the same socket there,
// and nothing outlives them.
const inNamespaces = "SANDGATE_HELPER_TEST"

func TestMain(m *testing.M) {
	if len(os.Args) >= 2 && !strings.HasPrefix(os.Args[1], "-") {
		if os.Args[1] != "dial" {
			if log, err := os.OpenFile("helper.log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				_ = unix.Dup2(int(log.Fd()), 2)
				log.Close()
			}
		}
		main()
		os.Exit(0)
	}
	if os.Getenv(inNamespaces) == "" {
		os.Exit(enterNamespaces())
	}
	folder := os.Getenv(inNamespaces)
	_ = os.Unsetenv(inNamespaces)
	for _, err := range []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
		bringUpLoopback(),
		os.Chdir(folder),
	} {
		if err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if log, _ := os.ReadFile("helper.log"); len(log) > 0 {
		fmt.Printf("FAIL: the helper wrote to its standard error:\n%s\n", log[:min(len(log), 8000)])
		code = 1
	}
	os.Exit(code)
}

func enterNamespaces() int {
	folder, err := os.MkdirTemp("", "sandgate-helper-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Stdout, again.Stderr = os.Stdout, os.Stderr
	again.Env = append(os.Environ(), inNamespaces+"="+folder)
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if os.Geteuid() != 0 {
		again.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		again.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		again.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	runtime.LockOSThread()
	err = again.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		fmt.Println("no namespaces can be made here:", err)
		return 77
	}
}

func bringUpLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

type helper struct {
	helperv1connect.HelperServiceClient
	helperv1connect.ProcessServiceClient
	files helperv1connect.FileServiceClient
	ports helperv1connect.PortServiceClient
	// Ends the connection, as when the platform is killed.
	hangUp func()
}

// dialHelper connects as the runtime does: standard input and output of `helper dial`.
func dialHelper(t testing.TB) *helper {
	t.Helper()
	return dialBy(t, exec.Command("/proc/self/exe", "dial"))
}

func dialBy(t testing.TB, dial *exec.Cmd) *helper {
	t.Helper()
	connection, ended, hangUp := dialStream(t, dial)
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	given := make(chan net.Conn, 1)
	given <- connection
	client := &http.Client{Transport: &http.Transport{
		Protocols: protocols,
		// All calls share the one stream; a call that asks for another waits until it may have that.
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case connection := <-given:
				return connection, nil
			case <-ended:
				return nil, errors.New("the helper's stream has ended")
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}}
	const base = "http://helper"
	return &helper{
		HelperServiceClient:  helperv1connect.NewHelperServiceClient(client, base),
		ProcessServiceClient: helperv1connect.NewProcessServiceClient(client, base),
		files:                helperv1connect.NewFileServiceClient(client, base),
		ports:                helperv1connect.NewPortServiceClient(client, base),
		hangUp:               hangUp,
	}
}

func dialStream(t testing.TB, dial *exec.Cmd) (stream net.Conn, ended chan struct{}, hangUp func()) {
	t.Helper()
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(sockets[0]), "ours"), os.NewFile(uintptr(sockets[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	dial.Stdin, dial.Stdout = theirs, theirs
	dial.Env = []string{"PATH=/usr/bin:/bin", "HOME=/root", "FROM_IMAGE=yes", "GODEBUG=http2server=0"}
	stream, err = net.FileConn(ours)
	if err == nil {
		err = dial.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() {
		_ = dial.Wait()
		close(ended)
	}()
	hangUp = func() {
		stream.Close()
		<-ended
	}
	t.Cleanup(hangUp)
	return stream, ended, hangUp
}

func newID() string { return rand.Text() }

func argv(words ...string) *pb.Command { return &pb.Command{Argv: words} }
func shell(script string) *pb.Command  { return &pb.Command{Shell: script} }

type result struct {
	process                          *pb.Process
	stdout, stderr, terminal         []byte
	stdoutTruncated, stderrTruncated bool
	gap                              int64
}

// run is what the service does for `exec`.
func (h *helper) run(t testing.TB, command *pb.Command) *result {
	t.Helper()
	found, err := h.tryRun(t.Context(), &pb.RunRequest{Id: newID(), Command: command})
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	return found
}

func (h *helper) tryRun(ctx context.Context, request *pb.RunRequest) (*result, error) {
	stream, err := h.Run(ctx, request)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	found := &result{}
	for stream.Receive() {
		found.add(stream.Msg().Event)
		found.stdoutTruncated, found.stderrTruncated = stream.Msg().StdoutTruncated, stream.Msg().StderrTruncated
	}
	return found, stream.Err()
}

func (found *result) add(event *pb.OutputEvent) {
	switch event := event.Event.(type) {
	case *pb.OutputEvent_GapBytes:
		found.gap += event.GapBytes
	case *pb.OutputEvent_Exit:
		found.process = event.Exit
	case *pb.OutputEvent_Output:
		into := map[pb.OutputStream]*[]byte{1: &found.stdout, 2: &found.stderr, 3: &found.terminal}[event.Output.Stream]
		*into = append(*into, event.Output.Data...)
	}
}

func (h *helper) start(t testing.TB, command *pb.Command) string {
	t.Helper()
	id := newID()
	if _, err := h.Start(t.Context(), &pb.StartRequest{Id: id, Command: command}); err != nil {
		t.Fatal(err)
	}
	return id
}

// output reads all that there is after an offset, with the exit when follow is set.
func (h *helper) output(t testing.TB, request *pb.ReadOutputRequest) *result {
	t.Helper()
	stream, err := h.ReadOutput(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	found := &result{}
	for stream.Receive() {
		found.add(stream.Msg().Event)
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	return found
}

func (h *helper) get(t testing.TB, id string) *pb.Process {
	t.Helper()
	answer, err := h.GetProcess(t.Context(), &pb.GetProcessRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Process
}

func (h *helper) wait(t testing.TB, id string) *pb.Process {
	t.Helper()
	answer, err := h.Wait(t.Context(), &pb.WaitRequest{Id: id, TimeoutMs: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	if answer.Process.State == pb.ProcessState_PROCESS_STATE_RUNNING {
		t.Fatal("it still runs")
	}
	return answer.Process
}

func reasonOf(err error) pb.Reason { return detailOf(err).GetReason() }

// detailOf is nil for an error that the helper did not make.
func detailOf(err error) *pb.ErrorDetail {
	var failed *connect.Error
	if errors.As(err, &failed) {
		for _, detail := range failed.Details() {
			if value, err := detail.Value(); err == nil {
				if found, is := value.(*pb.ErrorDetail); is {
					return found
				}
			}
		}
	}
	return nil
}

func wantReason(t testing.TB, err error, reason pb.Reason) {
	t.Helper()
	if reasonOf(err) != reason {
		t.Errorf("got %v, want %v", err, reason)
	}
}

func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain until ", what)
		}
	}
}

// alive counts the processes, zombies left out, whose command line has the text.
func alive(text string) int {
	count := 0
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		content, _ := os.ReadFile(line)
		if bytes.Contains(bytes.ReplaceAll(content, []byte{0}, []byte{' '}), []byte(text)) {
			count++
		}
	}
	return count
}

// marker is a time to sleep by which a test finds its own processes.
var markers = 100_000

func marker() string {
	markers++
	return "sleep " + strconv.Itoa(markers)
}

func zombiesBelow(pid int) int {
	count := 0
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, _ := os.ReadFile(path)
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[0] == "Z" && fields[1] == strconv.Itoa(pid) {
			count++
		}
	}
	return count
}

// killDaemon returns what it was, once it is gone.
func killDaemon(t testing.TB) *pb.GetInfoResponse {
	t.Helper()
	info, err := dialHelper(t).GetInfo(t.Context(), &pb.GetInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	kill(t, int(info.Pid))
	// A program that is killed keeps its files a little longer than its memory.
	until(t, "it and its socket are gone", func() bool {
		connection, err := net.Dial("unix", daemon.SocketName(os.Geteuid()))
		if err == nil {
			connection.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED) && alive("exe daemon") == 0
	})
	return info
}

func TestDial(t *testing.T) {
	t.Run("twenty at once start one daemon", func(t *testing.T) {
		first := killDaemon(t)
		seen := make(chan string, 20)
		for range 20 {
			connected := dialHelper(t)
			go func() {
				answer, err := connected.GetInfo(context.Background(), &pb.GetInfoRequest{})
				if err != nil {
					seen <- err.Error()
					return
				}
				seen <- answer.InstanceId
			}()
		}
		instance := <-seen
		for range 19 {
			if other := <-seen; other != instance {
				t.Errorf("%s and %s", instance, other)
			}
		}
		if instance == first.InstanceId {
			t.Error("the daemon was not killed")
		}
		until(t, "one daemon is left", func() bool { return alive("exe daemon") == 1 })
	})

	t.Run("commands ignore no signal that whoever started the engine ignored", func(t *testing.T) {
		killDaemon(t)
		// The one of the other tests ignores none.
		defer killDaemon(t)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		h := dialBy(t, exec.Command("sh", "-c", `trap '' HUP INT; exec "$0" dial`, self))
		for _, signal := range []unix.Signal{unix.SIGHUP, unix.SIGINT} {
			if found := h.run(t, shell(fmt.Sprintf("kill -%d $$", signal))); found.process.Signal != int32(signal) {
				t.Error(found.process)
			}
		}
	})

	t.Run("a process of another user gets no connection", func(t *testing.T) {
		if _, err := dialHelper(t).GetInfo(t.Context(), &pb.GetInfoRequest{}); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() != 0 {
			t.Skip("needs root")
		}
		socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		// The kernel tells the user of the thread that connects.
		runtime.LockOSThread()
		if _, _, failed := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 1000, ^uintptr(0)); failed != 0 {
			t.Skip("this user can't become another: ", failed)
		}
		err = unix.Connect(socket, &unix.SockaddrUnix{Name: "@sandgate-helper-0"})
		_, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 0, ^uintptr(0))
		runtime.UnlockOSThread()
		if err != nil {
			t.Fatal(err)
		}
		stranger := os.NewFile(uintptr(socket), "stranger")
		defer stranger.Close()
		_, _ = stranger.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
		if answer, _ := io.ReadAll(stranger); len(answer) > 0 {
			t.Errorf("got %d bytes", len(answer))
		}
	})
}

func kill(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
