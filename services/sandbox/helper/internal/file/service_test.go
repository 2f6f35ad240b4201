package file

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"sandgate/helper/internal/dataconn"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/userdb"
)

func TestChangesWhoseCallerHasLeft(t *testing.T) {
	service := NewService("/", userdb.Open("/etc"), dataconn.New())
	folder := t.TempDir()
	file := folder + "/file"
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(ctx context.Context) error{
		"a mode": func(ctx context.Context) error {
			_, err := service.SetMode(ctx, &helperv1.SetModeRequest{Path: []byte(file), Mode: 0o600})
			return err
		},
		"a move": func(ctx context.Context) error {
			_, err := service.Move(ctx, &helperv1.MoveRequest{From: []byte(file), To: []byte(folder + "/moved")})
			return err
		},
		"a removal": func(ctx context.Context) error {
			_, err := service.Remove(ctx, &helperv1.RemoveRequest{Path: []byte(folder), Recursive: true})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			answered := make(chan error)
			_ = service.inTurn(t.Context(), func() error {
				go func() { answered <- change(ctx) }()
				leave()
				if err := <-answered; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return nil
			})
			if found, err := os.Stat(file); err != nil || found.Mode() != 0o644 {
				t.Error(found, err)
			}
		})
	}
	t.Run("while no other is made", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		leave()
		for range 100 {
			err := service.inTurn(ctx, func() error {
				t.Error("the change was made")
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
	})
}

func TestRecursiveRemovalsWithOneCondition(t *testing.T) {
	service := NewService("/", userdb.Open("/etc"), dataconn.New())
	folder := t.TempDir() + "/folder"
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for index := range 1000 {
		if err := os.WriteFile(folder+"/"+strconv.Itoa(index), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	var winners atomic.Int32
	for range 8 {
		all.Go(func() {
			_, err := service.Remove(t.Context(), &helperv1.RemoveRequest{
				Path: []byte(folder), Recursive: true, Precondition: &helperv1.Precondition{IfMatch: []string{"*"}},
			})
			if err == nil {
				winners.Add(1)
			}
		})
	}
	all.Wait()
	if count := winners.Load(); count != 1 {
		t.Errorf("%d of them won", count)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
