package file

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
)

// sender makes messages of what is written to it.
type sender struct {
	stream *connect.ServerStream[helperv1.ReadArchiveResponse]
	buffer []byte
}

func (out *sender) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		count := copy(out.buffer[len(out.buffer):cap(out.buffer)], rest)
		out.buffer, rest = out.buffer[:len(out.buffer)+count], rest[count:]
		if len(out.buffer) == cap(out.buffer) {
			if err := out.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(data), nil
}

func (out *sender) flush() error {
	if len(out.buffer) == 0 {
		return nil
	}
	err := out.stream.Send(&helperv1.ReadArchiveResponse{Data: out.buffer})
	out.buffer = out.buffer[:0]
	return err
}

func (service *Service) ReadArchive(ctx context.Context, request *helperv1.ReadArchiveRequest, stream *connect.ServerStream[helperv1.ReadArchiveResponse]) error {
	path, err := checkPath("path", request.Path)
	if err != nil {
		return err
	}
	found, err := status(path, true)
	if err != nil {
		return failure.FromSystem(err)
	}
	out := &sender{stream: stream, buffer: make([]byte, 0, chunkBytes)}
	archive := tar.NewWriter(out)
	if isType(found, unix.S_IFDIR) {
		err = archiveFolder(ctx, archive, strings.TrimRight(path, "/")+"/", "")
	} else if isType(found, unix.S_IFREG) {
		err = archiveEntry(archive, path, filepath.Base(path))
	} else {
		err = notAFile()
	}
	if err == nil {
		err = archive.Close()
	}
	if err == nil {
		err = out.flush()
	}
	return failure.FromSystem(err)
}

// archiveFolder adds what is in the folder at root + name, in byte order, without what is removed meanwhile. The path is left as
// it was given: links and dots in it are the system's.
func archiveFolder(ctx context.Context, archive *tar.Writer, root, name string) error {
	entries, err := os.ReadDir(root + name)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		below := name + entry.Name()
		err := archiveEntry(archive, root+below, below)
		if err == nil && entry.IsDir() {
			err = archiveFolder(ctx, archive, root, below+"/")
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

func archiveEntry(archive *tar.Writer, path, name string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	leads := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if leads, err = os.Readlink(path); err != nil {
			return err
		}
	case !info.Mode().IsRegular() && !info.IsDir():
		// Sockets, FIFOs and devices are not content.
		return nil
	}
	header, err := tar.FileInfoHeader(info, leads)
	if err != nil {
		return err
	}
	header.Name, header.Format = name, tar.FormatPAX
	header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}
	if info.IsDir() {
		header.Name += "/"
	}
	if !info.Mode().IsRegular() {
		return archive.WriteHeader(header)
	}
	file, found, err := openFile(path)
	if err != nil {
		return err
	}
	defer file.Close()
	header.Size = found.Size
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.CopyN(archive, file, found.Size)
	return err
}

func badArchive(format string, values ...any) error {
	return failure.New(helperv1.Reason_REASON_BAD_ARCHIVE, fmt.Sprintf(format, values...))
}

func (service *Service) WriteArchive(ctx context.Context, stream *connect.ClientStream[helperv1.WriteArchiveRequest]) (*helperv1.WriteArchiveResponse, error) {
	if !stream.Receive() {
		return nil, cutOff(stream.Err())
	}
	start := stream.Msg().GetStart()
	if start == nil {
		return nil, failure.Invalid("start", "must come first")
	}
	path, err := checkPath("path", start.Path)
	if err != nil {
		return nil, err
	}
	found, err := status(path, true)
	if err != nil {
		return nil, failure.FromSystem(err)
	}
	if !isType(found, unix.S_IFDIR) {
		return nil, failure.New(helperv1.Reason_REASON_NOT_A_DIRECTORY, "it is no folder")
	}
	// Nothing is reached through a link that leads out of it.
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, failure.FromSystem(err)
	}
	defer root.Close()
	read, write := io.Pipe()
	work := &extraction{root: root, limit: start.MaxBytes, source: &counter{Reader: read}}
	done := make(chan error, 1)
	go func() {
		err := work.run()
		read.CloseWithError(errExtracted)
		done <- err
	}()
	committed := false
	var failed error
	for !committed && failed == nil && stream.Receive() {
		switch part := stream.Msg().Part.(type) {
		case *helperv1.WriteArchiveRequest_Commit:
			committed = part.Commit
		case *helperv1.WriteArchiveRequest_Data:
			_, failed = write.Write(part.Data)
		case *helperv1.WriteArchiveRequest_DataConnection:
			failed = service.receive(ctx, write, part.DataConnection)
		}
	}
	if committed {
		write.Close()
	} else {
		write.CloseWithError(io.ErrUnexpectedEOF)
	}
	err = <-done
	switch {
	case failed != nil && !errors.Is(failed, errExtracted):
		return nil, failed
	case err != nil && !committed && stream.Err() != nil:
		return nil, stream.Err()
	case err != nil:
		return nil, extractionFailure(err)
	case !committed && !stream.Receive() && stream.Err() != nil:
		return nil, stream.Err()
	}
	return &helperv1.WriteArchiveResponse{Entries: work.entries}, nil
}

