// Package file reads and changes files for the sandbox service.
package file

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/dataconn"
	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/helperv1/helperv1connect"
	"sandgate/helper/internal/identity"
	"sandgate/helper/internal/userdb"
)

// Service answers the calls of FileService.
type Service struct {
	cwd   string
	users userdb.Database
	data  *dataconn.Waiting
	// Has one value while a change is made.
	changing chan struct{}
	watchers watchers
	long     longFolder
}

var _ helperv1connect.FileServiceHandler = (*Service)(nil)

// NewService takes the folder in which relative paths start, which is this process's too.
func NewService(cwd string, users userdb.Database, data *dataconn.Waiting) *Service {
	return &Service{cwd: cwd, users: users, data: data, changing: make(chan struct{}, 1), watchers: newWatchers()}
}

// inTurn looks at a precondition and makes the change while no other is made, so that of several with one condition one wins.
// It does nothing once the caller has left.
func (service *Service) inTurn(ctx context.Context, work func() error) error {
	select {
	case service.changing <- struct{}{}:
		defer func() { <-service.changing }()
		// Of a free turn and a caller that has left, select takes either.
		if err := ctx.Err(); err != nil {
			return err
		}
		return work()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// as does work with a user's rights; nil: this program's own.
func as[Answer any](user *userdb.User, work func() (Answer, error)) (answer Answer, err error) {
	err = identity.As(user, func() error {
		answer, err = work()
		return err
	})
	return answer, err
}

// asNamed does work with the rights of the user that a request names.
func asNamed[Answer any](service *Service, name string, work func() (Answer, error)) (Answer, error) {
	user, err := identity.Find(service.users, name, "user")
	if err != nil {
		var none Answer
		return none, err
	}
	return as(user, work)
}

// look answers the entry of a path.
func (service *Service) look(path string, follow bool) (*helperv1.Entry, error) {
	path = service.absolute(path)
	found, err := status(path, follow)
	if err != nil {
		return nil, failure.FromSystem(err)
	}
	return service.names().entry(path, found), nil
}

func (service *Service) Stat(_ context.Context, request *helperv1.StatRequest) (*helperv1.StatResponse, error) {
	return asNamed(service, request.User, func() (*helperv1.StatResponse, error) { return service.stat(request) })
}

func (service *Service) stat(request *helperv1.StatRequest) (*helperv1.StatResponse, error) {
	path, err := checkPath("path", request.Path)
	if err != nil {
		return nil, err
	}
	entry, err := service.look(path, request.Follow)
	if err != nil {
		return nil, err
	}
	return &helperv1.StatResponse{Entry: entry}, nil
}

func (condition *precondition) isSet() bool {
	return condition != nil && (len(condition.IfMatch) > 0 || condition.IfNoneMatch)
}

// check is called in turn with other changes.
func (condition *precondition) check(path string) error {
	if !condition.isSet() {
		return nil
	}
	found, err := status(path, true)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return failure.FromSystem(err)
	}
	exists := err == nil
	matches := exists && (slices.Contains(condition.IfMatch, "*") || slices.Contains(condition.IfMatch, etag(found)))
	if (len(condition.IfMatch) > 0 && !matches) || (condition.IfNoneMatch && exists) {
		return failure.New(helperv1.Reason_REASON_PRECONDITION_FAILED, "the file is not what the request expects")
	}
	return nil
}

type precondition helperv1.Precondition

func (service *Service) MakeDirectory(_ context.Context, request *helperv1.MakeDirectoryRequest) (*helperv1.MakeDirectoryResponse, error) {
	return asNamed(service, request.User, func() (*helperv1.MakeDirectoryResponse, error) { return service.makeDirectory(request) })
}

func (service *Service) makeDirectory(request *helperv1.MakeDirectoryRequest) (*helperv1.MakeDirectoryResponse, error) {
	path, err := checkPath("path", request.Path)
	if err != nil {
		return nil, err
	}
	mode := uint32(0o755)
	if request.Mode != nil {
		mode = *request.Mode
	}
	if err := checkMode(mode); err != nil {
		return nil, err
	}
	if request.Parents {
		if err := makeParents(path); err != nil {
			return nil, failure.FromSystem(err)
		}
	}
	created := true
	if err := unix.Mkdir(path, mode); err != nil {
		if !errors.Is(err, unix.EEXIST) {
			return nil, failure.FromSystem(err)
		}
		if found, err := status(path, true); err != nil || !isType(found, unix.S_IFDIR) || !request.Parents {
			return nil, failure.New(helperv1.Reason_REASON_ALREADY_EXISTS, "something has that name already")
		}
		created = false
	} else if err := unix.Chmod(path, mode); err != nil {
		return nil, failure.FromSystem(err)
	}
	entry, err := service.look(path, true)
	if err != nil {
		return nil, err
	}
	return &helperv1.MakeDirectoryResponse{Entry: entry, Created: created}, nil
}

// parent is the folder of a path's last name; links before that are left to the system.
func parent(path string) string {
	path = strings.TrimRight(path, "/")
	last := strings.LastIndexByte(path, '/')
	switch {
	case last < 0:
		return "."
	case last == 0:
		return "/"
	default:
		return path[:last]
	}
}

func makeParents(path string) error {
	folder := parent(path)
	if found, err := status(folder, true); err == nil {
		if isType(found, unix.S_IFDIR) {
			return nil
		}
		return unix.ENOTDIR
	} else if !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := makeParents(folder); err != nil {
		return err
	}
	if err := unix.Mkdir(folder, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

func (service *Service) Move(ctx context.Context, request *helperv1.MoveRequest) (*helperv1.MoveResponse, error) {
	return asNamed(service, request.User, func() (*helperv1.MoveResponse, error) { return service.move(ctx, request) })
}

func (service *Service) move(ctx context.Context, request *helperv1.MoveRequest) (*helperv1.MoveResponse, error) {
	from, err := checkPath("from", request.From)
	if err != nil {
		return nil, err
	}
	to, err := checkPath("to", request.To)
	if err != nil {
		return nil, err
	}
	if isRoot(from) || isRoot(to) {
		return nil, failure.New(helperv1.Reason_REASON_IS_ROOT, "the root folder can't be moved")
	}
	err = service.inTurn(ctx, func() error {
		if request.Overwrite {
			return unix.Rename(from, to)
		}
		err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
			return err
		}
		// This file system can't.
		if _, err := status(to, false); err == nil {
			return unix.EEXIST
		} else if !errors.Is(err, unix.ENOENT) {
			return err
		}
		return unix.Rename(from, to)
	})
	switch {
	case errors.Is(err, unix.EEXIST) && !request.Overwrite:
		return nil, failure.New(helperv1.Reason_REASON_ALREADY_EXISTS, "something has that name already")
	case errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST):
		return nil, failure.New(helperv1.Reason_REASON_NOT_EMPTY, "the folder is not empty")
	case err != nil:
		return nil, failure.FromSystem(err)
	}
	entry, err := service.look(to, false)
	if err != nil {
		return nil, err
	}
	return &helperv1.MoveResponse{Entry: entry}, nil
}

func (service *Service) Remove(ctx context.Context, request *helperv1.RemoveRequest) (*helperv1.RemoveResponse, error) {
	return asNamed(service, request.User, func() (*helperv1.RemoveResponse, error) { return service.remove(ctx, request) })
}

func (service *Service) remove(ctx context.Context, request *helperv1.RemoveRequest) (*helperv1.RemoveResponse, error) {
	path, err := checkPath("path", request.Path)
	if err != nil {
		return nil, err
	}
	if isRoot(path) {
		return nil, failure.New(helperv1.Reason_REASON_IS_ROOT, "the root folder can't be removed")
	}
	condition := (*precondition)(request.Precondition)
	removeAll := func() error { return os.RemoveAll(strings.TrimRight(path, "/")) }
	recursively := false
	err = service.inTurn(ctx, func() error {
		found, err := status(path, false)
		if err != nil {
			return err
		}
		if err := condition.check(path); err != nil {
			return err
		}
		switch {
		case !isType(found, unix.S_IFDIR):
			return unix.Unlink(path)
		case request.Recursive && condition.isSet():
			// It succeeds as well when another has removed the folder, so out of turn several would win.
			return removeAll()
		case request.Recursive:
			recursively = true
			return nil
		default:
			return unix.Rmdir(path)
		}
	})
	if recursively {
		// It can take minutes, for which no other change waits.
		err = removeAll()
	}
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return nil, failure.New(helperv1.Reason_REASON_NOT_EMPTY, "the folder is not empty")
	}
	if err != nil {
		return nil, failure.FromSystem(err)
	}
	return &helperv1.RemoveResponse{}, nil
}

func (service *Service) SetMode(ctx context.Context, request *helperv1.SetModeRequest) (*helperv1.SetModeResponse, error) {
	return asNamed(service, request.User, func() (*helperv1.SetModeResponse, error) { return service.setMode(ctx, request) })
}

func (service *Service) setMode(ctx context.Context, request *helperv1.SetModeRequest) (response *helperv1.SetModeResponse, err error) {
	path, err := checkPath("path", request.Path)
	if err != nil {
		return nil, err
	}
	if err := checkMode(request.Mode); err != nil {
		return nil, err
	}
	err = service.inTurn(ctx, func() error {
		if err := (*precondition)(request.Precondition).check(path); err != nil {
			return err
		}
		if err := unix.Chmod(path, request.Mode); err != nil {
			return err
		}
		entry, err := service.look(path, true)
		response = &helperv1.SetModeResponse{Entry: entry}
		return err
	})
	return response, failure.FromSystem(err)
}
