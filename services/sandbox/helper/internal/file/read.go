package file

import (
	"context"
	"errors"
	"io"
	"os"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
)

const (
	chunkBytes = 256 << 10
	// From here on a content is worth a data connection.
	largeBytes = 1 << 20
)

func notAFile() error {
	return failure.New(helperv1.Reason_REASON_NOT_A_FILE, "it is no regular file")
}

// openFile waits for no FIFO and opens no device. Its errors are the system's, or REASON_NOT_A_FILE.
func openFile(path string) (*os.File, unix.Stat_t, error) {
	found, err := status(path, true)
	if err != nil {
		return nil, found, err
	}
	if !isType(found, unix.S_IFREG) {
		return nil, found, notAFile()
	}
	descriptor, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, found, err
	}
	if err = unix.Fstat(descriptor, &found); err == nil && !isType(found, unix.S_IFREG) {
		err = notAFile()
	}
	if err != nil {
		unix.Close(descriptor)
		return nil, found, err
	}
	return os.NewFile(uintptr(descriptor), path), found, nil
}

// sizeKnown is false where the kernel makes the content up while it is read.
func sizeKnown(file *os.File, found unix.Stat_t) bool {
	var system unix.Statfs_t
	if found.Size == 0 || unix.Fstatfs(int(file.Fd()), &system) != nil {
		return false
	}
	switch int64(system.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.CGROUP_SUPER_MAGIC:
		return false
	}
	return true
}

// span is the part of a file that a range means.
func span(wanted *helperv1.ByteRange, size int64) (start, length int64, err error) {
	switch {
	case wanted.Start != nil && *wanted.Start >= 0 && *wanted.Start < size:
		start, length = *wanted.Start, size-*wanted.Start
		if wanted.Length != nil {
			length = min(length, *wanted.Length)
		}
	case wanted.Start == nil && size > 0:
		length = min(wanted.GetLength(), size)
		start = size - length
	}
	if length <= 0 {
		return 0, 0, failure.New(helperv1.Reason_REASON_RANGE_NOT_SATISFIABLE, "the file has no such part")
	}
	return start, length, nil
}

func (service *Service) Read(ctx context.Context, request *helperv1.ReadRequest, stream *connect.ServerStream[helperv1.ReadResponse]) error {
	path, err := checkPath("path", request.Path)
	if err != nil {
		return err
	}
	var found unix.Stat_t
	file, err := asNamed(service, request.User, func() (file *os.File, err error) {
		file, found, err = openFile(path)
		return file, err
	})
	if err != nil {
		return failure.FromSystem(err)
	}
	defer file.Close()
	start := &helperv1.ReadResponse_Start{Entry: service.names().entry(service.absolute(path), found)}
	known := sizeKnown(file, found)
	if known || found.Size == 0 {
		length := found.Size
		if request.Range != nil && (request.IfRange == "" || request.IfRange == etag(found)) {
			if start.Offset, length, err = span(request.Range, found.Size); err != nil {
				return err
			}
			start.Partial = true
		}
		if known {
			start.Length = &length
		}
	}
	left := int64(1) << 62
	if start.Length != nil {
		left = *start.Length
	}
	start.ByDataConnection = len(request.DataConnection) > 0 && left >= largeBytes
	if err := stream.Send(&helperv1.ReadResponse{Part: &helperv1.ReadResponse_Start_{Start: start}}); err != nil {
		return err
	}
	send := func(data []byte) error {
		return stream.Send(&helperv1.ReadResponse{Part: &helperv1.ReadResponse_Data{Data: data}})
	}
	if start.ByDataConnection {
		connection, err := service.data.Take(ctx, request.DataConnection)
		if err != nil {
			return err
		}
		defer connection.Close()
		send = func(data []byte) error {
			_, err := connection.Write(data)
			return err
		}
	}
	buffer := make([]byte, min(chunkBytes, left))
	for offset := start.Offset; left > 0 && ctx.Err() == nil; {
		count, err := file.ReadAt(buffer[:min(left, int64(len(buffer)))], offset)
		if count > 0 {
			if err := send(buffer[:count]); err != nil {
				return err
			}
			offset, left = offset+int64(count), left-int64(count)
		}
		if errors.Is(err, io.EOF) {
			if start.Length != nil && left > 0 {
				return connect.NewError(connect.CodeAborted, errors.New("the file became shorter while it was read"))
			}
			return nil
		}
		if err != nil {
			return failure.FromSystem(err)
		}
	}
	return ctx.Err()
}
