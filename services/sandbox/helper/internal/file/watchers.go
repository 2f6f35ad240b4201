package file

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
)

const (
	maxWatchers  = 32
	maxKept      = 4096
	maxKeptBytes = 512 << 10
)

// watchers are those whose changes are kept until they are asked for.
type watchers struct {
	// How long one has gone unasked that may end for another.
	idle time.Duration

	mutex sync.Mutex
	byID  map[string]*keptWatch
}

func newWatchers() watchers {
	return watchers{idle: 5 * time.Minute, byID: map[string]*keptWatch{}}
}

type keptWatch struct {
	// Of the table.
	asked time.Time

	// Held while events are read, so that they are told in their order whoever reads them.
	mutex   sync.Mutex
	watch   *watcher
	buffer  []byte
	changes []*helperv1.WatchResponse_Change
	bytes   int
	lost    bool
	// Why it reads no more.
	failed error
}

func (service *Service) CreateWatcher(_ context.Context, request *helperv1.CreateWatcherRequest) (*helperv1.CreateWatcherResponse, error) {
	watch, err := service.watch(request.Path, request.Recursive, request.User)
	if err != nil {
		return nil, err
	}
	kept := &keptWatch{asked: time.Now(), watch: watch, buffer: make([]byte, 16<<10)}
	watch.send = kept.keep
	all := &service.watchers
	all.mutex.Lock()
	defer all.mutex.Unlock()
	if !all.makeRoom() {
		watch.file.Close()
		return nil, failure.New(helperv1.Reason_REASON_TOO_MANY_WATCHERS, "32 watchers are open already")
	}
	id := rand.Text()
	all.byID[id] = kept
	go kept.follow()
	return &helperv1.CreateWatcherResponse{Id: id}, nil
}

func (service *Service) TakeWatcherChanges(_ context.Context, request *helperv1.TakeWatcherChangesRequest) (*helperv1.TakeWatcherChangesResponse, error) {
	kept := service.watchers.ask(request.Id)
	if kept == nil {
		return nil, noSuchWatcher()
	}
	changes, err := kept.take()
	if err != nil {
		return nil, failure.FromSystem(err)
	}
	return &helperv1.TakeWatcherChangesResponse{Changes: changes}, nil
}

func (service *Service) RemoveWatcher(_ context.Context, request *helperv1.RemoveWatcherRequest) (*helperv1.RemoveWatcherResponse, error) {
	if !service.watchers.remove(request.Id) {
		return nil, noSuchWatcher()
	}
	return &helperv1.RemoveWatcherResponse{}, nil
}

func noSuchWatcher() error {
	return failure.New(helperv1.Reason_REASON_WATCHER_NOT_FOUND, "no watcher has that id")
}

// makeRoom is called with the mutex held. Of as many as there may be it ends the one that has gone unasked for longest, if that is
// long enough.
func (all *watchers) makeRoom() bool {
	if len(all.byID) < maxWatchers {
		return true
	}
	oldest, asked := "", time.Now()
	for id, kept := range all.byID {
		if kept.asked.Before(asked) {
			oldest, asked = id, kept.asked
		}
	}
	if time.Since(asked) < all.idle {
		return false
	}
	return all.end(oldest)
}

func (all *watchers) ask(id string) *keptWatch {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	kept := all.byID[id]
	if kept != nil {
		kept.asked = time.Now()
	}
	return kept
}

func (all *watchers) remove(id string) bool {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	return all.end(id)
}

// end is called with the mutex held.
func (all *watchers) end(id string) bool {
	kept := all.byID[id]
	if kept == nil {
		return false
	}
	delete(all.byID, id)
	kept.watch.file.Close()
	return true
}

// keep is called with the mutex held. What is beyond the limits is lost, and told of once.
func (kept *keptWatch) keep(change *helperv1.WatchResponse_Change) error {
	if kept.lost {
		return nil
	}
	kept.bytes += len(change.Path) + len(change.To)
	if kept.lost = len(kept.changes) == maxKept || kept.bytes > maxKeptBytes; kept.lost {
		change = &helperv1.WatchResponse_Change{Type: helperv1.ChangeType_CHANGE_TYPE_OVERFLOW}
	}
	kept.changes = append(kept.changes, change)
	return nil
}

// follow reads events as they come, since the kernel keeps few, and new folders are to be watched at once.
func (kept *keptWatch) follow() {
	_ = kept.watch.raw.Read(func(inotify uintptr) (ended bool) {
		for {
			kept.mutex.Lock()
			count, err := kept.read(inotify)
			kept.mutex.Unlock()
			if err != nil {
				return true
			}
			if count == 0 {
				return false
			}
		}
	})
}

// read is called with the mutex held. It answers 0 when there is no event.
func (kept *keptWatch) read(inotify uintptr) (count int, err error) {
	if kept.failed != nil {
		return 0, kept.failed
	}
	count, err = unix.Read(int(inotify), kept.buffer)
	if errors.Is(err, unix.EAGAIN) {
		return 0, nil
	}
	if err == nil {
		err = kept.watch.events(kept.buffer[:count])
	}
	kept.failed = err
	return count, err
}

// take answers what is kept, and what had happened before.
func (kept *keptWatch) take() (changes []*helperv1.WatchResponse_Change, err error) {
	kept.mutex.Lock()
	defer kept.mutex.Unlock()
	failed := kept.watch.raw.Control(func(inotify uintptr) {
		if err = kept.catchUp(inotify); err != nil || kept.watch.from == "" {
			return
		}
		// The other half of a move comes at once, if at all.
		time.Sleep(moveWait)
		if err = kept.catchUp(inotify); err == nil {
			err = kept.watch.movedAway()
		}
	})
	if failed != nil {
		return nil, noSuchWatcher()
	}
	changes, kept.changes, kept.bytes, kept.lost = kept.changes, nil, 0, false
	return changes, err
}

// catchUp reads what is queued now, not what is added meanwhile without end.
func (kept *keptWatch) catchUp(inotify uintptr) error {
	queued, err := unix.IoctlGetInt(int(inotify), unix.TIOCINQ)
	for err == nil && queued > 0 {
		var count int
		if count, err = kept.read(inotify); count == 0 {
			break
		}
		queued -= count
	}
	return err
}
