// Package identity finds the users that requests name, and lends their rights to what is done for them.
package identity

import (
	"errors"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/userdb"
)

// Find answers the user that a request names, nil for this program's own. Only root may name another. field: of the request;
// empty: the command's.
func Find(users userdb.Database, name, field string) (*userdb.User, error) {
	if name == "" {
		return nil, nil
	}
	user, err := users.Find(name)
	if err != nil {
		return nil, unknown(field)
	}
	if os.Geteuid() == 0 {
		return &user, nil
	}
	if int(user.UID) != os.Geteuid() || int(user.GID) != os.Getegid() {
		return nil, notPermitted()
	}
	return nil, nil
}

// CannotBecome explains what the system answered when a user's ids were to be taken; field: as of Find.
func CannotBecome(err error, field string) error {
	if errors.Is(err, unix.EINVAL) {
		// The user namespace has no such id.
		return unknown(field)
	}
	return notPermitted()
}

func unknown(field string) error {
	return failure.WithField(helperv1.Reason_REASON_USER_UNKNOWN, field, "the sandbox has no such user or group")
}

func notPermitted() error {
	return failure.New(helperv1.Reason_REASON_USER_NOT_PERMITTED, "only root can become another user")
}

// Entry is what /etc/passwd has of a user, nil for this program's own, with `/` as the home folder of one that has none.
func Entry(users userdb.Database, user *userdb.User) userdb.User {
	if user == nil {
		own, _ := users.Find(strconv.Itoa(os.Geteuid()))
		user = &own
	}
	entry := *user
	if entry.Home == "" {
		entry.Home = "/"
	}
	return entry
}

// Work as another user keeps a thread to itself, and the daemon has made only so many.
const maxAtOnce = 4

var working = make(chan struct{}, maxAtOnce)

// As does work with a user's rights, and what it makes belongs to the user; nil is this program's own. The work must stay on
// its goroutine, whose thread has the user's effective ids meanwhile. So it loses all capabilities, gets them back by its
// saved ids, and can't be signalled or traced by the user, as a thread with the user's real id could.
func As(user *userdb.User, work func() error) (err error) {
	if user == nil {
		return work()
	}
	working <- struct{}{}
	defer func() { <-working }()
	runtime.LockOSThread()
	defer func() {
		// A thread that keeps anything of the user ends with its goroutine.
		if failed := become(&own); failed == nil {
			runtime.UnlockOSThread()
		} else if err == nil {
			err = failed
		}
	}()
	if err := become(user); err != nil {
		return CannotBecome(err, "user")
	}
	return work()
}

var own = ownUser()

func ownUser() userdb.User {
	user := userdb.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	groups, _ := unix.Getgroups()
	for _, group := range groups {
		user.Groups = append(user.Groups, uint32(group))
	}
	return user
}

// become changes this thread alone, as the kernel does; the functions of package syscall change all threads. Its effective uid is 0
// before or after, without which the others can't be changed.
func become(user *userdb.User) error {
	groups := make([]int, 0, len(user.Groups))
	for _, group := range user.Groups {
		groups = append(groups, int(group))
	}
	const keep = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep); errno != 0 {
		return errno
	}
	if err := unix.Setgroups(groups); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(user.GID), keep); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(user.UID), keep); errno != 0 {
		return errno
	}
	return nil
}
