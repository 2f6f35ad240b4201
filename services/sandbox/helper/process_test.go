package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	pb "sandgate/helper/internal/helperv1"
)

func TestCommands(t *testing.T) {
	h := dialHelper(t)
	for name, row := range map[string]struct {
		command        *pb.Command
		stdout, stderr string
		code           int32
	}{
		"argv is no shell":                  {argv("echo", "$HOME"), "$HOME\n", "", 0},
		"a shell has the home folder":       {shell("echo $HOME"), "/root\n", "", 0},
		"and the user's name":               {shell("echo $USER $LOGNAME"), "root root\n", "", 0},
		"unless the command has another":    {&pb.Command{Shell: "echo $USER $LOGNAME", Env: map[string]string{"USER": "me"}}, "me root\n", "", 0},
		"streams come apart":                {shell("echo out; echo err >&2"), "out\n", "err\n", 0},
		"an exit code":                      {shell("exit 7"), "", "", 7},
		"a missing program":                 {argv("no-such-program"), "", "no-such-program: not found\n", 127},
		"a missing file":                    {argv("/no/such"), "", "/no/such: not found\n", 127},
		"a file that can't be run":          {argv("/etc/passwd"), "", "/etc/passwd: permission denied\n", 126},
		"a folder":                          {argv("/etc"), "", "/etc: permission denied\n", 126},
		"the container's environment":       {shell("echo $FROM_IMAGE"), "yes\n", "", 0},
		"variables are added":               {&pb.Command{Shell: "echo $FROM_IMAGE $ADDED", Env: map[string]string{"ADDED": "too"}}, "yes too\n", "", 0},
		"variables replace":                 {&pb.Command{Shell: "echo $FROM_IMAGE", Env: map[string]string{"FROM_IMAGE": "no"}}, "no\n", "", 0},
		"none of the helper's own":          {shell("env | grep -v PWD= | grep -c -i -e sandgate -e GOMAX"), "0\n", "", 1},
		"a folder to start in":              {&pb.Command{Argv: []string{"pwd"}, Cwd: "/usr/bin"}, "/usr/bin\n", "", 0},
		"a descriptor of the helper is not": {argv("ls", "/proc/self/fd"), "0\n1\n2\n3\n", "", 0},
		"no input is an empty one":          {shell("cat; echo end"), "end\n", "", 0},
		"input, its end, output after it":   {&pb.Command{Shell: "wc -c; echo after", Stdin: []byte("12345")}, "5\nafter\n", "", 0},
		"a signal":                          {shell("kill -KILL $$"), "", "", 137},
	} {
		t.Run(name, func(t *testing.T) {
			got := h.run(t, row.command)
			if string(got.stdout) != row.stdout || string(got.stderr) != row.stderr || got.process.GetExitCode() != row.code {
				t.Errorf("got %q, %q, %v", got.stdout, got.stderr, got.process)
			}
		})
	}
	if signal := h.run(t, shell("kill -9 $$")).process.Signal; signal != 9 {
		t.Errorf("signal %d", signal)
	}
}

func TestRefusals(t *testing.T) {
	h := dialHelper(t)
	for name, row := range map[string]struct {
		command *pb.Command
		reason  pb.Reason
	}{
		"nothing to run":        {&pb.Command{}, pb.Reason_REASON_INVALID},
		"a NUL":                 {argv("echo", "a\x00b"), pb.Reason_REASON_INVALID},
		"a bad variable":        {&pb.Command{Shell: "true", Env: map[string]string{"A=B": ""}}, pb.Reason_REASON_INVALID},
		"a missing folder":      {&pb.Command{Shell: "true", Cwd: "/no/such"}, pb.Reason_REASON_CWD_NOT_A_DIRECTORY},
		"a file as folder":      {&pb.Command{Shell: "true", Cwd: "/etc/passwd"}, pb.Reason_REASON_CWD_NOT_A_DIRECTORY},
		"both missing":          {&pb.Command{Argv: []string{"nope"}, Cwd: "/no/such"}, pb.Reason_REASON_CWD_NOT_A_DIRECTORY},
		"a descriptor's folder": {&pb.Command{Argv: []string{"pwd"}, Cwd: "/proc/self/fd/7"}, pb.Reason_REASON_CWD_NOT_A_DIRECTORY},
		"an unknown user":       {&pb.Command{Shell: "true", User: "nobody-of-this-name"}, pb.Reason_REASON_USER_UNKNOWN},
		"a terminal too wide":   {&pb.Command{Shell: "true", Terminal: &pb.Terminal{Cols: 1001, Rows: 1}}, pb.Reason_REASON_INVALID},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.Start(t.Context(), &pb.StartRequest{Id: newID(), Command: row.command})
			wantReason(t, err, row.reason)
		})
	}
	_, err := h.GetProcess(t.Context(), &pb.GetProcessRequest{Id: "unknown"})
	wantReason(t, err, pb.Reason_REASON_PROCESS_NOT_FOUND)
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
}

func TestUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	h := dialHelper(t)
	for user, want := range map[string]string{"nobody": "65534 65534", "65534": "65534 65534", "12345": "12345 0", "12345:6": "12345 6"} {
		got := h.run(t, &pb.Command{Shell: "echo $(id -u) $(id -g)", User: user, Cwd: "/"})
		if strings.TrimSpace(string(got.stdout)) != want {
			t.Errorf("%s: %s%s", user, got.stdout, got.stderr)
		}
	}
	if got := h.run(t, &pb.Command{Shell: "echo $USER $LOGNAME", User: "nobody", Cwd: "/"}); string(got.stdout) != "nobody nobody\n" {
		t.Errorf("%q", got.stdout)
	}
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := h.Start(t.Context(), &pb.StartRequest{Id: newID(), Command: &pb.Command{Shell: "true", User: "nobody", Cwd: closed}})
	wantReason(t, err, pb.Reason_REASON_CWD_NOT_A_DIRECTORY)
}

func TestLargeOutput(t *testing.T) {
	h := dialHelper(t)
	const each = 64 << 20
	script := shell("head -c 67108864 /dev/zero & head -c 67108864 /dev/zero >&2; wait")

	t.Run("on both streams at once", func(t *testing.T) {
		got := h.run(t, script)
		if len(got.stdout) != each || len(got.stderr) != each || got.gap != 0 {
			t.Errorf("%d, %d, gap %d", len(got.stdout), len(got.stderr), got.gap)
		}
	})
	t.Run("its first bytes", func(t *testing.T) {
		got, err := h.tryRun(t.Context(), &pb.RunRequest{Id: newID(), MaxOutputBytes: 1000, Command: shell("printf first; head -c 9000000 /dev/zero; echo err >&2")})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.stdout) != 1000 || !bytes.HasPrefix(got.stdout, []byte("first")) || string(got.stderr) != "err\n" {
			t.Errorf("%d, %q", len(got.stdout), got.stderr)
		}
		if !got.stdoutTruncated || got.stderrTruncated || got.process.OutputBytes != 9000009 {
			t.Errorf("%v %v %v", got.stdoutTruncated, got.stderrTruncated, got.process)
		}
	})
	t.Run("nobody reads", func(t *testing.T) {
		id := h.start(t, shell("head -c 9000000 /dev/zero; printf last"))
		ended := h.wait(t, id)
		if ended.OutputBytes != 9000004 || ended.RetainedFrom != 9000004-1<<20 {
			t.Error(ended)
		}
		got := h.output(t, &pb.ReadOutputRequest{Id: id})
		if got.gap != ended.RetainedFrom || len(got.stdout) != 1<<20 || !bytes.HasSuffix(got.stdout, []byte("last")) || got.process == nil {
			t.Errorf("gap %d, %d bytes", got.gap, len(got.stdout))
		}
	})
}

