package file

import (
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxNamesBytes = 16 << 20
	keptNamesFor  = time.Minute
)

// longFolder has the sorted names of the folder that was read last of those with more than a page, for the pages that
// follow: to read and sort them all takes far longer than to list a page of them.
type longFolder struct {
	mutex sync.Mutex
	found unix.Stat_t
	names []string
	// Ends the time that they are kept.
	timeout *time.Timer
}

// sortedNames reads a folder. For a page that follows another it takes the kept names, if nothing was changed since.
func (long *longFolder) sortedNames(folder *os.File, follows bool) ([]string, error) {
	var found unix.Stat_t
	if err := unix.Fstat(int(folder.Fd()), &found); err != nil {
		return nil, err
	}
	if follows {
		if names := long.kept(found); names != nil {
			return names, nil
		}
	}
	names, err := folder.Readdirnames(-1)
	slices.Sort(names)
	if err == nil && len(names) > maxPage {
		long.keep(found, names)
	}
	return names, err
}

func (long *longFolder) kept(found unix.Stat_t) []string {
	long.mutex.Lock()
	defer long.mutex.Unlock()
	is := &long.found
	if is.Dev != found.Dev || is.Ino != found.Ino || is.Mtim != found.Mtim || is.Ctim != found.Ctim {
		return nil
	}
	return long.names
}

func (long *longFolder) keep(found unix.Stat_t, names []string) {
	bytes := 0
	for _, name := range names {
		bytes += len(name)
	}
	if bytes > maxNamesBytes {
		return
	}
	long.mutex.Lock()
	defer long.mutex.Unlock()
	if long.timeout != nil {
		long.timeout.Stop()
	}
	long.found, long.names = found, names
	long.timeout = time.AfterFunc(keptNamesFor, long.forget)
}

func (long *longFolder) forget() {
	long.mutex.Lock()
	defer long.mutex.Unlock()
	long.found, long.names = unix.Stat_t{}, nil
}
