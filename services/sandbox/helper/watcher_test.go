package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	pb "sandgate/helper/internal/helperv1"
)

func (h *helper) watch(t testing.TB, request *pb.CreateWatcherRequest) string {
	t.Helper()
	made, err := h.files.CreateWatcher(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = h.files.RemoveWatcher(context.Background(), &pb.RemoveWatcherRequest{Id: made.Id})
	})
	return made.Id
}

// take answers lines such as `CREATE a` and `MOVE a b`, of paths below a folder.
func (h *helper) take(t testing.TB, id, root string) (lines []string) {
	t.Helper()
	answer, err := h.files.TakeWatcherChanges(t.Context(), &pb.TakeWatcherChangesRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range answer.Changes {
		kind := strings.TrimPrefix(change.Type.String(), "CHANGE_TYPE_")
		line := fmt.Sprintln(kind, strings.TrimPrefix(string(change.Path), root+"/"), strings.TrimPrefix(string(change.To), root+"/"))
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

func TestTheKernelsLimitOfWatches(t *testing.T) {
	requireRoot(t)
	// The limits are this namespace's own.
	h := dialBy(t, inUserNamespace(t))
	for name, value := range map[string]string{"max_inotify_watches": "2", "max_inotify_instances": "0"} {
		if got := h.run(t, &pb.Command{Shell: "echo " + value + " > /proc/sys/user/" + name}); got.process.GetExitCode() != 0 {
			t.Skipf("%s", got.stderr)
		}
		root := t.TempDir()
		_ = os.MkdirAll(root+"/a/b/c", 0o755)
		_, err := h.files.CreateWatcher(t.Context(), &pb.CreateWatcherRequest{Path: []byte(root), Recursive: true})
		wantReason(t, err, pb.Reason_REASON_WATCH_LIMIT)
		h.run(t, &pb.Command{Shell: "echo 1000 > /proc/sys/user/" + name})
	}
}

func TestWatchers(t *testing.T) {
	h := dialHelper(t)
	root := t.TempDir()
	_ = os.Mkdir(root+"/old", 0o755)
	id := h.watch(t, &pb.CreateWatcherRequest{Path: []byte(root), Recursive: true})
	flat := h.watch(t, &pb.CreateWatcherRequest{Path: []byte(root)})
	want := func(what string, lines ...string) {
		t.Helper()
		if got := h.take(t, id, root); !slices.Equal(got, lines) {
			t.Errorf("%s: got %q", what, got)
		}
	}
	want("before anything is done")
	_ = os.WriteFile(root+"/old/file", []byte("x"), 0o644)
	want("in a folder", "CREATE old/file", "WRITE old/file")
	want("nothing is told twice")
	_ = os.Rename(root+"/old/file", root+"/moved")
	want("a move", "MOVE old/file moved")
	_ = os.Rename(root+"/moved", t.TempDir()+"/away")
	want("a move that leads away", "DELETE moved")
	_ = os.MkdirAll(root+"/new/below", 0o755)
	_ = os.WriteFile(root+"/new/below/file", nil, 0o644)
	if got := h.take(t, id, root); !slices.Contains(got, "CREATE new/below/file") {
		t.Errorf("in new folders: got %q", got)
	}
	if got := h.take(t, flat, root); slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, "/") && !strings.HasPrefix(line, "MOVE") }) {
		t.Errorf("not recursive: got %q", got)
	}

	t.Run("files that come as a whole are told of as if they were written in place", func(t *testing.T) {
		put := func(name, text string) {
			t.Helper()
			if _, err := h.write(t.Context(), &pb.WriteRequest_Start{Path: []byte(root + "/" + name)}, []byte(text), true); err != nil {
				t.Fatal(err)
			}
		}
		put("whole", "first")
		want("a new one", "CREATE whole", "WRITE whole")
		put("whole", "second")
		want("one over another", "WRITE whole")
		_ = os.Rename(root+"/whole", root+"/renamed")
		want("a move", "MOVE whole renamed")
	})
	t.Run("a folder that moves away is left alone", func(t *testing.T) {
		away := t.TempDir() + "/away"
		_ = os.MkdirAll(root+"/goes/below", 0o755)
		h.take(t, id, root)
		_ = os.Rename(root+"/goes", away)
		_ = os.WriteFile(away+"/file", nil, 0o644)
		want("at once", "DELETE goes")
		_ = os.WriteFile(away+"/below/file", nil, 0o644)
		want("later")
		_ = os.Rename(away, root+"/goes")
		want("when it comes back", "CREATE goes", "CREATE goes/below", "CREATE goes/below/file", "CREATE goes/file")
		_ = os.WriteFile(root+"/goes/below/file", nil, 0o644)
		want("then", "WRITE goes/below/file")
	})
	t.Run("a folder that moves at once is watched", func(t *testing.T) {
		const folders = 100
		for number := range folders {
			_ = os.MkdirAll(fmt.Sprint(root, "/made-", number, "/below"), 0o755)
			_ = os.Rename(fmt.Sprint(root, "/made-", number), fmt.Sprint(root, "/renamed-", number))
		}
		_ = h.take(t, id, root)
		for number := range folders {
			_ = os.Mkdir(fmt.Sprint(root, "/renamed-", number, "/below/new"), 0o755)
		}
		got := h.take(t, id, root)
		for number := range folders {
			if line := fmt.Sprint("CREATE renamed-", number, "/below/new"); !slices.Contains(got, line) {
				t.Errorf("no %q", line)
			}
		}
	})
	t.Run("the folder itself moves away", func(t *testing.T) {
		top := t.TempDir() + "/top"
		_ = os.MkdirAll(top+"/below", 0o755)
		id := h.watch(t, &pb.CreateWatcherRequest{Path: []byte(top), Recursive: true})
		_ = os.Rename(top, top+"-moved")
		_ = os.WriteFile(top+"-moved/file", nil, 0o644)
		_ = os.WriteFile(top+"-moved/below/file", nil, 0o644)
		if got := h.take(t, id, top); !slices.Equal(got, []string{"DELETE " + top}) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a file", func(t *testing.T) {
		folder := t.TempDir()
		_ = os.WriteFile(folder+"/file", nil, 0o644)
		_ = os.Symlink("file", folder+"/link")
		mounted := t.TempDir() + "/mounted"
		_ = os.WriteFile(mounted, nil, 0o644)
		file := h.watch(t, &pb.CreateWatcherRequest{Path: []byte(folder + "/file"), Recursive: true})
		link := h.watch(t, &pb.CreateWatcherRequest{Path: []byte(folder + "/link")})
		want := func(what string, lines ...string) {
			t.Helper()
			// One write may be told twice.
			if got := slices.Compact(h.take(t, file, folder)); !slices.Equal(got, lines) {
				t.Errorf("%s: got %q", what, got)
			}
			for index := range lines {
				lines[index] = strings.ReplaceAll(lines[index], "file", "link")
			}
			if got := slices.Compact(h.take(t, link, folder)); !slices.Equal(got, lines) {
				t.Errorf("%s, by its link: got %q", what, got)
			}
		}
		_ = os.WriteFile(folder+"/other", nil, 0o644)
		want("what happens beside it")
		for range 2 {
			if _, err := h.write(t.Context(), &pb.WriteRequest_Start{Path: []byte(folder + "/file")}, []byte("x"), true); err != nil {
				t.Fatal(err)
			}
			want("it is replaced", "WRITE file")
		}
		_ = os.WriteFile(folder+"/file", []byte("in place"), 0o644)
		want("it is written", "WRITE file")
		_ = os.Chmod(folder+"/file", 0o600)
		want("its mode is set", "ATTRIB file")
		_ = os.Rename(folder+"/file", folder+"/other")
		want("it moves away", "DELETE file")
		_ = os.Rename(folder+"/other", folder+"/file")
		want("another takes its place", "CREATE file")
		_ = os.Remove(folder + "/file")
		want("it is removed", "DELETE file")
		_ = os.WriteFile(folder+"/file", []byte("x"), 0o644)
		want("it is made again", "CREATE file", "WRITE file")
		if err := unix.Mount(folder+"/file", mounted, "", unix.MS_BIND, ""); err != nil {
			t.Skip(err)
		}
		defer func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) }()
		other := h.watch(t, &pb.CreateWatcherRequest{Path: []byte(mounted)})
		_ = os.WriteFile(mounted, []byte("y"), 0o644)
		if got := slices.Compact(h.take(t, other, mounted)); !slices.Equal(got, []string{"WRITE " + mounted}) {
			t.Errorf("a mount: got %q", got)
		}
		_ = os.Rename(folder, folder+"-moved")
		if got := h.take(t, file, folder); !slices.Contains(got, "DELETE file") {
			t.Errorf("its folder moves away: got %q", got)
		}
		_ = os.WriteFile(folder+"-moved/file", nil, 0o644)
		if got := h.take(t, file, folder); len(got) > 0 {
			t.Errorf("after that: got %q", got)
		}
	})
	t.Run("all that was done is in the next answer", func(t *testing.T) {
		for number := range 300 {
			name := fmt.Sprint("at-once-", number)
			_ = os.Mkdir(root+"/"+name, 0o755)
			want("at once", "CREATE "+name)
		}
	})
	t.Run("calls at once tell each change once", func(t *testing.T) {
		const calls, changes = 8, 400
		told := make(chan []string, calls)
		done := make(chan struct{})
		for range calls {
			go func() {
				var mine []string
				for range 50 {
					mine = append(mine, h.take(t, id, root)...)
				}
				<-done
				told <- append(mine, h.take(t, id, root)...)
			}()
		}
		var lines []string
		for number := range changes {
			_ = os.Remove(fmt.Sprint(root, "/at-once-", number))
			_ = os.Mkdir(fmt.Sprint(root, "/parallel-", number), 0o755)
		}
		close(done)
		for range calls {
			lines = append(lines, <-told...)
		}
		created := slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "CREATE parallel-") })
		slices.Sort(created)
		if len(created) != changes || len(slices.Compact(created)) != changes {
			t.Errorf("%d were told", len(created))
		}
	})
	t.Run("what is too much is lost, and told of once", func(t *testing.T) {
		for number := range 6000 {
			_ = os.Mkdir(fmt.Sprint(root, "/many-", number), 0o755)
		}
		got := h.take(t, id, root)
		first := slices.Index(got, "OVERFLOW")
		if len(got) != 4097 || first != 4096 {
			t.Errorf("%d changes, the first overflow at %d", len(got), first)
		}
		_ = os.Mkdir(root+"/after", 0o755)
		want("after that", "CREATE after")
	})
	t.Run("so are long paths", func(t *testing.T) {
		long := root + strings.Repeat("/"+strings.Repeat("x", 200), 10)
		_ = os.MkdirAll(long, 0o755)
		_ = h.take(t, id, root)
		for number := range 1000 {
			_ = os.WriteFile(fmt.Sprint(long, "/", number), nil, 0o644)
		}
		size, got := 0, h.take(t, id, root)
		for _, line := range got {
			size += len(line)
		}
		if size > 600<<10 || got[len(got)-1] != "OVERFLOW" {
			t.Errorf("%d bytes of %d changes", size, len(got))
		}
	})
	t.Run("ends", func(t *testing.T) {
		other := h.watch(t, &pb.CreateWatcherRequest{Path: []byte(root)})
		if _, err := h.files.RemoveWatcher(t.Context(), &pb.RemoveWatcherRequest{Id: other}); err != nil {
			t.Error(err)
		}
		_, err := h.files.RemoveWatcher(t.Context(), &pb.RemoveWatcherRequest{Id: other})
		wantReason(t, err, pb.Reason_REASON_WATCHER_NOT_FOUND)
		_, err = h.files.TakeWatcherChanges(t.Context(), &pb.TakeWatcherChangesRequest{Id: other})
		wantReason(t, err, pb.Reason_REASON_WATCHER_NOT_FOUND)
		_, err = h.files.CreateWatcher(t.Context(), &pb.CreateWatcherRequest{Path: []byte(root + "/none")})
		wantErrno(t, err, "ENOENT")
	})
	t.Run("there are only so many", func(t *testing.T) {
		for range 30 {
			h.watch(t, &pb.CreateWatcherRequest{Path: []byte(root)})
		}
		_, err := h.files.CreateWatcher(t.Context(), &pb.CreateWatcherRequest{Path: []byte(root)})
		wantReason(t, err, pb.Reason_REASON_TOO_MANY_WATCHERS)
	})
	t.Run("another call of the same user finds it", func(t *testing.T) {
		_ = os.Mkdir(root+"/by-another", 0o755)
		if got := dialHelper(t).take(t, id, root); !slices.Contains(got, "CREATE by-another") {
			t.Errorf("got %q", got)
		}
	})
}
