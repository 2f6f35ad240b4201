package file

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/identity"
)

const (
	maxLinks = 40
	// From this size on a content is large: the system writes it to the disk while it comes, and takes as long to give it back.
	writebackBytes = 16 << 20
)

// How files are called that are about to be put in place: where nothing is, and over another. Watches don't tell of them.
const (
	newPrefix     = ".sandgate-new-"
	replacePrefix = ".sandgate-over-"
)

func isTemporary(name string) bool {
	return strings.HasPrefix(name, newPrefix) || strings.HasPrefix(name, replacePrefix)
}

// target follows the links at the end of a path, also to a file that isn't there yet.
func target(path string) (string, unix.Stat_t, bool, error) {
	for range maxLinks {
		found, err := status(path, false)
		if errors.Is(err, unix.ENOENT) {
			return path, found, false, nil
		}
		if err != nil {
			return path, found, false, err
		}
		if !isType(found, unix.S_IFLNK) {
			return path, found, true, nil
		}
		leads, err := os.Readlink(path)
		if err != nil {
			return path, found, false, err
		}
		if strings.HasPrefix(leads, "/") {
			path = leads
		} else {
			path = parent(path) + "/" + leads
		}
	}
	return path, unix.Stat_t{}, false, unix.ELOOP
}

// Where the content of a file waits whose folder takes no other. `/dev/shm` exists in every container, `/tmp` only if the image
// has it.
var elsewhere = []string{"/tmp", "/dev/shm"}

// writing is a file that is being replaced, or written in place where its folder takes no other.
type writing struct {
	path   string
	exists bool
	old    unix.Stat_t
	file   *os.File
	// Of the new file in the folder; empty: it has none yet, or is written in place.
	name    string
	inPlace bool
}

func begin(path string, parents bool) (*writing, error) {
	if strings.HasSuffix(path, "/") {
		return nil, notAFile()
	}
	if parents {
		if err := makeParents(path); err != nil {
			return nil, err
		}
	}
	path, old, exists, err := target(path)
	if err != nil {
		return nil, err
	}
	file := &writing{path: path, exists: exists, old: old}
	if exists {
		if !isType(old, unix.S_IFREG) {
			return nil, notAFile()
		}
		if err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS); err != nil {
			return nil, err
		}
	}
	descriptor, err := file.openIn(parent(path))
	if exists && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EPERM)) {
		file.inPlace = true
		descriptor, err = file.openElsewhere(err)
	}
	if err != nil {
		return nil, err
	}
	file.file = os.NewFile(uintptr(descriptor), path)
	return file, nil
}

// openIn makes the file of the new content. One without a name is gone whatever ends this program; not every file system has
// them.
func (file *writing) openIn(folder string) (descriptor int, err error) {
	descriptor, err = unix.Open(folder, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		name := file.temporaryName(folder)
		if descriptor, err = unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600); err == nil {
			file.name = name
		}
	}
	return descriptor, err
}

// openElsewhere answers `refused` when no folder takes the file.
func (file *writing) openElsewhere(refused error) (int, error) {
	for _, folder := range elsewhere {
		descriptor, err := file.openIn(folder)
		if err != nil {
			continue
		}
		if file.name != "" {
			// It is never renamed from there.
			_ = unix.Unlink(file.name)
			file.name = ""
		}
		return descriptor, nil
	}
	return -1, refused
}

func (file *writing) temporaryName(folder string) string {
	prefix := newPrefix
	if file.exists {
		prefix = replacePrefix
	}
	return folder + "/" + prefix + rand.Text()
}

// close leaves no trace of a file that was not committed.
func (file *writing) close() error {
	file.file.Close()
	if file.name == "" {
		return nil
	}
	return unix.Unlink(file.name)
}

func (file *writing) commit(mode *uint32) error {
	if file.inPlace {
		return file.copyOver(mode)
	}
	descriptor := int(file.file.Fd())
	newMode := uint32(0o644)
	if file.exists {
		newMode = file.old.Mode & 0o7777
	}
	if mode != nil {
		newMode = *mode
	}
	if file.exists {
		var own unix.Stat_t
		if err := unix.Fstat(descriptor, &own); err != nil {
			return err
		}
		if (own.Uid != file.old.Uid || own.Gid != file.old.Gid) && unix.Fchown(descriptor, int(file.old.Uid), int(file.old.Gid)) != nil {
			// Only in place it keeps its owner.
			return file.copyOver(mode)
		}
	}
	if err := unix.Fchmod(descriptor, newMode); err != nil {
		return err
	}
	if file.name == "" {
		name := file.temporaryName(parent(file.path))
		if err := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(descriptor), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW); err != nil {
			return err
		}
		file.name = name
	}
	release := file.keepOld()
	err := unix.Rename(file.name, file.path)
	release()
	if file.exists && (errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)) {
		// A mount point of its own, such as /etc/hosts, or a folder in which only the owner may replace.
		return file.copyOver(mode)
	}
	if err == nil {
		file.name = ""
	}
	return err
}

// keepOld keeps a large old file until what it returns is called, which gives back its space later: the caller would wait as long as
// for the new content.
func (file *writing) keepOld() (release func()) {
	if file.exists && file.old.Size >= writebackBytes {
		if descriptor, err := unix.Open(file.path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
			return func() { go unix.Close(descriptor) }
		}
	}
	return func() {}
}

