package file

import (
	"testing"
	"time"

	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/userdb"
)

func TestWatcherThatNobodyAsks(t *testing.T) {
	service := NewService("/", userdb.Open("/etc"))
	create := func() string {
		made, err := service.CreateWatcher(t.Context(), &helperv1.CreateWatcherRequest{Path: []byte(t.TempDir())})
		if err != nil {
			t.Fatal(err)
		}
		return made.Id
	}
	kept := create()
	service.watchers.timeout = time.Millisecond
	ended := create()
	for service.watchers.find(ended) != nil {
		time.Sleep(time.Millisecond)
	}
	if service.watchers.find(kept) == nil {
		t.Error("the other ended too")
	}
	if _, err := service.TakeWatcherChanges(t.Context(), &helperv1.TakeWatcherChangesRequest{Id: ended}); err == nil {
		t.Error("it is still there")
	}
}
