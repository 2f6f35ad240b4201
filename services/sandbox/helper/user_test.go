package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	pb "sandgate/helper/internal/helperv1"
)

// Of a user that no machine has.
const stranger = "12345:678"

func wantErrno(t testing.TB, err error, errno string) {
	t.Helper()
	if detail := detailOf(err); detail.GetReason() != pb.Reason_REASON_ERRNO || detail.GetErrno() != errno {
		t.Errorf("got %v, want %s", err, errno)
	}
}

func requireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.Command("chown", "12345:678", t.TempDir()).CombinedOutput(); err != nil {
		t.Skip("there are no other users here")
	}
}

func owner(t testing.TB, path string) string {
	t.Helper()
	var found unix.Stat_t
	if err := unix.Lstat(path, &found); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d", found.Uid, found.Gid)
}

// openTo is a folder that all may enter, and one in it that a stranger owns.
func openTo(t testing.TB) (root, theirs string) {
	t.Helper()
	root = t.TempDir()
	// Those above it are for root alone.
	for folder := root; folder != "/tmp" && folder != "/"; folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	theirs = root + "/theirs"
	if err := os.Mkdir(theirs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(theirs, 12345, 678); err != nil {
		t.Fatal(err)
	}
	return root, theirs
}

func TestFilesOfAnotherUser(t *testing.T) {
	requireRoot(t)
	h := dialHelper(t)
	ctx := t.Context()
	root, theirs := openTo(t)
	put := func(path, user string) (*pb.WriteResponse, error) {
		return h.write(ctx, &pb.WriteRequest_Start{Path: []byte(path), Parents: true, User: user}, []byte("content"), true)
	}
	for _, path := range []string{"/closed/file", "/private"} {
		if _, err := put(root+path, ""); err != nil {
			t.Fatal(err)
		}
	}
	_ = os.Chmod(root+"/closed", 0o700)
	_ = os.Chmod(root+"/private", 0o600)

	t.Run("what is made belongs to it", func(t *testing.T) {
		answer, err := put(theirs+"/a/b/file", stranger)
		if err != nil || answer.Entry.Uid != 12345 || answer.Entry.Gid != 678 || answer.Entry.Mode != 0o644 {
			t.Fatal(answer, err)
		}
		made, err := h.files.MakeDirectory(ctx, &pb.MakeDirectoryRequest{Path: []byte(theirs + "/made/below"), Parents: true, User: stranger})
		if err != nil || made.Entry.Uid != 12345 {
			t.Error(made, err)
		}
		for _, path := range []string{"/a", "/a/b", "/made"} {
			if got := owner(t, theirs+path); got != stranger {
				t.Error(path, got)
			}
		}
		moved, err := h.files.Move(ctx, &pb.MoveRequest{From: []byte(theirs + "/a/b/file"), To: []byte(theirs + "/moved"), User: stranger})
		if err != nil || moved.Entry.Uid != 12345 {
			t.Error(moved, err)
		}
		if _, content, err := h.read(t, &pb.ReadRequest{Path: []byte(theirs + "/moved"), User: stranger}); err != nil || string(content) != "content" {
			t.Error(string(content), err)
		}
		if _, err := h.files.Remove(ctx, &pb.RemoveRequest{Path: []byte(theirs + "/a"), Recursive: true, User: stranger}); err != nil {
			t.Error(err)
		}
	})
	t.Run("it may what its rights allow", func(t *testing.T) {
		for name, try := range map[string]func(path []byte) error{
			"stat": func(path []byte) error {
				_, err := h.files.Stat(ctx, &pb.StatRequest{Path: path, User: stranger})
				return err
			},
			"list": func([]byte) error {
				_, err := h.files.List(ctx, &pb.ListRequest{Path: []byte(root + "/closed"), User: stranger})
				return err
			},
			"read": func(path []byte) error {
				_, _, err := h.read(t, &pb.ReadRequest{Path: path, User: stranger})
				return err
			},
			"read a file": func([]byte) error {
				_, _, err := h.read(t, &pb.ReadRequest{Path: []byte(root + "/private"), User: stranger})
				return err
			},
			"write": func(path []byte) error {
				_, err := put(string(path), stranger)
				return err
			},
			"write over a file": func([]byte) error {
				_, err := put(root+"/private", stranger)
				return err
			},
			"write a new file": func([]byte) error {
				_, err := put(root+"/new", stranger)
				return err
			},
			"make a folder": func([]byte) error {
				_, err := h.files.MakeDirectory(ctx, &pb.MakeDirectoryRequest{Path: []byte(root + "/made"), User: stranger})
				return err
			},
			"move": func(path []byte) error {
				_, err := h.files.Move(ctx, &pb.MoveRequest{From: path, To: []byte(theirs + "/stolen"), User: stranger})
				return err
			},
			"remove": func([]byte) error {
				_, err := h.files.Remove(ctx, &pb.RemoveRequest{Path: []byte(root + "/private"), User: stranger})
				return err
			},
			"watch": func(path []byte) error {
				_, err := h.files.CreateWatcher(ctx, &pb.CreateWatcherRequest{Path: path, User: stranger})
				return err
			},
		} {
			t.Run(name, func(t *testing.T) { wantErrno(t, try([]byte(root+"/closed/file")), "EACCES") })
		}
		t.Run("change the mode", func(t *testing.T) {
			_, err := h.files.SetMode(ctx, &pb.SetModeRequest{Path: []byte(root + "/private"), Mode: 0o666, User: stranger})
			wantErrno(t, err, "EPERM")
		})
		if got, _ := os.ReadFile(root + "/private"); string(got) != "content" {
			t.Errorf("%q", got)
		}
	})
	t.Run("a group is enough", func(t *testing.T) {
		_ = os.WriteFile(root+"/shared", []byte("shared"), 0o640)
		_ = os.Chmod(root+"/shared", 0o660)
		_ = os.Chown(root+"/shared", 0, 678)
		if _, content, err := h.read(t, &pb.ReadRequest{Path: []byte(root + "/shared"), User: stranger}); err != nil || string(content) != "shared" {
			t.Error(string(content), err)
		}
		// It can't make one of the same owner, so this one is written in place.
		answer, err := put(root+"/shared", stranger)
		if err != nil || answer.Entry.Uid != 0 || answer.Entry.Gid != 678 || answer.Created {
			t.Error(answer, err)
		}
	})
	t.Run("an unknown user", func(t *testing.T) {
		_, err := h.files.Stat(ctx, &pb.StatRequest{Path: []byte("/"), User: "nobody-of-this-name"})
		if detail := detailOf(err); detail.GetReason() != pb.Reason_REASON_USER_UNKNOWN || detail.GetField() != "user" {
			t.Error(err)
		}
	})
}

// inUserNamespace dials a helper for which there are 1,000 users.
func inUserNamespace(t testing.TB) *exec.Cmd {
	t.Helper()
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1000}}
	attributes := &syscall.SysProcAttr{
		// The network is where its socket is.
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
	}
	try := exec.Command("true")
	try.SysProcAttr = attributes
	if err := try.Run(); err != nil {
		t.Skip("no user namespace can be made here: ", err)
	}
	dial := exec.Command("/proc/self/exe", "dial")
	dial.SysProcAttr = attributes
	return dial
}

