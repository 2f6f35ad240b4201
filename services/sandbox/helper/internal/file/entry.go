package file

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
)

const maxPath = 4095

func checkPath(field string, path []byte) (string, error) {
	if len(path) == 0 || len(path) > maxPath || bytes.IndexByte(path, 0) >= 0 {
		return "", failure.Invalid(field, "must have 1 to 4,095 bytes, none 0")
	}
	return string(path), nil
}

func checkMode(mode uint32) error {
	if mode > 0o7777 {
		return failure.Invalid("mode", "has more than the twelve permission bits")
	}
	return nil
}

func status(path string, follow bool) (unix.Stat_t, error) {
	var found unix.Stat_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if follow {
		flags = 0
	}
	err := unix.Fstatat(unix.AT_FDCWD, path, &found, flags)
	return found, err
}

func isType(found unix.Stat_t, kind uint32) bool { return found.Mode&unix.S_IFMT == kind }

// etag changes with every change of a file: a replaced one is another inode, one written in place has another time.
func etag(found unix.Stat_t) string {
	return fmt.Sprintf("%x-%x-%x-%x", found.Ino, found.Size, found.Mtim.Nano(), found.Ctim.Nano())
}

// names are read once for each call.
type names struct{ users, groups map[uint32]string }

func (service *Service) names() names {
	users, groups := service.users.Names()
	return names{users, groups}
}

func (service *Service) absolute(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return strings.TrimSuffix(service.cwd, "/") + "/" + path
}

func (known names) entry(path string, found unix.Stat_t) *helperv1.Entry {
	entry := &helperv1.Entry{
		Path: []byte(path), Size: found.Size, Mode: found.Mode & 0o7777, Uid: found.Uid, Gid: found.Gid,
		User: strings.ToValidUTF8(known.users[found.Uid], "\uFFFD"), Group: strings.ToValidUTF8(known.groups[found.Gid], "\uFFFD"),
		ModifiedAt: timestamppb.New(time.Unix(found.Mtim.Unix())),
	}
	switch found.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		entry.Type, entry.Etag = helperv1.EntryType_ENTRY_TYPE_FILE, etag(found)
	case unix.S_IFDIR:
		entry.Type = helperv1.EntryType_ENTRY_TYPE_DIRECTORY
	case unix.S_IFLNK:
		entry.Type = helperv1.EntryType_ENTRY_TYPE_SYMLINK
		if target, err := os.Readlink(path); err == nil {
			entry.SymlinkTarget = []byte(target)
		}
	default:
		entry.Type = helperv1.EntryType_ENTRY_TYPE_OTHER
	}
	return entry
}

// isRoot tells whether a path means the root folder, whatever it is written like.
func isRoot(path string) bool {
	root, err := status("/", true)
	found, failed := status(path, false)
	return err == nil && failed == nil && root.Dev == found.Dev && root.Ino == found.Ino
}