func TestPacing(t *testing.T) {
	h := dialHelper(t)
	script := "i=0; while [ $i -lt 300000 ]; do echo line $i of a long output; i=$((i+1)); done"
	want := sha256.New()
	for i := range 300000 {
		fmt.Fprintf(want, "line %d of a long output\n", i)
	}
	id := h.start(t, shell("sleep 0.2; "+script))
	stream, err := h.ReadOutput(t.Context(), &pb.ReadOutputRequest{Id: id, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	got, found, pauses := sha256.New(), &result{}, 0
	for stream.Receive() {
		found.add(stream.Msg().Event)
		if len(found.stdout) > 1<<20 && pauses < 20 {
			// Slower than the process.
			pauses++
			time.Sleep(20 * time.Millisecond)
		}
	}
	got.Write(found.stdout)
	if stream.Err() != nil || found.gap != 0 || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Errorf("%v, gap %d, %d bytes", stream.Err(), found.gap, len(found.stdout))
	}
}

func TestReplay(t *testing.T) {
	h := dialHelper(t)
	id := h.start(t, shell("printf abc; sleep 0.3; printf DEF >&2; sleep 0.3; printf ghi"))
	h.wait(t, id)
	whole := "abcDEFghi"
	for after := range len(whole) + 1 {
		got := h.output(t, &pb.ReadOutputRequest{Id: id, After: int64(after), Follow: true})
		if len(got.stdout)+len(got.stderr) != len(whole)-after || got.process.GetExitCode() != 0 || got.process == nil {
			t.Errorf("after %d: %q %q", after, got.stdout, got.stderr)
		}
	}
	got := h.output(t, &pb.ReadOutputRequest{Id: id, After: 2, MaxBytes: 2})
	if string(got.stdout) != "c" || string(got.stderr) != "D" || got.process != nil {
		t.Errorf("a page: %q %q", got.stdout, got.stderr)
	}
	waiting := h.start(t, shell("sleep 0.3; echo now; sleep 60"))
	if got := h.output(t, &pb.ReadOutputRequest{Id: waiting, WaitMs: 30_000}); string(got.stdout) != "now\n" {
		t.Errorf("%q", got.stdout)
	}
	if got := h.output(t, &pb.ReadOutputRequest{Id: waiting, After: 4}); got.process != nil {
		t.Error("it still runs")
	}
	if _, err := h.End(t.Context(), &pb.EndRequest{Id: waiting}); err != nil {
		t.Fatal(err)
	}
}

func TestExitBesideAChildThatHoldsTheOutput(t *testing.T) {
	h := dialHelper(t)
	child := marker()
	got := h.run(t, shell("printf all; "+child+" & exit 3"))
	if string(got.stdout) != "all" || got.process.GetExitCode() != 3 {
		t.Error(got)
	}
	if alive(child) != 1 {
		t.Error("the child is gone")
	}
	writes := h.run(t, shell("(sleep 0.3; echo lost; echo still > written; "+child+") & exit 0"))
	if writes.process.GetExitCode() != 0 {
		t.Error(writes)
	}
	until(t, "the child wrote to nobody and went on", func() bool { return alive(child) == 2 })
}

func TestTreesEnd(t *testing.T) {
	h := dialHelper(t)
	tree := func(sleep string) string {
		return fmt.Sprintf("%[1]s & setsid %[1]s & (setsid sh -c 'trap \"\" TERM HUP; %[1]s & %[1]s' &) ; trap '' TERM; wait; %[1]s", sleep)
	}
	t.Run("at the timeout", func(t *testing.T) {
		sleep := marker()
		began := time.Now()
		got := h.run(t, &pb.Command{Shell: "echo before; " + tree(sleep), TimeoutMs: 500})
		if !got.process.TimedOut || string(got.stdout) != "before\n" || time.Since(began) < 500*time.Millisecond {
			t.Error(got.process)
		}
		if got.process.GetExitCode() != 137 || alive(sleep) != 0 {
			t.Errorf("%v, %d left", got.process, alive(sleep))
		}
	})
	t.Run("by End", func(t *testing.T) {
		sleep := marker()
		id := h.start(t, shell(tree(sleep)))
		until(t, "all run", func() bool { return alive(sleep) >= 4 })
		if _, err := h.End(t.Context(), &pb.EndRequest{Id: id, GraceMs: 300}); err != nil {
			t.Fatal(err)
		}
		h.wait(t, id)
		if alive(sleep) != 0 {
			t.Error("some are left")
		}
		if _, err := h.End(t.Context(), &pb.EndRequest{Id: id, GraceMs: 300}); err != nil {
			t.Error(err)
		}
	})
	t.Run("by SIGKILL", func(t *testing.T) {
		sleep := marker()
		id := h.start(t, shell(tree(sleep)))
		until(t, "all run", func() bool { return alive(sleep) >= 4 })
		if _, err := h.Signal(t.Context(), &pb.SignalRequest{Id: id, Signal: 9}); err != nil {
			t.Fatal(err)
		}
		if ended := h.wait(t, id); ended.Signal != 9 || alive(sleep) != 0 {
			t.Error(ended, alive(sleep))
		}
		_, err := h.Signal(t.Context(), &pb.SignalRequest{Id: id, Signal: 15})
		wantReason(t, err, pb.Reason_REASON_PROCESS_ENDED)
	})
	t.Run("when the caller leaves", func(t *testing.T) {
		for _, ends := range []bool{true, false} {
			sleep := marker()
			leaving := dialHelper(t)
			ctx, leave := context.WithCancel(t.Context())
			stream, err := leaving.Run(ctx, &pb.RunRequest{Id: newID(), Command: shell(tree(sleep)), EndOnDisconnect: ends})
			if err != nil || !stream.Receive() {
				t.Fatal(err)
			}
			id := stream.Msg().Event.GetStart().Id
			until(t, "all run", func() bool { return alive(sleep) >= 4 })
			leave()
			if !ends {
				time.Sleep(200 * time.Millisecond)
				if h.get(t, id).State != pb.ProcessState_PROCESS_STATE_RUNNING {
					t.Error("it ended")
				}
				_, _ = h.Signal(t.Context(), &pb.SignalRequest{Id: id, Signal: 9})
			}
			h.wait(t, id)
			if alive(sleep) != 0 {
				t.Error("some are left")
			}
		}
	})
	t.Run("when the last caller leaves", func(t *testing.T) {
		run := &pb.RunRequest{Id: newID(), Command: argv("sleep", "1000"), EndOnDisconnect: true}
		call := func() (leave func()) {
			ctx, leave := context.WithCancel(t.Context())
			stream, err := dialHelper(t).Run(ctx, run)
			if err != nil || !stream.Receive() {
				t.Fatal(err)
			}
			return leave
		}
		leaveFirst, leaveLast := call(), call()
		leaveFirst()
		answer, err := h.Wait(t.Context(), &pb.WaitRequest{Id: run.Id, TimeoutMs: 500})
		if err != nil || answer.Process.State != pb.ProcessState_PROCESS_STATE_RUNNING {
			t.Error(answer, err)
		}
		leaveLast()
		if ended := h.wait(t, run.Id); ended.Signal != 15 {
			t.Error(ended)
		}
	})
	t.Run("when the connection breaks", func(t *testing.T) {
		leaving := dialHelper(t)
		stream, err := leaving.Run(t.Context(), &pb.RunRequest{Id: newID(), Command: argv("sleep", "1000"), EndOnDisconnect: true})
		if err != nil || !stream.Receive() {
			t.Fatal(err)
		}
		leaving.hangUp()
		if ended := h.wait(t, stream.Msg().Event.GetStart().Id); ended.Signal != 15 {
			t.Error(ended)
		}
	})
}

func TestProcessesOutliveConnections(t *testing.T) {
	first := dialHelper(t)
	id := first.start(t, &pb.Command{Shell: "echo before; read line; echo $line", StdinOpen: true})
	info, err := first.GetInfo(t.Context(), &pb.GetInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it has begun", func() bool { return first.get(t, id).OutputBytes == 7 })
	first.hangUp()
	second := dialHelper(t)
	if again, err := second.GetInfo(t.Context(), &pb.GetInfoRequest{}); err != nil || again.InstanceId != info.InstanceId {
		t.Fatal(again, err)
	}
	if _, err := second.WriteStdin(t.Context(), &pb.WriteStdinRequest{Id: id, Data: []byte("after\n")}); err != nil {
		t.Error(err)
	}
	second.wait(t, id)
	if got := second.output(t, &pb.ReadOutputRequest{Id: id}); string(got.stdout) != "before\nafter\n" {
		t.Errorf("%q", got.stdout)
	}
}

func TestKilledHelper(t *testing.T) {
	h := dialHelper(t)
	sleep := marker()
	id := h.start(t, shell(sleep+" & setsid "+sleep+" & wait"))
	until(t, "it runs", func() bool { return alive("sh -c "+sleep) == 1 && alive(sleep) >= 3 })
	t.Run("its reaper", func(t *testing.T) {
		kill(t, parentOf(t, h.get(t, id).Pid))
		if ended := h.wait(t, id); ended.State != pb.ProcessState_PROCESS_STATE_LOST || ended.ExitCode != nil {
			t.Error(ended)
		}
		if got := h.run(t, argv("echo", "next")); string(got.stdout) != "next\n" {
			t.Error(got)
		}
	})
	t.Run("the daemon", func(t *testing.T) {
		sleep := marker()
		h.start(t, shell(sleep+" & setsid "+sleep+" & wait"))
		until(t, "it runs", func() bool { return alive(sleep) >= 3 })
		info, err := h.GetInfo(t.Context(), &pb.GetInfoRequest{})
		if err != nil {
			t.Fatal(err)
		}
		kill(t, int(info.Pid))
		until(t, "it is gone", func() bool { return alive("exe daemon") == 0 })
		// A dial can still meet the one that was killed, and is then repeated by the platform too.
		until(t, "the next runs", func() bool {
			got, err := dialHelper(t).tryRun(t.Context(), &pb.RunRequest{Id: newID(), Command: argv("echo", "next")})
			return err == nil && string(got.stdout) == "next\n"
		})
		until(t, "what it ran has ended", func() bool { return alive(sleep) == 0 })
	})
}

func parentOf(t testing.TB, pid int32) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var parent int
	if _, err := fmt.Sscan(strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[1], &parent); err != nil {
		t.Fatal(err)
	}
	return parent
}

func TestManyCommands(t *testing.T) {
	h := dialHelper(t)
	info, err := h.GetInfo(t.Context(), &pb.GetInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	count := 2000
	if testing.Short() {
		count = 200
	}
	for i := range count {
		// Some leave a child that ends later.
		script := "true"
		if i%100 == 0 {
			script = "sleep 0.1 & true"
		}
		if got := h.run(t, shell(script)); got.process.GetExitCode() != 0 {
			t.Fatal(got.process)
		}
	}
	until(t, "no zombie is left", func() bool { return zombiesBelow(int(info.Pid)) == 0 })
	answer, err := h.ListProcesses(t.Context(), &pb.ListProcessesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ended := slices.DeleteFunc(answer.Processes, func(p *pb.Process) bool { return p.State == pb.ProcessState_PROCESS_STATE_RUNNING })
	if len(ended) != min(count, 1000) && count >= 1000 {
		t.Errorf("%d are listed", len(ended))
	}
	descriptors, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", info.Pid))
	if len(descriptors) > 60 {
		t.Errorf("%d descriptors", len(descriptors))
	}
}

func TestLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("starts 64 processes")
	}
	h := dialHelper(t)
	var ids []string
	t.Cleanup(func() {
		for _, id := range ids {
			_, _ = h.Signal(context.Background(), &pb.SignalRequest{Id: id, Signal: 9})
		}
	})
	var err error
	for range 70 {
		id := newID()
		if _, err = h.Start(t.Context(), &pb.StartRequest{Id: id, Command: argv("sleep", "1000")}); err != nil {
			break
		}
		ids = append(ids, id)
	}
	wantReason(t, err, pb.Reason_REASON_TOO_MANY_PROCESSES)
	if len(ids) > 64 || len(ids) < 50 {
		t.Errorf("%d run", len(ids))
	}
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Error(err)
	}
}

