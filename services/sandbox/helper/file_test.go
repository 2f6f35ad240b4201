package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "sandgate/helper/internal/helperv1"
)

func (h *helper) write(ctx context.Context, start *pb.WriteRequest_Start, content []byte, commit bool) (*pb.WriteResponse, error) {
	stream, err := h.files.Write(ctx)
	if err != nil {
		return nil, err
	}
	_ = stream.Send(&pb.WriteRequest{Part: &pb.WriteRequest_Start_{Start: start}})
	for chunk := range slices.Chunk(content, 200_000) {
		_ = stream.Send(&pb.WriteRequest{Part: &pb.WriteRequest_Data{Data: chunk}})
	}
	if commit {
		_ = stream.Send(&pb.WriteRequest{Part: &pb.WriteRequest_Commit{Commit: true}})
	}
	return stream.CloseAndReceive()
}

func (h *helper) read(t testing.TB, request *pb.ReadRequest) (*pb.ReadResponse_Start, []byte, error) {
	t.Helper()
	stream, err := h.files.Read(t.Context(), request)
	if err != nil {
		return nil, nil, err
	}
	defer stream.Close()
	var start *pb.ReadResponse_Start
	var content []byte
	for stream.Receive() {
		if first := stream.Msg().GetStart(); first != nil {
			start = first
		}
		content = append(content, stream.Msg().GetData()...)
	}
	return start, content, stream.Err()
}