var errExtracted = errors.New("the archive has ended")

func extractionFailure(err error) error {
	var known *connect.Error
	var errno syscall.Errno
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &errno):
		return failure.FromSystem(err)
	default:
		// Of the tar reader, or of a link that leads out.
		return badArchive("%v", err)
	}
}

type counter struct {
	io.Reader
	count int64
}

func (reader *counter) Read(into []byte) (int, error) {
	count, err := reader.Reader.Read(into)
	reader.count += int64(count)
	return count, err
}

type extraction struct {
	root    *os.Root
	source  *counter
	limit   int64
	written int64
	entries int64
	// Folders get their times once nothing is written into them any more.
	folders []*tar.Header
}

const (
	blockBytes = 512
	modeBits   = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
)

func (work *extraction) run() error {
	archive := tar.NewReader(work.source)
	for padding := int64(0); ; {
		before := work.source.count
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			// An archive ends with blocks of zeros; without them it was cut.
			if work.source.count-before < padding+blockBytes {
				return badArchive("the archive is cut")
			}
			break
		}
		if err != nil {
			return err
		}
		if err := work.extract(archive, header); err != nil {
			return fmt.Errorf("%q: %w", header.Name, err)
		}
		if _, err := io.Copy(io.Discard, archive); err != nil {
			return err
		}
		padding = (blockBytes - header.Size%blockBytes) % blockBytes
	}
	for index := len(work.folders) - 1; index >= 0; index-- {
		header := work.folders[index]
		name := filepath.Clean(header.Name)
		if err := work.root.Chmod(name, header.FileInfo().Mode()&modeBits); err != nil {
			return err
		}
		if err := work.root.Chtimes(name, header.ModTime, header.ModTime); err != nil {
			return err
		}
	}
	return nil
}

func checkName(name string) (string, error) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", badArchive("the name %q leads out", name)
		}
	}
	if strings.HasPrefix(name, "/") || strings.IndexByte(name, 0) >= 0 {
		return "", badArchive("the name %q is not relative", name)
	}
	return filepath.Clean(name), nil
}

func (work *extraction) extract(archive *tar.Reader, header *tar.Header) error {
	name, err := checkName(header.Name)
	if err != nil {
		return err
	}
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	work.entries++
	if header.Typeflag == tar.TypeDir {
		return work.folder(name, header)
	}
	if folder := filepath.Dir(name); folder != "." {
		if err := work.root.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	if found, err := work.root.Lstat(name); err == nil && !found.IsDir() {
		// A link of that name is replaced, never followed.
		if err := work.root.Remove(name); err != nil {
			return err
		}
	}
	switch header.Typeflag {
	case tar.TypeReg:
		return work.file(archive, name, header)
	case tar.TypeSymlink:
		if err := work.root.Symlink(header.Linkname, name); err != nil {
			return err
		}
		return work.own(name, header)
	case tar.TypeLink:
		linked, err := checkName(header.Linkname)
		if err != nil {
			return err
		}
		return work.root.Link(linked, name)
	default:
		return badArchive("%q is no file, folder or link", header.Name)
	}
}

func (work *extraction) own(name string, header *tar.Header) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return work.root.Lchown(name, header.Uid, header.Gid)
}

func (work *extraction) folder(name string, header *tar.Header) error {
	if name == "." {
		return nil
	}
	if err := work.root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	work.folders = append(work.folders, header)
	return work.own(name, header)
}

func (work *extraction) file(archive *tar.Reader, name string, header *tar.Header) (err error) {
	if work.written += header.Size; work.limit > 0 && work.written > work.limit {
		return tooLarge()
	}
	file, err := work.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		file.Close()
		if err != nil {
			_ = work.root.Remove(name)
		}
	}()
	if _, err := io.Copy(file, archive); err != nil {
		return err
	}
	if err := work.own(name, header); err != nil {
		return err
	}
	if err := unix.Fchmod(int(file.Fd()), uint32(header.Mode)&0o7777); err != nil {
		return err
	}
	return work.root.Chtimes(name, header.ModTime, header.ModTime)
}