func TestRepeatedStart(t *testing.T) {
	h := dialHelper(t)
	request := &pb.StartRequest{Id: newID(), Command: shell("echo once; echo x >> " + t.TempDir() + "/count; sleep 1000")}
	pids := make(chan int32, 10)
	for range 10 {
		go func() {
			answer, err := h.Start(context.Background(), request)
			if err != nil {
				t.Error(err)
			}
			pids <- answer.GetProcess().GetPid()
		}()
	}
	first := <-pids
	for range 9 {
		if pid := <-pids; pid != first {
			t.Errorf("%d and %d", first, pid)
		}
	}
	until(t, "it has said something", func() bool { return h.get(t, request.Id).OutputBytes > 0 })
	if _, err := h.End(t.Context(), &pb.EndRequest{Id: request.Id}); err != nil {
		t.Fatal(err)
	}
	h.wait(t, request.Id)
	got, err := h.tryRun(t.Context(), &pb.RunRequest{Id: request.Id, Command: request.Command})
	if err != nil || string(got.stdout) != "once\n" || got.process.Pid != first {
		t.Error(got, err)
	}
}

func TestStdin(t *testing.T) {
	h := dialHelper(t)
	id := h.start(t, &pb.Command{Shell: "cat; echo end", Stdin: []byte("12"), StdinOpen: true})
	write := func(offset int64, data string, eof bool) (*pb.WriteStdinResponse, error) {
		return h.WriteStdin(t.Context(), &pb.WriteStdinRequest{Id: id, Offset: &offset, Data: []byte(data), Eof: eof})
	}
	until(t, "its own input is taken", func() bool {
		answer, err := h.WriteStdin(t.Context(), &pb.WriteStdinRequest{Id: id})
		return err == nil && answer.Offset == 2
	})
	if answer, err := write(2, "345", false); err != nil || answer.Offset != 5 {
		t.Error(answer, err)
	}
	if answer, err := write(2, "3456", false); err != nil || answer.Offset != 6 || answer.Taken == nil || *answer.Taken != 1 {
		t.Error(answer, err)
	}
	_, err := write(7, "8", false)
	wantReason(t, err, pb.Reason_REASON_STDIN_GAP)
	if answer, err := write(6, "7", true); err != nil || answer.Offset != 7 || !answer.Closed {
		t.Error(answer, err)
	}
	_, err = write(7, "8", false)
	wantReason(t, err, pb.Reason_REASON_STDIN_CLOSED)
	if answer, err := write(5, "67", true); err != nil || answer.Offset != 7 {
		t.Error(answer, err)
	}
	if got := h.output(t, &pb.ReadOutputRequest{Id: id, Follow: true}); string(got.stdout) != "1234567end\n" {
		t.Errorf("%q", got.stdout)
	}

	full := h.start(t, &pb.Command{Argv: []string{"sleep", "1000"}, StdinOpen: true})
	answer, err := h.WriteStdin(t.Context(), &pb.WriteStdinRequest{Id: full, Data: make([]byte, 1<<20), TimeoutMs: 200})
	if err != nil || answer.Offset == 0 || answer.Offset >= 1<<20 || answer.GetTaken() != answer.Offset {
		t.Error(answer, err)
	}
	_, _ = h.Signal(t.Context(), &pb.SignalRequest{Id: full, Signal: 9})
	h.wait(t, full)
	_, err = h.WriteStdin(t.Context(), &pb.WriteStdinRequest{Id: full, Data: []byte("more")})
	wantReason(t, err, pb.Reason_REASON_STDIN_CLOSED)
}