func namesIn(t testing.TB, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestWriteAndRead(t *testing.T) {
	h := dialHelper(t)
	folder := t.TempDir()
	for _, size := range []int{0, 1, 18<<10 + 1, 120 << 10, 10<<20 + 1} {
		content := make([]byte, size)
		_, _ = rand.Read(content)
		path := []byte(fmt.Sprint(folder, "/", size))
		answer, err := h.write(t.Context(), &pb.WriteRequest_Start{Path: path}, content, true)
		if err != nil || !answer.Created || answer.Entry.Mode != 0o644 || answer.Entry.Size != int64(size) {
			t.Fatal(answer, err)
		}
		if start, got, err := h.read(t, &pb.ReadRequest{Path: path}); err != nil || !bytes.Equal(got, content) || start.Entry.Etag != answer.Entry.Etag {
			t.Errorf("%d: %d bytes, %v", size, len(got), err)
		}
	}
	path := folder + "/file"
	put := func(start *pb.WriteRequest_Start, content string) (*pb.WriteResponse, error) {
		if start.Path == nil {
			start.Path = []byte(path)
		}
		return h.write(t.Context(), start, []byte(content), true)
	}
	first, err := put(&pb.WriteRequest_Start{Mode: ptr(uint32(0o600))}, "0123456789")
	if err != nil {
		t.Fatal(err)
	}

	t.Run("a stream without commit changes nothing", func(t *testing.T) {
		if _, err := h.write(t.Context(), &pb.WriteRequest_Start{Path: []byte(path)}, []byte("new"), false); connect.CodeOf(err) != connect.CodeAborted {
			t.Error(err)
		}
		if got, _ := os.ReadFile(path); string(got) != "0123456789" || len(namesIn(t, folder)) != 6 {
			t.Errorf("%q, %v", got, namesIn(t, folder))
		}
	})
	t.Run("ranges", func(t *testing.T) {
		for name, row := range map[string]struct {
			wanted *pb.ByteRange
			want   string
		}{
			"from": {&pb.ByteRange{Start: ptr(int64(7))}, "789"}, "part": {&pb.ByteRange{Start: ptr(int64(2)), Length: ptr(int64(3))}, "234"},
			"last": {&pb.ByteRange{Length: ptr(int64(4))}, "6789"}, "beyond": {&pb.ByteRange{Start: ptr(int64(8)), Length: ptr(int64(9))}, "89"},
			"none": {&pb.ByteRange{Start: ptr(int64(10))}, ""},
		} {
			start, got, err := h.read(t, &pb.ReadRequest{Path: []byte(path), Range: row.wanted})
			if row.want == "" {
				wantReason(t, err, pb.Reason_REASON_RANGE_NOT_SATISFIABLE)
			} else if err != nil || string(got) != row.want || !start.Partial || *start.Length != int64(len(got)) {
				t.Error(name, string(got), start, err)
			}
		}
		if start, got, err := h.read(t, &pb.ReadRequest{Path: []byte(path), Range: &pb.ByteRange{Start: ptr(int64(7))}, IfRange: "other"}); err != nil || len(got) != 10 || start.Partial {
			t.Error(string(got), start, err)
		}
	})
	t.Run("preconditions", func(t *testing.T) {
		_, err := put(&pb.WriteRequest_Start{Precondition: &pb.Precondition{IfNoneMatch: true}}, "x")
		wantReason(t, err, pb.Reason_REASON_PRECONDITION_FAILED)
		answers := make(chan error, 12)
		for range 12 {
			go func() {
				_, err := put(&pb.WriteRequest_Start{Path: []byte(path), Precondition: &pb.Precondition{IfMatch: []string{first.Entry.Etag}}}, "won")
				answers <- err
			}()
		}
		won := 0
		for range 12 {
			if err := <-answers; err == nil {
				won++
			} else {
				wantReason(t, err, pb.Reason_REASON_PRECONDITION_FAILED)
			}
		}
		if won != 1 {
			t.Errorf("%d won", won)
		}
	})
	t.Run("a replaced file keeps its mode and owner", func(t *testing.T) {
		if os.Geteuid() == 0 {
			_ = os.Chown(path, 1234, 1235)
		}
		answer, err := put(&pb.WriteRequest_Start{}, "again")
		if err != nil || answer.Created || answer.Entry.Mode != 0o600 || (os.Geteuid() == 0 && answer.Entry.Uid != 1234) {
			t.Error(answer, err)
		}
	})
	t.Run("through links", func(t *testing.T) {
		for link, leads := range map[string]string{"/link": "file", "/dangling": "made"} {
			if err := os.Symlink(leads, folder+link); err != nil {
				t.Fatal(err)
			}
			if _, err := put(&pb.WriteRequest_Start{Path: []byte(folder + link)}, link); err != nil {
				t.Error(err)
			}
			if got, _ := os.ReadFile(folder + "/" + leads); string(got) != link {
				t.Errorf("%q", got)
			}
		}
	})
	t.Run("a mount point is written in place", func(t *testing.T) {
		mounted := folder + "/mounted"
		_ = os.WriteFile(mounted, []byte("before"), 0o644)
		if err := unix.Mount(path, mounted, "", unix.MS_BIND, ""); err != nil {
			t.Skip(err)
		}
		defer func() { _ = unix.Unmount(mounted, 0) }()
		if _, err := put(&pb.WriteRequest_Start{Path: []byte(mounted)}, "in place"); err != nil {
			t.Error(err)
		}
		if got, _ := os.ReadFile(path); string(got) != "in place" {
			t.Errorf("%q", got)
		}
	})
	t.Run("a folder that takes no other file", func(t *testing.T) {
		requireRoot(t)
		root, _ := openTo(t)
		path := []byte(root + "/theirs.txt")
		_ = os.WriteFile(string(path), []byte("before"), 0o600)
		_ = os.Chown(string(path), 12345, 678)
		entry := func() *pb.Entry {
			answer, err := h.files.Stat(t.Context(), &pb.StatRequest{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			return answer.Entry
		}
		before := entry()
		start := &pb.WriteRequest_Start{Path: path, User: stranger}
		if _, err := h.write(t.Context(), start, []byte("cut off"), false); connect.CodeOf(err) != connect.CodeAborted {
			t.Error(err)
		}
		if after := entry(); after.Etag != before.Etag {
			t.Error("what was cut off changed it: ", after)
		}
		start.Precondition = &pb.Precondition{IfMatch: []string{before.Etag}}
		answer, err := h.write(t.Context(), start, []byte("after"), true)
		if err != nil || answer.Created || answer.Entry.Mode != 0o600 {
			t.Error(answer, err)
		}
		_, err = h.write(t.Context(), start, []byte("too late"), true)
		wantReason(t, err, pb.Reason_REASON_PRECONDITION_FAILED)
		if got, _ := os.ReadFile(string(path)); string(got) != "after" {
			t.Errorf("%q", got)
		}
		// It may be written, and only its owner may set its mode.
		_ = os.Chown(string(path), 0, 678)
		_ = os.Chmod(string(path), 0o660)
		start = &pb.WriteRequest_Start{Path: path, User: stranger, Mode: ptr(uint32(0o600))}
		_, err = h.write(t.Context(), start, []byte("refused"), true)
		wantErrno(t, err, "EPERM")
		if got, _ := os.ReadFile(string(path)); string(got) != "after" {
			t.Errorf("%q", got)
		}
		if left := namesIn(t, root); !slices.Equal(left, []string{"theirs", "theirs.txt"}) {
			t.Error(left)
		}
	})
	t.Run("parents", func(t *testing.T) {
		deep := []byte(folder + "/a/b/c")
		_, err := put(&pb.WriteRequest_Start{Path: deep}, "x")
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Error(err)
		}
		if _, err := put(&pb.WriteRequest_Start{Path: deep, Parents: true}, "x"); err != nil {
			t.Error(err)
		}
	})
	t.Run("no files", func(t *testing.T) {
		fifo := folder + "/fifo"
		_ = unix.Mkfifo(fifo, 0o600)
		for _, path := range []string{fifo, folder, "/dev/null"} {
			_, err := put(&pb.WriteRequest_Start{Path: []byte(path)}, "x")
			wantReason(t, err, pb.Reason_REASON_NOT_A_FILE)
			_, _, err = h.read(t, &pb.ReadRequest{Path: []byte(path)})
			wantReason(t, err, pb.Reason_REASON_NOT_A_FILE)
		}
		_, _, err := h.read(t, &pb.ReadRequest{Path: []byte("/no/such")})
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Error(err)
		}
	})
	t.Run("a file of the kernel's", func(t *testing.T) {
		want, _ := os.ReadFile("/proc/version")
		if start, got, err := h.read(t, &pb.ReadRequest{Path: []byte("/proc/version")}); err != nil || !bytes.Equal(got, want) || start.Length != nil {
			t.Error(string(got), err)
		}
	})
	t.Run("no space", func(t *testing.T) {
		small := t.TempDir()
		if err := unix.Mount("none", small, "tmpfs", 0, "size=1m"); err != nil {
			t.Skip(err)
		}
		defer func() { _ = unix.Unmount(small, 0) }()
		_, err := h.write(t.Context(), &pb.WriteRequest_Start{Path: []byte(small + "/big")}, make([]byte, 3<<20), true)
		wantErrno(t, err, "ENOSPC")
		if left := namesIn(t, small); len(left) != 0 {
			t.Error(left)
		}
		inPlace := folder + "/in-place"
		_ = os.WriteFile(small+"/file", []byte("before"), 0o644)
		_ = os.WriteFile(inPlace, nil, 0o644)
		if err := unix.Mount(small+"/file", inPlace, "", unix.MS_BIND, ""); err != nil {
			t.Skip(err)
		}
		defer func() { _ = unix.Unmount(inPlace, 0) }()
		write := func(content []byte) error {
			_, err := h.write(t.Context(), &pb.WriteRequest_Start{Path: []byte(inPlace)}, content, true)
			return err
		}
		wantErrno(t, write(make([]byte, 3<<20)), "ENOSPC")
		if got, _ := os.ReadFile(inPlace); string(got) != "before" {
			t.Errorf("%d bytes", len(got))
		}
		var left unix.Statfs_t
		if err := unix.Statfs(small, &left); err != nil || left.Bfree*uint64(left.Bsize) < 900<<10 {
			t.Error(left.Bfree, err)
		}
		for _, content := range []string{strings.Repeat("x", 600<<10), "", "after"} {
			if err := write([]byte(content)); err != nil {
				t.Error(err)
			}
			if got, _ := os.ReadFile(inPlace); string(got) != content {
				t.Errorf("%d bytes of %d", len(got), len(content))
			}
		}
	})
}

func ptr[Value any](value Value) *Value { return &value }

func TestFolders(t *testing.T) {
	h := dialHelper(t)
	root := t.TempDir()
	for _, name := range []string{"b", "a-", "a/z", "a/y/x", "c\xff", "d"} {
		_ = os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755)
		_ = os.WriteFile(filepath.Join(root, name), nil, 0o644)
	}
	_ = os.Symlink("a", root+"/link")
	want := []string{"a", "a/y", "a/y/x", "a/z", "a-", "b", "c\xff", "d", "link"}
	for _, limit := range []int32{1, 2, 4, 100} {
		var got []string
		for cursor := []byte(nil); ; {
			page, err := h.files.List(t.Context(), &pb.ListRequest{Path: []byte(root), Depth: 5, Limit: limit, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range page.Entries {
				got = append(got, strings.TrimPrefix(string(entry.Path), root+"/"))
			}
			if cursor = page.NextCursor; len(cursor) == 0 {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %q", limit, got)
		}
	}
	made, err := h.files.MakeDirectory(t.Context(), &pb.MakeDirectoryRequest{Path: []byte(root + "/m/n"), Parents: true, Mode: ptr(uint32(0o700))})
	if err != nil || !made.Created || made.Entry.Mode != 0o700 {
		t.Error(made, err)
	}
	_, err = h.files.MakeDirectory(t.Context(), &pb.MakeDirectoryRequest{Path: []byte(root + "/m")})
	wantReason(t, err, pb.Reason_REASON_ALREADY_EXISTS)
	_, err = h.files.Move(t.Context(), &pb.MoveRequest{From: []byte(root + "/b"), To: []byte(root + "/d")})
	wantReason(t, err, pb.Reason_REASON_ALREADY_EXISTS)
	if _, err := h.files.Move(t.Context(), &pb.MoveRequest{From: []byte(root + "/b"), To: []byte(root + "/d"), Overwrite: true}); err != nil {
		t.Error(err)
	}
	_, err = h.files.Remove(t.Context(), &pb.RemoveRequest{Path: []byte(root + "/a")})
	wantReason(t, err, pb.Reason_REASON_NOT_EMPTY)
	_, err = h.files.Remove(t.Context(), &pb.RemoveRequest{Path: []byte("/usr/.."), Recursive: true})
	wantReason(t, err, pb.Reason_REASON_IS_ROOT)
	if _, err := h.files.Remove(t.Context(), &pb.RemoveRequest{Path: []byte(root + "/link"), Recursive: true}); err != nil {
		t.Error(err)
	}
	if len(namesIn(t, root+"/a")) != 2 {
		t.Error("a link was followed")
	}
	if _, err := h.files.Remove(t.Context(), &pb.RemoveRequest{Path: []byte(root + "/a"), Recursive: true}); err != nil {
		t.Error(err)
	}
	changed, err := h.files.SetMode(t.Context(), &pb.SetModeRequest{Path: []byte(root + "/d"), Mode: 0o750})
	if err != nil || changed.Entry.Mode != 0o750 {
		t.Error(changed, err)
	}
	_, err = h.files.Stat(t.Context(), &pb.StatRequest{Path: []byte("a\x00b")})
	wantReason(t, err, pb.Reason_REASON_INVALID)
}

// listAll reads a folder by full pages, and returns how many entries came, which were in order.
func (h *helper) listAll(t testing.TB, folder string) (seen int) {
	t.Helper()
	last := ""
	for cursor := []byte(nil); seen == 0 || len(cursor) > 0; {
		page, err := h.files.List(t.Context(), &pb.ListRequest{Path: []byte(folder), Limit: 1000, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range page.Entries {
			if path := string(entry.Path); path <= last {
				t.Fatal(path, " after ", last)
			} else {
				last = path
			}
		}
		seen, cursor = seen+len(page.Entries), page.NextCursor
	}
	return seen
}

func makeFolders(t testing.TB, count int) string {
	t.Helper()
	root := t.TempDir()
	for number := range count {
		if err := os.Mkdir(fmt.Sprint(root, "/", number), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestLongList(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of files take long")
	}
	const count = 20_000
	root := makeFolders(t, count)
	h := dialHelper(t)
	if seen := h.listAll(t, root); seen != count {
		t.Error(seen)
	}
	// What is changed while it is read by pages is seen.
	request := &pb.ListRequest{Path: []byte(root), Depth: 2, Limit: 1000}
	page, err := h.files.List(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	request.Cursor = page.NextCursor
	if err := os.MkdirAll(root+"/2/below", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(root+"/3", root+"/2-moved"); err != nil {
		t.Fatal(err)
	}
	seen := len(page.Entries)
	var found []string
	for len(request.Cursor) > 0 {
		page, err := h.files.List(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range page.Entries {
			if name := strings.TrimPrefix(string(entry.Path), root+"/"); slices.Contains([]string{"2", "2/below", "2-moved", "3"}, name) {
				found = append(found, name)
			}
		}
		seen, request.Cursor = seen+len(page.Entries), page.NextCursor
	}
	if want := []string{"2", "2/below", "2-moved"}; !slices.Equal(found, want) || seen != count+1 {
		t.Error(found, seen)
	}
}

func BenchmarkLongList(b *testing.B) {
	h := dialHelper(b)
	root := makeFolders(b, 100_000)
	for b.Loop() {
		h.listAll(b, root)
	}
}

// archive reads an archive whole.
func (h *helper) archive(t testing.TB, path string) ([]byte, error) {
	t.Helper()
	stream, err := h.files.ReadArchive(t.Context(), &pb.ReadArchiveRequest{Path: []byte(path)})
	if err != nil {
		t.Fatal(err)
	}
	var archive []byte
	for stream.Receive() {
		archive = append(archive, stream.Msg().Data...)
	}
	return archive, errors.Join(stream.Err(), stream.Close())
}

func (h *helper) extract(t testing.TB, folder string, archive []byte) error {
	t.Helper()
	stream, err := h.files.WriteArchive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(&pb.WriteArchiveRequest{Part: &pb.WriteArchiveRequest_Start_{Start: &pb.WriteArchiveRequest_Start{Path: []byte(folder)}}})
	for chunk := range slices.Chunk(archive, 100_000) {
		_ = stream.Send(&pb.WriteArchiveRequest{Part: &pb.WriteArchiveRequest_Data{Data: chunk}})
	}
	_ = stream.Send(&pb.WriteArchiveRequest{Part: &pb.WriteArchiveRequest_Commit{Commit: true}})
	_, err = stream.CloseAndReceive()
	return err
}

func tarOf(headers ...*tar.Header) []byte {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, header := range headers {
		content := []byte("content")
		if header.Typeflag == tar.TypeReg {
			header.Size = int64(len(content))
		}
		_ = archive.WriteHeader(header)
		if header.Typeflag == tar.TypeReg {
			_, _ = archive.Write(content)
		}
	}
	_ = archive.Close()
	return out.Bytes()
}

// namesOf ends with the error of an archive that is damaged.
func namesOf(archive []byte) (names []string) {
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			return append(names, err.Error())
		}
		names = append(names, header.Name)
	}
}

func TestArchives(t *testing.T) {
	h := dialHelper(t)
	from, to, outside := t.TempDir(), t.TempDir(), t.TempDir()
	content := make([]byte, 3<<20)
	_, _ = rand.Read(content)
	old := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	_ = os.Mkdir(from+"/folder", 0o750)
	_ = os.WriteFile(from+"/folder/file", content, 0o640)
	_ = os.Symlink("/usr/bin/python3", from+"/folder/python")
	for _, path := range []string{"/folder/file", "/folder"} {
		_ = os.Chtimes(from+path, old, old)
	}
	archive, err := h.archive(t, from)
	if err := errors.Join(err, h.extract(t, to, archive)); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(to + "/folder/file")
	link, _ := os.Readlink(to + "/folder/python")
	if !bytes.Equal(got, content) || link != "/usr/bin/python3" {
		t.Error(len(got), link)
	}
	for path, mode := range map[string]os.FileMode{"/folder/file": 0o640, "/folder": 0o750} {
		if info, err := os.Stat(to + path); err != nil || info.Mode().Perm() != mode || !info.ModTime().Equal(old) {
			t.Error(path, info, err)
		}
	}
	t.Run("its names are those below the path, however that is written", func(t *testing.T) {
		_ = os.Mkdir(outside+"/below", 0o755)
		_ = os.WriteFile(outside+"/theirs", nil, 0o644)
		_ = os.Symlink(outside+"/below", from+"/folder/link")
		own := []string{"file", "link", "python"}
		for path, want := range map[string][]string{
			"/folder": own, "/folder/": own, "/./folder": own, "//folder": own, "/folder/../folder/.": own,
			"/folder/link/..": {"below/", "theirs"}, "/folder/link/../theirs": {"theirs"},
			"": {"folder/", "folder/file", "folder/link", "folder/python"},
		} {
			archive, err := h.archive(t, from+path)
			if names := namesOf(archive); err != nil || !slices.Equal(names, want) {
				t.Errorf("%q: %q, %v", path, names, err)
			}
		}
		_ = os.RemoveAll(outside)
		_ = os.Mkdir(outside, 0o755)
	})
	t.Run("what is removed meanwhile is left out", func(t *testing.T) {
		root := t.TempDir()
		// More than a client takes before it reads.
		_ = os.WriteFile(root+"/a", make([]byte, 32<<20), 0o644)
		_ = os.MkdirAll(root+"/b/below", 0o755)
		_ = os.WriteFile(root+"/c", []byte("x"), 0o644)
		_ = os.Symlink("a", root+"/d")
		_ = os.WriteFile(root+"/e", []byte("x"), 0o644)
		stream, err := h.files.ReadArchive(t.Context(), &pb.ReadArchiveRequest{Path: []byte(root)})
		if err != nil || !stream.Receive() {
			t.Fatal(err, stream.Err())
		}
		for _, name := range []string{"b", "c", "d"} {
			_ = os.RemoveAll(root + "/" + name)
		}
		archive := slices.Clone(stream.Msg().Data)
		for stream.Receive() {
			archive = append(archive, stream.Msg().Data...)
		}
		if err := errors.Join(stream.Err(), stream.Close()); err != nil {
			t.Fatal(err)
		}
		if names := namesOf(archive); !slices.Equal(names, []string{"a", "e"}) {
			t.Errorf("%q", names)
		}
		stream, err = h.files.ReadArchive(t.Context(), &pb.ReadArchiveRequest{Path: []byte(root + "/c")})
		if err == nil && stream.Receive() {
			t.Error("what is not there was sent")
		}
		wantErrno(t, errors.Join(err, stream.Err()), "ENOENT")
	})
	t.Run("one that fails", func(t *testing.T) {
		path := t.TempDir() + "/shortened"
		// More than a client takes before it reads.
		_ = os.WriteFile(path, make([]byte, 32<<20), 0o644)
		stream, err := h.files.ReadArchive(t.Context(), &pb.ReadArchiveRequest{Path: []byte(path)})
		if err != nil || !stream.Receive() {
			t.Fatal(err, stream.Err())
		}
		_ = os.Truncate(path, 1<<20)
		for stream.Receive() {
		}
		if errors.Join(stream.Err(), stream.Close()) == nil {
			t.Error("it ended well")
		}
	})
	for name, archive := range map[string][]byte{
		"dots":            tarOf(&tar.Header{Name: "a/../../b", Typeflag: tar.TypeReg, Mode: 0o644}),
		"absolute":        tarOf(&tar.Header{Name: outside + "/b", Typeflag: tar.TypeReg, Mode: 0o644}),
		"a FIFO":          tarOf(&tar.Header{Name: "b", Typeflag: tar.TypeFifo}),
		"a device":        tarOf(&tar.Header{Name: "b", Typeflag: tar.TypeChar}),
		"through a link":  tarOf(&tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, &tar.Header{Name: "l/b", Typeflag: tar.TypeReg, Mode: 0o644}),
		"a folder's link": tarOf(&tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, &tar.Header{Name: "l/b/", Typeflag: tar.TypeDir, Mode: 0o755}),
		"a hard link":     tarOf(&tar.Header{Name: "b", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"}),
		"a cut end":       tarOf(&tar.Header{Name: "b", Typeflag: tar.TypeReg, Mode: 0o644})[:1024],
		"cut in a file":   tarOf(&tar.Header{Name: "b", Typeflag: tar.TypeReg, Mode: 0o644})[:515],
		"nothing":         {},
		"garbage":         bytes.Repeat([]byte("garbage "), 500),
	} {
		t.Run(name, func(t *testing.T) {
			wantReason(t, h.extract(t, t.TempDir(), archive), pb.Reason_REASON_BAD_ARCHIVE)
			if left := namesIn(t, outside); len(left) != 0 {
				t.Error(left)
			}
		})
	}
	if err := h.extract(t, t.TempDir(), tarOf()); err != nil {
		t.Error("an empty archive: ", err)
	}
}

func TestWatch(t *testing.T) {
	h := dialHelper(t)
	root := t.TempDir()
	stream, err := h.files.Watch(t.Context(), &pb.WatchRequest{Path: []byte(root), Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() || !stream.Msg().GetReady() {
		t.Fatal(stream.Err())
	}
	expect := func(kind pb.ChangeType, path, to string) {
		t.Helper()
		for stream.Receive() {
			change := stream.Msg().GetChange()
			if change.Type == kind && string(change.Path) == root+path {
				if to != "" && string(change.To) != root+to {
					t.Error(change)
				}
				return
			}
		}
		t.Fatal("not told of ", path, stream.Err())
	}
	_ = os.Mkdir(root+"/new", 0o755)
	expect(pb.ChangeType_CHANGE_TYPE_CREATE, "/new", "")
	_ = os.WriteFile(root+"/new/file", []byte("x"), 0o644)
	expect(pb.ChangeType_CHANGE_TYPE_CREATE, "/new/file", "")
	expect(pb.ChangeType_CHANGE_TYPE_WRITE, "/new/file", "")
	_ = os.Chmod(root+"/new/file", 0o600)
	expect(pb.ChangeType_CHANGE_TYPE_ATTRIB, "/new/file", "")
	_ = os.Rename(root+"/new", root+"/moved")
	expect(pb.ChangeType_CHANGE_TYPE_MOVE, "/new", "/moved")
	_ = os.WriteFile(root+"/moved/other", []byte("x"), 0o644)
	expect(pb.ChangeType_CHANGE_TYPE_CREATE, "/moved/other", "")
	_ = os.Rename(root+"/moved/other", t.TempDir()+"/away")
	expect(pb.ChangeType_CHANGE_TYPE_DELETE, "/moved/other", "")
	_ = os.RemoveAll(root + "/moved")
	expect(pb.ChangeType_CHANGE_TYPE_DELETE, "/moved", "")
}
