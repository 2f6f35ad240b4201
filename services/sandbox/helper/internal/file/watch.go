package file

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/identity"
	"sandgate/helper/internal/userdb"
)

const (
	watched = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_DELETE_SELF |
		unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MOVE_SELF
	// How long the second half of a move is waited for.
	moveWait = 50 * time.Millisecond
)

type watcher struct {
	file      *os.File
	raw       syscall.RawConn
	root      string
	recursive bool
	// The root, or the folder of a root that is a file, of which what happens to this name is told: the file may be replaced.
	top, name string
	// Whose rights it takes to see a folder; nil: this program's own user's.
	user *userdb.User
	// Folders by their watch descriptors.
	paths map[int32]string
	send  func(*helperv1.WatchResponse_Change) error
	// The first half of a move: its cookie and path.
	cookie uint32
	from   string
	// The last write that was told of, until something else happens.
	lastWrite string
}

// watch begins to. The watcher is to be closed, and sends nothing before its events are read.
func (service *Service) watch(given []byte, recursive bool, userName string) (*watcher, error) {
	path, err := checkPath("path", given)
	if err != nil {
		return nil, err
	}
	user, err := identity.Find(service.users, userName, "user")
	if err != nil {
		return nil, err
	}
	root := service.absolute(path)
	if len(root) > 1 {
		root = strings.TrimRight(root, "/")
	}
	watch := &watcher{root: root, top: root, recursive: recursive, user: user, paths: map[int32]string{}}
	if err := identity.As(user, watch.findTop); err != nil {
		return nil, failure.FromSystem(err)
	}
	descriptor, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		err = errWatchLimit
	}
	if err != nil {
		return nil, failure.FromSystem(err)
	}
	watch.file = os.NewFile(uintptr(descriptor), "inotify")
	if watch.raw, err = watch.file.SyscallConn(); err == nil {
		err = watch.add(watch.top, false)
	}
	if err != nil {
		watch.file.Close()
		return nil, failure.FromSystem(err)
	}
	return watch, nil
}

func (service *Service) Watch(ctx context.Context, request *helperv1.WatchRequest, stream *connect.ServerStream[helperv1.WatchResponse]) error {
	watch, err := service.watch(request.Path, request.Recursive, request.User)
	if err != nil {
		return err
	}
	defer watch.file.Close()
	watch.send = func(change *helperv1.WatchResponse_Change) error {
		return stream.Send(&helperv1.WatchResponse{Event: &helperv1.WatchResponse_Change_{Change: change}})
	}
	if err := stream.Send(&helperv1.WatchResponse{Event: &helperv1.WatchResponse_Ready{Ready: true}}); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { watch.file.Close() })()
	buffer := make([]byte, 64<<10)
	for {
		deadline := time.Time{}
		if watch.from != "" {
			deadline = time.Now().Add(moveWait)
		}
		_ = watch.file.SetReadDeadline(deadline)
		count, err := watch.file.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = watch.movedAway()
		} else if err == nil {
			err = watch.events(buffer[:count])
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return failure.FromSystem(err)
		}
	}
}

// findTop looks whether the root is a file that is to be watched by its folder.
func (watch *watcher) findTop() error {
	found, err := status(watch.root, true)
	if err != nil || isType(found, unix.S_IFDIR) {
		return err
	}
	watch.recursive = false
	path, _, _, err := target(watch.root)
	if err != nil {
		return err
	}
	folder := parent(path)
	// One that is a mount of its own, such as /etc/hosts, can't be replaced, and its folder is told nothing of it.
	if isMount(path) || unix.Faccessat(unix.AT_FDCWD, folder, unix.R_OK, unix.AT_EACCESS) != nil {
		return nil
	}
	watch.top, watch.name = folder, filepath.Base(path)
	return nil
}

func isMount(path string) bool {
	var found unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, 0, &found)
	return err == nil && found.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// The kernel's limits of what a user may watch, which a user's sandboxes share.