func TestUserThatTheNamespaceHasNot(t *testing.T) {
	requireRoot(t)
	h := dialBy(t, inUserNamespace(t))
	for _, user := range []string{"100000", "999:100000"} {
		_, err := h.Start(t.Context(), &pb.StartRequest{Id: newID(), Command: &pb.Command{Shell: "true", User: user, Cwd: "/"}})
		if detail := detailOf(err); detail.GetReason() != pb.Reason_REASON_USER_UNKNOWN || detail.GetField() != "" {
			t.Error(user, err)
		}
		_, err = h.files.Stat(t.Context(), &pb.StatRequest{Path: []byte("/"), User: user})
		if detail := detailOf(err); detail.GetReason() != pb.Reason_REASON_USER_UNKNOWN || detail.GetField() != "user" {
			t.Error(user, err)
		}
	}
	if got := h.run(t, &pb.Command{Shell: "id -u", User: "999:999", Cwd: "/"}); string(got.stdout) != "999\n" {
		t.Errorf("%q %q", got.stdout, got.stderr)
	}
}

// threadsOf are the real, effective, saved and file system uids and gids of a program's threads, each once.
func threadsOf(t testing.TB, pid int32) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	statuses, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, path := range statuses {
		status, _ := os.ReadFile(path)
		for line := range strings.Lines(string(status)) {
			for _, name := range []string{"Uid:", "Gid:", "Groups:", "CapEff:"} {
				if strings.HasPrefix(line, name) {
					found[strings.Join(strings.Fields(line), " ")] = true
				}
			}
		}
	}
	return found
}

