// Package userdb reads the sandbox's /etc/passwd and /etc/group.
package userdb

import (
	"bufio"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

var ErrUnknown = errors.New("unknown user")

type User struct {
	UID, GID uint32
	Groups   []uint32
	// Empty for a uid that has no entry.
	Name, Home string
}

// eachLine passes the fields of each line. The files are the tenant's: a FIFO is not waited for, and no more than 1 MiB read.
func eachLine(path string, least int, use func(fields []string)) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return
	}
	lines := bufio.NewScanner(io.LimitReader(file, 1<<20))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if fields := strings.Split(lines.Text(), ":"); len(fields) >= least {
			use(fields)
		}
	}
}

func number(text string) (uint32, bool) {
	value, err := strconv.ParseUint(text, 10, 31)
	return uint32(value), err == nil
}

type Database struct{ passwd, group string }

// Open reads the files of a folder, `/etc` usually, anew at each question.
func Open(folder string) Database {
	return Database{passwd: folder + "/passwd", group: folder + "/group"}
}

// Find takes a name, a uid, `uid:gid` or `name:group`. A uid without an entry is in the group 0, as engines have it.
func (database Database) Find(text string) (User, error) {
	name, group, hasGroup := strings.Cut(text, ":")
	uid, numeric := number(name)
	user, found := User{UID: uid}, false
	eachLine(database.passwd, 6, func(fields []string) {
		id, valid := number(fields[2])
		if found || !valid || (fields[0] != name && !(numeric && id == uid)) {
			return
		}
		gid, _ := number(fields[3])
		user, found = User{UID: id, GID: gid, Name: fields[0], Home: fields[5]}, true
	})
	if !found && !numeric {
		return User{}, ErrUnknown
	}
	if hasGroup {
		gid, valid := number(group)
		if !valid {
			eachLine(database.group, 3, func(fields []string) {
				if id, isNumber := number(fields[2]); !valid && fields[0] == group && isNumber {
					gid, valid = id, true
				}
			})
		}
		if !valid {
			return User{}, ErrUnknown
		}
		user.GID = gid
		return user, nil
	}
	if found {
		eachLine(database.group, 4, func(fields []string) {
			if id, valid := number(fields[2]); valid && slices.Contains(strings.Split(fields[3], ","), user.Name) {
				user.Groups = append(user.Groups, id)
			}
		})
	}
	return user, nil
}

// Names are the names of all users and groups by their numbers.
func (database Database) Names() (users, groups map[uint32]string) {
	read := func(path string) map[uint32]string {
		names := map[uint32]string{}
		eachLine(path, 3, func(fields []string) {
			if id, valid := number(fields[2]); valid {
				if _, named := names[id]; !named {
					names[id] = fields[0]
				}
			}
		})
		return names
	}
	return read(database.passwd), read(database.group)
}