var errWatchLimit = failure.New(helperv1.Reason_REASON_WATCH_LIMIT, "the kernel's limit of watches is used up")

// add watches a folder, and with `recursive` what is below it; tell: what is found in folders that were not watched before is
// told as created.
func (watch *watcher) add(path string, tell bool) error {
	isNew := false
	entries, err := as(watch.user, func() (entries []os.DirEntry, err error) {
		entries, isNew, err = watch.addFolder(path)
		return entries, err
	})
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if isTemporary(entry.Name()) {
			continue
		}
		below := strings.TrimSuffix(path, "/") + "/" + entry.Name()
		if tell && isNew {
			if err := watch.tell(helperv1.ChangeType_CHANGE_TYPE_CREATE, below, ""); err != nil {
				return err
			}
		}
		if entry.IsDir() {
			if err := watch.addIfThere(below, tell); err != nil {
				return err
			}
		}
	}
	return nil
}

// addIfThere passes over a folder that is gone, or not the user's to see.
func (watch *watcher) addIfThere(path string, tell bool) error {
	if err := watch.add(path, tell); errors.Is(err, errWatchLimit) {
		return err
	}
	return nil
}

// addFolder answers what is in the folder, with `recursive` alone, and whether it was not watched before.
func (watch *watcher) addFolder(path string) (entries []os.DirEntry, isNew bool, err error) {
	var descriptor int
	var failed error
	if err := watch.raw.Control(func(inotify uintptr) { descriptor, failed = unix.InotifyAddWatch(int(inotify), path, watched) }); err != nil {
		return nil, false, err
	}
	if errors.Is(failed, unix.ENOSPC) {
		failed = errWatchLimit
	}
	if failed != nil {
		return nil, false, failed
	}
	_, known := watch.paths[int32(descriptor)]
	watch.paths[int32(descriptor)] = path
	if !watch.recursive {
		return nil, !known, nil
	}
	entries, err = os.ReadDir(path)
	if err != nil {
		// No folder, or gone.
		return nil, !known, nil
	}
	return entries, !known, nil
}

func (watch *watcher) tell(kind helperv1.ChangeType, path, to string) error {
	change := &helperv1.WatchResponse_Change{Type: kind, Path: []byte(path)}
	if to != "" {
		change.To = []byte(to)
	}
	return watch.send(change)
}

// movedAway tells of a move that led out of what is watched.
func (watch *watcher) movedAway() error {
	from := watch.from
	watch.from = ""
	if from == "" || isTemporary(filepath.Base(from)) {
		return nil
	}
	return watch.left(from, from)
}

// left tells of something that is no longer where it was, and ends what is watched of it at a path.
func (watch *watcher) left(told, path string) error {
	err := watch.raw.Control(func(inotify uintptr) {
		for descriptor, watched := range watch.paths {
			if isAtOrBelow(watched, path) {
				// One that has ended by itself is no longer known.
				_, _ = unix.InotifyRmWatch(int(inotify), uint32(descriptor))
				delete(watch.paths, descriptor)
			}
		}
	})
	if err != nil {
		return err
	}
	return watch.tell(helperv1.ChangeType_CHANGE_TYPE_DELETE, told, "")
}