// copyOver puts the whole new content into the old file.
func (file *writing) copyOver(mode *uint32) error {
	descriptor, err := unix.Open(file.path, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	over := os.NewFile(uintptr(descriptor), file.path)
	defer over.Close()
	setMode := func() error {
		if mode == nil {
			return nil
		}
		return unix.Fchmod(descriptor, *mode)
	}
	// Only its owner may, so before anything is changed; a write takes setuid and setgid away.
	if err := setMode(); err != nil {
		return err
	}
	size, err := file.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if err := reserve(descriptor, size); err != nil {
		return err
	}
	if _, err := file.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(over, file.file); err != nil {
		return err
	}
	if err := unix.Ftruncate(descriptor, size); err != nil {
		return err
	}
	return setMode()
}

// reserve takes the space that a file's new content needs, so that a full disk is found before the old one is lost. Not every file
// system can.
func reserve(descriptor int, size int64) error {
	if size == 0 {
		return nil
	}
	var old unix.Stat_t
	if err := unix.Fstat(descriptor, &old); err != nil {
		return err
	}
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Fallocate(descriptor, unix.FALLOC_FL_KEEP_SIZE, 0, size)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		// Gives back what was had.
		_ = unix.Ftruncate(descriptor, old.Size)
		return err
	}
	return nil
}

func cutOff(err error) error {
	if err != nil {
		return err
	}
	return connect.NewError(connect.CodeAborted, errors.New("the stream ended without a commit"))
}

func tooLarge() error {
	return failure.New(helperv1.Reason_REASON_TOO_LARGE, "it is larger than was allowed")
}

func (service *Service) Write(ctx context.Context, stream *connect.ClientStream[helperv1.WriteRequest]) (*helperv1.WriteResponse, error) {
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
	if start.Mode != nil {
		if err := checkMode(*start.Mode); err != nil {
			return nil, err
		}
	}
	condition := (*precondition)(start.Precondition)
	user, err := identity.Find(service.users, start.User, "user")
	if err != nil {
		return nil, err
	}
	file, err := as(user, func() (*writing, error) {
		// Looked at before the content is taken, and again when it is put in place.
		if err := service.inTurn(ctx, func() error { return condition.check(path) }); err != nil {
			return nil, err
		}
		return begin(path, start.Parents)
	})
	if err != nil {
		return nil, failure.FromSystem(err)
	}
	defer identity.As(user, file.close)
	into := &incoming{file: file.file, left: start.MaxBytes, replaces: file.exists && !file.inPlace}
	if start.MaxBytes == 0 {
		into.left = math.MaxInt64
	}
	for stream.Receive() {
		var err error
		switch part := stream.Msg().Part.(type) {
		case *helperv1.WriteRequest_Commit:
			return as(user, func() (*helperv1.WriteResponse, error) {
				return service.commit(ctx, path, file, start, condition)
			})
		case *helperv1.WriteRequest_Data:
			_, err = into.Write(part.Data)
		case *helperv1.WriteRequest_DataConnection:
			err = service.receive(ctx, into, part.DataConnection)
		}
		if err != nil {
			return nil, failure.FromSystem(err)
		}
	}
	return nil, cutOff(stream.Err())
}

// receive writes all that comes by a data connection.
func (service *Service) receive(ctx context.Context, into io.Writer, id []byte) error {
	connection, err := service.data.Take(ctx, id)
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = io.CopyBuffer(into, connection, make([]byte, chunkBytes))
	return err
}

// incoming is the content of a file while it comes. It fails with REASON_TOO_LARGE for more than was allowed.
type incoming struct {
	file     *os.File
	left     int64
	replaces bool
	// How much was written, and how much of it the system was told to write to the disk.
	written, told int64
	telling       atomic.Bool
}

func (content *incoming) Write(data []byte) (int, error) {
	if content.left -= int64(len(data)); content.left < 0 {
		return 0, tooLarge()
	}
	count, err := content.file.Write(data)
	content.written += int64(count)
	if content.replaces && content.written-content.told >= writebackBytes && content.telling.CompareAndSwap(false, true) {
		go content.writeBack(content.told, content.written-content.told)
		content.told = content.written
	}
	return count, err
}

// writeBack has the system write a part to the disk. Ext4 does so before a file takes another's place, and whoever sent a large one
// would wait for all of it.
func (content *incoming) writeBack(offset, length int64) {
	defer content.telling.Store(false)
	if raw, err := content.file.SyscallConn(); err == nil {
		_ = raw.Control(func(descriptor uintptr) {
			// Of a part that is being written, nothing is dropped.
			_ = unix.Fadvise(int(descriptor), offset, length, unix.FADV_DONTNEED)
		})
	}
}

func (service *Service) commit(ctx context.Context, path string, file *writing, start *helperv1.WriteRequest_Start, condition *precondition) (response *helperv1.WriteResponse, err error) {
	err = service.inTurn(ctx, func() error {
		if err := condition.check(path); err != nil {
			return err
		}
		if err := file.commit(start.Mode); err != nil {
			return err
		}
		entry, err := service.look(path, true)
		response = &helperv1.WriteResponse{Entry: entry, Created: !file.exists}
		return err
	})
	return response, failure.FromSystem(err)
}
