package file

import (
	"testing"

	"sandgate/helper/internal/dataconn"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/userdb"
)

func TestWatchersThatNobodyAsksMakeRoom(t *testing.T) {
	service := NewService("/", userdb.Open("/etc"), dataconn.New())
	folder := []byte(t.TempDir())
	create := func() (string, error) {
		made, err := service.CreateWatcher(t.Context(), &helperv1.CreateWatcherRequest{Path: folder})
		return made.GetId(), err
	}
	ask := func(id string) error {
		_, err := service.TakeWatcherChanges(t.Context(), &helperv1.TakeWatcherChangesRequest{Id: id})
		return err
	}
	var ids []string
	for range maxWatchers {
		id, err := create()
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if _, err := create(); err == nil {
		t.Error("one took the place of another that was asked lately")
	}
	service.watchers.idle = 0
	if err := ask(ids[0]); err != nil {
		t.Error(err)
	}
	if _, err := create(); err != nil {
		t.Error(err)
	}
	for index, id := range ids {
		if err := ask(id); (err == nil) != (index != 1) {
			t.Error(index, err)
		}
	}
}
