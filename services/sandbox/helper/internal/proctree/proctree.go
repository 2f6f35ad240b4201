// Package proctree finds and signals the descendants of a process by what /proc tells of parents.
package proctree

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// parentOf is 0 for a process that is gone or a zombie.
func parentOf(pid int) int {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name in parentheses may hold anything, so fields are counted from its end.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}

// Parents tells the parent of each process there is, zombies left out.
func Parents() map[int]int {
	parents := map[int]int{}
	folder, err := os.Open("/proc")
	if err != nil {
		return parents
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if parent := parentOf(pid); parent != 0 {
			parents[pid] = parent
		}
	}
	return parents
}

// Within tells whether pid descends from root.
func Within(parents map[int]int, pid, root int) bool {
	for steps := 0; steps < len(parents)+1; steps++ {
		parent, known := parents[pid]
		if !known {
			return false
		}
		if parent == root {
			return true
		}
		pid = parent
	}
	return false
}

func descendants(root int) []int {
	parents := Parents()
	var found []int
	for pid := range parents {
		if Within(parents, pid, root) {
			found = append(found, pid)
		}
	}
	return found
}

// signal reaches the process that was looked at, and no other that got its pid since.
func signal(pid int, number unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
		_ = unix.Kill(pid, number)
		return
	}
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if parentOf(pid) != 0 {
		_ = unix.PidfdSendSignal(fd, number, nil, 0)
	}
}

// Signal sends a signal to all descendants of root, not to root itself, and returns how many there were.
func Signal(root int, number unix.Signal) int {
	found := descendants(root)
	for _, pid := range found {
		signal(pid, number)
	}
	return len(found)
}

// Kill sends SIGKILL to all descendants of root until none is left, for at most `limit`.
func Kill(root int, limit time.Duration) {
	for until := time.Now().Add(limit); Signal(root, unix.SIGKILL) > 0 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
}