func TestUsersAtOnce(t *testing.T) {
	requireRoot(t)
	h := dialHelper(t)
	_, theirs := openTo(t)
	_ = os.Chmod(theirs, 0o777)
	info, err := h.GetInfo(t.Context(), &pb.GetInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	before := threadsOf(t, info.Pid)
	users := map[string]string{"": "0:0", stranger: stranger, "12346:679": "12346:679", "0": "0:0"}
	var all sync.WaitGroup
	for user, want := range users {
		for caller := range 8 {
			all.Go(func() {
				for number := range 15 {
					path := fmt.Sprintf("%s/%s-%d-%d", theirs, user, caller, number)
					answer, err := h.write(t.Context(), &pb.WriteRequest_Start{Path: []byte(path), User: user}, []byte("x"), true)
					if err != nil || fmt.Sprintf("%d:%d", answer.Entry.Uid, answer.Entry.Gid) != want {
						t.Error(path, answer, err)
					}
					// What the daemon does for itself meanwhile is still root's.
					if got := h.run(t, argv("id", "-u")); string(got.stdout) != "0\n" {
						t.Errorf("%q", got.stdout)
					}
				}
			})
		}
	}
	all.Wait()
	for line := range threadsOf(t, info.Pid) {
		if !before[line] {
			t.Error("a thread kept ", line)
		}
	}
}

func TestGetUser(t *testing.T) {
	h := dialHelper(t)
	get := func(name string) (*pb.GetUserResponse, error) {
		return h.GetUser(t.Context(), &pb.GetUserRequest{User: name})
	}
	if own, err := get(""); err != nil || own.Home != "/root" || own.Uid != 0 {
		t.Error(own, err)
	}
	if other, err := get(stranger); err != nil || other.Uid != 12345 || other.Gid != 678 || other.Home != "/" {
		t.Error(other, err)
	}
	_, err := get("nobody-of-this-name")
	wantReason(t, err, pb.Reason_REASON_USER_UNKNOWN)
}

func TestHelperThatIsNotRoot(t *testing.T) {
	requireRoot(t)
	program := "/tmp/helper-of-all"
	content, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, content, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(program)
	dial := exec.Command(program, "dial")
	dial.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 678}}
	h := dialBy(t, dial)
	_, theirs := openTo(t)
	for user, want := range map[string]pb.Reason{"": 0, stranger: 0, "12345": pb.Reason_REASON_USER_NOT_PERMITTED, "0:0": pb.Reason_REASON_USER_NOT_PERMITTED} {
		answer, err := h.write(t.Context(), &pb.WriteRequest_Start{Path: []byte(theirs + "/of " + user), User: user}, []byte("x"), true)
		if want != 0 {
			wantReason(t, err, want)
		} else if err != nil || answer.Entry.Uid != 12345 || answer.Entry.Gid != 678 {
			t.Error(user, answer, err)
		}
	}
}