func isAtOrBelow(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// isNameless: the system tells of a file without a name in the folder, too, and calls it `#` and its number.
func isNameless(path string) bool {
	number, found := strings.CutPrefix(filepath.Base(path), "#")
	if _, err := strconv.ParseUint(number, 10, 64); !found || err != nil {
		return false
	}
	_, err := status(path, false)
	return errors.Is(err, unix.ENOENT)
}

// putInPlace tells of a file whose content came as a whole: as of one that was written where it is.
func (watch *watcher) putInPlace(temporary, path string) error {
	if strings.HasPrefix(temporary, newPrefix) {
		if err := watch.tell(helperv1.ChangeType_CHANGE_TYPE_CREATE, path, ""); err != nil {
			return err
		}
	}
	return watch.tell(helperv1.ChangeType_CHANGE_TYPE_WRITE, path, "")
}

func (watch *watcher) events(data []byte) error {
	for len(data) >= unix.SizeofInotifyEvent {
		descriptor := int32(binary.NativeEndian.Uint32(data))
		mask := binary.NativeEndian.Uint32(data[4:])
		cookie := binary.NativeEndian.Uint32(data[8:])
		length := int(binary.NativeEndian.Uint32(data[12:]))
		name, _, _ := bytes.Cut(data[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+length], []byte{0})
		data = data[unix.SizeofInotifyEvent+length:]
		if err := watch.event(descriptor, mask, cookie, string(name)); err != nil {
			return err
		}
	}
	return nil
}

func (watch *watcher) event(descriptor int32, mask, cookie uint32, name string) error {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		if err := watch.tell(helperv1.ChangeType_CHANGE_TYPE_OVERFLOW, "", ""); err != nil {
			return err
		}
		// Folders may have come or moved meanwhile. What is watched already stays so, under its path of now.
		return watch.addIfThere(watch.top, false)
	}
	moved := mask&unix.IN_MOVED_TO != 0 && watch.from != "" && cookie == watch.cookie
	if !moved {
		if err := watch.movedAway(); err != nil {
			return err
		}
	}
	path, known := watch.paths[descriptor]
	if mask&unix.IN_IGNORED != 0 {
		delete(watch.paths, descriptor)
		return nil
	}
	if !known {
		return nil
	}
	if name == "" && path == watch.top {
		if mask&unix.IN_MOVE_SELF != 0 {
			return watch.left(watch.root, path)
		}
		if mask&unix.IN_DELETE_SELF != 0 && watch.name == "" {
			return watch.tell(helperv1.ChangeType_CHANGE_TYPE_DELETE, path, "")
		}
	}
	switch {
	case name != "" && name == watch.name:
		path = watch.root
	case watch.name != "" && !isTemporary(name):
		return nil
	case name != "":
		path = strings.TrimSuffix(path, "/") + "/" + name
	}
	if isTemporary(name) && mask&unix.IN_MOVED_FROM == 0 {
		return nil
	}
	if mask&(unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_ATTRIB) != 0 && isNameless(path) {
		return nil
	}
	isWrite := mask&(unix.IN_MODIFY|unix.IN_CLOSE_WRITE) != 0
	repeated := isWrite && mask&unix.IN_CLOSE_WRITE != 0 && watch.lastWrite == path
	watch.lastWrite = ""
	if isWrite && mask&unix.IN_MODIFY != 0 {
		watch.lastWrite = path
	}
	folder := mask&unix.IN_ISDIR != 0
	switch {
	case repeated:
		return nil
	case moved:
		from := watch.from
		watch.from = ""
		if temporary := filepath.Base(from); isTemporary(temporary) {
			return watch.putInPlace(temporary, path)
		}
		for known, below := range watch.paths {
			if isAtOrBelow(below, from) {
				watch.paths[known] = path + below[len(from):]
			}
		}
		if err := watch.tell(helperv1.ChangeType_CHANGE_TYPE_MOVE, from, path); err != nil || !folder || !watch.recursive {
			return err
		}
		// It may have moved before it was found under its old path.
		return watch.addIfThere(path, true)
	case mask&unix.IN_MOVED_FROM != 0:
		watch.cookie, watch.from = cookie, path
		return nil
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		if err := watch.tell(helperv1.ChangeType_CHANGE_TYPE_CREATE, path, ""); err != nil || !folder || !watch.recursive {
			return err
		}
		return watch.addIfThere(path, true)
	case isWrite:
		return watch.tell(helperv1.ChangeType_CHANGE_TYPE_WRITE, path, "")
	case mask&unix.IN_DELETE != 0:
		return watch.tell(helperv1.ChangeType_CHANGE_TYPE_DELETE, path, "")
	case mask&unix.IN_ATTRIB != 0 && !(folder && name == ""):
		return watch.tell(helperv1.ChangeType_CHANGE_TYPE_ATTRIB, path, "")
	}
	return nil
}
