package file

import (
	"context"
	"errors"
	"os"
	"testing"

	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/userdb"
)

func TestChangesWhoseCallerHasLeft(t *testing.T) {
	service := NewService("/", userdb.Open("/etc"))
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
}
