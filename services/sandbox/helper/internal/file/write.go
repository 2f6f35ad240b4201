package file

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/identity"
)

const maxLinks = 40

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
	// A file without a name is gone whatever ends this program; not every file system has them.
	descriptor, err := unix.Open(parent(path), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		file.name = file.temporaryName()
		descriptor, err = unix.Open(file.name, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	}
	if exists && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EPERM)) {
		file.name, file.inPlace = "", true
		descriptor, err = unix.Open(path, unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, err
	}
	file.file = os.NewFile(uintptr(descriptor), path)
	return file, nil
}

func (file *writing) temporaryName() string {
	prefix := newPrefix
	if file.exists {
		prefix = replacePrefix
	}
	return parent(file.path) + "/" + prefix + rand.Text()
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
	descriptor := int(file.file.Fd())
	newMode := uint32(0o644)
	if file.exists {
		newMode = file.old.Mode & 0o7777
	}
	if mode != nil {
		newMode = *mode
	}
	if file.inPlace {
		if mode == nil {
			return nil
		}
		return unix.Fchmod(descriptor, newMode)
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
		name := file.temporaryName()
		if err := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(descriptor), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW); err != nil {
			return err
		}
		file.name = name
	}
	err := unix.Rename(file.name, file.path)
	if file.exists && (errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)) {
		// A mount point of its own, such as /etc/hosts, or a folder in which only the owner may replace.
		return file.copyOver(mode)
	}
	if err == nil {
		file.name = ""
	}
	return err
}

// copyOver puts the whole new content into the old file.
func (file *writing) copyOver(mode *uint32) error {
	descriptor, err := unix.Open(file.path, unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	over := os.NewFile(uintptr(descriptor), file.path)
	defer over.Close()
	if _, err := file.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(over, file.file); err != nil {
		return err
	}
	if mode != nil {
		return unix.Fchmod(descriptor, *mode)
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

func (service *Service) Write(_ context.Context, stream *connect.ClientStream[helperv1.WriteRequest]) (*helperv1.WriteResponse, error) {
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
		service.changes.Lock()
		err := condition.check(path)
		service.changes.Unlock()
		if err != nil {
			return nil, err
		}
		return begin(path, start.Parents)
	})
	if err != nil {
		return nil, failure.FromSystem(err)
	}
	defer identity.As(user, file.close)
	for written := int64(0); stream.Receive(); {
		message := stream.Msg()
		if message.GetCommit() {
			return as(user, func() (*helperv1.WriteResponse, error) {
				return service.commit(path, file, start, condition)
			})
		}
		written += int64(len(message.GetData()))
		if start.MaxBytes > 0 && written > start.MaxBytes {
			return nil, tooLarge()
		}
		if _, err := file.file.Write(message.GetData()); err != nil {
			return nil, failure.FromSystem(err)
		}
	}
	return nil, cutOff(stream.Err())
}

func (service *Service) commit(path string, file *writing, start *helperv1.WriteRequest_Start, condition *precondition) (*helperv1.WriteResponse, error) {
	service.changes.Lock()
	defer service.changes.Unlock()
	if err := condition.check(path); err != nil {
		return nil, err
	}
	if err := file.commit(start.Mode); err != nil {
		return nil, failure.FromSystem(err)
	}
	entry, err := service.look(path, true)
	if err != nil {
		return nil, err
	}
	return &helperv1.WriteResponse{Entry: entry, Created: !file.exists}, nil
}