func TestTerminal(t *testing.T) {
	h := dialHelper(t)
	id := h.start(t, &pb.Command{
		Argv:     []string{"sh", "-c", "trap 'stty size' WINCH; trap 'echo interrupted' INT; stty size; echo $TERM; tty; while :; do sleep 0.05; done"},
		Terminal: &pb.Terminal{Cols: 101, Rows: 33},
	})
	stream, err := h.ReadOutput(t.Context(), &pb.ReadOutputRequest{Id: id, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	found := &result{}
	expect := func(text string) {
		t.Helper()
		for !strings.Contains(string(found.terminal), text) {
			if !stream.Receive() {
				t.Fatalf("no %q: %v in %q", text, stream.Err(), found.terminal)
			}
			found.add(stream.Msg().Event)
		}
	}
	expect("33 101\r\nxterm-256color\r\n/dev/pts/")
	if _, err := h.Resize(t.Context(), &pb.ResizeRequest{Id: id, Cols: 80, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	expect("24 80\r\n")
	if size := h.get(t, id).Terminal; size.Cols != 80 || size.Rows != 24 {
		t.Error(size)
	}
	if _, err := h.WriteStdin(t.Context(), &pb.WriteStdinRequest{Id: id, Data: []byte{3}}); err != nil {
		t.Fatal(err)
	}
	expect("interrupted\r\n")
	if _, err := h.Resize(t.Context(), &pb.ResizeRequest{Id: id, Cols: 0, Rows: 24}); reasonOf(err) != pb.Reason_REASON_INVALID {
		t.Error(err)
	}
	if _, err := h.Signal(t.Context(), &pb.SignalRequest{Id: id, Signal: int32(unix.SIGHUP)}); err != nil {
		t.Fatal(err)
	}
	for stream.Receive() {
		found.add(stream.Msg().Event)
	}
	if found.process.GetSignal() != 1 || stream.Err() != nil {
		t.Error(found.process, stream.Err())
	}

	t.Run("the end of input is a character", func(t *testing.T) {
		id := h.start(t, &pb.Command{Argv: []string{"cat"}, Terminal: &pb.Terminal{Cols: 80, Rows: 24}})
		if _, err := h.WriteStdin(t.Context(), &pb.WriteStdinRequest{Id: id, Data: []byte("line\n"), Eof: true}); err != nil {
			t.Fatal(err)
		}
		if ended := h.wait(t, id); ended.GetExitCode() != 0 {
			t.Error(ended)
		}
	})
	t.Run("a program may close it and open it again", func(t *testing.T) {
		id := h.start(t, &pb.Command{
			Shell:    "exec </dev/null >/dev/null 2>&1; sleep 0.1; echo back >/dev/tty; exit 7",
			Terminal: &pb.Terminal{Cols: 80, Rows: 24},
		})
		got := h.output(t, &pb.ReadOutputRequest{Id: id, Follow: true})
		if string(got.terminal) != "back\r\n" || got.process.GetExitCode() != 7 {
			t.Errorf("%q %v", got.terminal, got.process)
		}
	})
	t.Run("hung up when nobody follows", func(t *testing.T) {
		id := h.start(t, &pb.Command{Argv: []string{"cat"}, Terminal: &pb.Terminal{Cols: 80, Rows: 24, HangupAfterMs: 200}})
		if ended := h.wait(t, id); ended.Signal != 1 {
			t.Error(ended)
		}
		followed := h.start(t, &pb.Command{Argv: []string{"sleep", "0.6"}, Terminal: &pb.Terminal{Cols: 80, Rows: 24, HangupAfterMs: 200}})
		if got := h.output(t, &pb.ReadOutputRequest{Id: followed, Follow: true}); got.process.GetExitCode() != 0 {
			t.Error(got.process)
		}
	})
	t.Run("only terminals have a size", func(t *testing.T) {
		id := h.start(t, argv("sleep", "1"))
		_, err := h.Resize(t.Context(), &pb.ResizeRequest{Id: id, Cols: 80, Rows: 24})
		wantReason(t, err, pb.Reason_REASON_NOT_A_TERMINAL)
	})
}

func TestManyAtOnce(t *testing.T) {
	h := dialHelper(t)
	gate := t.TempDir() + "/gate"
	ended := make(chan error, 32)
	for range 32 {
		go func() {
			got, err := h.tryRun(context.Background(), &pb.RunRequest{Id: newID(), Command: shell("while [ ! -e " + gate + " ]; do sleep 0.05; done")})
			if err == nil && got.process.GetExitCode() != 0 {
				err = io.ErrUnexpectedEOF
			}
			ended <- err
		}()
	}
	// None ends before all are there.
	until(t, "all run at once", func() bool { return alive("while [ ! -e "+gate) == 32 })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 32 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkTrue(b *testing.B) {
	h := dialHelper(b)
	for b.Loop() {
		if _, err := h.tryRun(context.Background(), &pb.RunRequest{Id: newID(), Command: argv("true"), MaxOutputBytes: 1 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDial(b *testing.B) {
	for b.Loop() {
		h := dialHelper(b)
		if _, err := h.GetInfo(context.Background(), &pb.GetInfoRequest{}); err != nil {
			b.Fatal(err)
		}
		h.hangUp()
	}
}

func TestKeys(t *testing.T) {
	h := dialHelper(t)
	start := func(id, key string, command *pb.Command) (*pb.Process, error) {
		answer, err := h.Start(t.Context(), &pb.StartRequest{Id: id, Key: []byte(key), Command: command})
		return answer.GetProcess(), err
	}
	folder := t.TempDir()
	t.Run("of many at once one starts", func(t *testing.T) {
		const callers = 40
		errs := make(chan error, callers)
		for caller := range callers {
			go func() {
				_, err := start(newID(), "at-once", shell(fmt.Sprint("echo >> ", folder, "/started-", caller)))
				errs <- err
			}()
		}
		started := 0
		for range callers {
			if err := <-errs; err == nil {
				started++
			} else {
				wantReason(t, err, pb.Reason_REASON_KEY_USED)
			}
		}
		if started != 1 {
			t.Errorf("%d started", started)
		}
		until(t, "it has run", func() bool { return len(namesIn(t, folder)) == 1 })
	})
	first := newID()
	if _, err := start(first, "key", argv("true")); err != nil {
		t.Fatal(err)
	}
	ended := h.wait(t, first)
	if again, err := start(first, "key", argv("true")); err != nil || again.Pid != ended.Pid {
		t.Error(again, err)
	}
	t.Run("one that failed used no key", func(t *testing.T) {
		_, err := start(newID(), "of-another", &pb.Command{Argv: []string{"true"}, Cwd: "/no/such"})
		wantReason(t, err, pb.Reason_REASON_CWD_NOT_A_DIRECTORY)
		if _, err := start(newID(), "of-another", argv("true")); err != nil {
			t.Error(err)
		}
	})
	_, err := h.tryRun(t.Context(), &pb.RunRequest{Id: newID(), Key: []byte("key"), Command: argv("true")})
	wantReason(t, err, pb.Reason_REASON_KEY_USED)
	if testing.Short() {
		t.Skip("a thousand commands take long")
	}
	for range 1010 {
		h.run(t, argv("true"))
	}
	_, err = start(first, "key", argv("true"))
	wantReason(t, err, pb.Reason_REASON_PROCESS_FORGOTTEN)
	_, err = start(newID(), "key", argv("true"))
	wantReason(t, err, pb.Reason_REASON_KEY_USED)
}

func TestListOfLongCommands(t *testing.T) {
	h := dialHelper(t)
	list := func() []*pb.Process {
		answer, err := h.ListProcesses(t.Context(), &pb.ListProcessesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Processes
	}
	long := strings.Repeat("\u00e9", 60_000)
	id := h.start(t, &pb.Command{Argv: []string{"true", "x" + long, long}})
	listed := func() *pb.Process {
		processes := list()
		return processes[slices.IndexFunc(processes, func(one *pb.Process) bool { return one.Id == id })]
	}
	if argv := listed().Argv; len(argv) != 3 || argv[2] != long {
		t.Error("a short list is cut")
	}
	for range 20 {
		h.run(t, &pb.Command{Argv: []string{"true", long}})
	}
	if argv := listed().Argv; len(argv) != 2 || argv[1] != "x"+long[:1018] {
		t.Errorf("%d words, of %d bytes", len(argv), len(strings.Join(argv, "")))
	}
	if size := proto.Size(&pb.ListProcessesResponse{Processes: list()}); size > 2<<20 {
		t.Errorf("%d bytes", size)
	}
	if argv := h.get(t, id).Argv; len(argv) != 3 || argv[2] != long {
		t.Error("the process itself is cut")
	}
	last := h.start(t, &pb.Command{Argv: []string{"true", long}})
	h.wait(t, last)
	for range 15 {
		h.run(t, &pb.Command{Argv: []string{"true", long}})
	}
	until(t, "more than 4 MiB are cut", func() bool { return len(h.get(t, id).Argv) == 2 })
	if argv := h.get(t, id).Argv; argv[1] != "x"+long[:1018] {
		t.Errorf("%d bytes", len(argv[1]))
	}
	if argv := h.get(t, last).Argv; argv[1] != long {
		t.Error("more than the oldest are cut")
	}
	words := h.start(t, &pb.Command{Argv: append([]string{"true"}, make([]string, 4000)...)})
	h.wait(t, words)
	processes := list()
	if argv := processes[slices.IndexFunc(processes, func(one *pb.Process) bool { return one.Id == words })].Argv; len(argv) > 1024 {
		t.Errorf("%d empty words", len(argv))
	}
}
