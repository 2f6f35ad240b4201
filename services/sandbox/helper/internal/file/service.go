// Package file reads and changes files for the sandbox service.
package file

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

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
	// Held while a precondition is looked at and the change made, so that of several with one condition one wins.
	changes  sync.Mutex
	watchers watchers
	long     longFolder
}

var _ helperv1connect.FileServiceHandler = (*Service)(nil)

// NewService takes the folder in which relative paths start, which is this process's too.
func NewService(cwd string, users userdb.Database) *Service {
	return &Service{cwd: cwd, users: users, watchers: newWatchers()}
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

// check is called with `changes` held.
func (condition *precondition) check(path string) error {
	if condition == nil || (len(condition.IfMatch) == 0 && !condition.IfNoneMatch) {
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

func (service *Service) Move(_ context.Context, request *helperv1.MoveRequest) (*helperv1.MoveResponse, error) {
	return asNamed(service, request.User, func() (*helperv1.MoveResponse, error) { return service.move(request) })
}

func (service *Service) move(request *helperv1.MoveRequest) (*helperv1.MoveResponse, error) {
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
	service.changes.Lock()
	defer service.changes.Unlock()
	if request.Overwrite {
		err = unix.Rename(from, to)
	} else {
		err = unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
			// This file system can't.
			if _, err = status(to, false); errors.Is(err, unix.ENOENT) {
				err = unix.Rename(from, to)
			} else if err == nil {
				err = unix.EEXIST
			}
		}
	}
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

func (service *Service) Remove(_ context.Context, request *helperv1.RemoveRequest) (*helperv1.RemoveResponse, error) {
	return asNamed(service, request.User, func() (*helperv1.RemoveResponse, error) { return service.remove(request) })
}

func (service *Service) remove(request *helperv1.RemoveRequest) (*helperv1.RemoveResponse, error) {
	path, err := checkPath("path", request.Path)
	if err != nil {
		return nil, err
	}
	if isRoot(path) {
		return nil, failure.New(helperv1.Reason_REASON_IS_ROOT, "the root folder can't be removed")
	}
	service.changes.Lock()
	defer service.changes.Unlock()
	found, err := status(path, false)
	if err != nil {
		return nil, failure.FromSystem(err)
	}
	if err := (*precondition)(request.Precondition).check(path); err != nil {
		return nil, err
	}
	switch {
	case !isType(found, unix.S_IFDIR):
		err = unix.Unlink(path)
	case request.Recursive:
		err = os.RemoveAll(strings.TrimRight(path, "/"))
	default:
		err = unix.Rmdir(path)
	}
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return nil, failure.New(helperv1.Reason_REASON_NOT_EMPTY, "the folder is not empty")
	}
	if err != nil {
		return nil, failure.FromSystem(err)
	}
	return &helperv1.RemoveResponse{}, nil
}

func (service *Service) SetMode(_ context.Context, request *helperv1.SetModeRequest) (*helperv1.SetModeResponse, error) {
	return asNamed(service, request.User, func() (*helperv1.SetModeResponse, error) { return service.setMode(request) })
}

func (service *Service) setMode(request *helperv1.SetModeRequest) (*helperv1.SetModeResponse, error) {
	path, err := checkPath("path", request.Path)
	if err != nil {
		return nil, err
	}
	if err := checkMode(request.Mode); err != nil {
		return nil, err
	}
	service.changes.Lock()
	defer service.changes.Unlock()
	if err := (*precondition)(request.Precondition).check(path); err != nil {
		return nil, err
	}
	if err := unix.Chmod(path, request.Mode); err != nil {
		return nil, failure.FromSystem(err)
	}
	entry, err := service.look(path, true)
	if err != nil {
		return nil, err
	}
	return &helperv1.SetModeResponse{Entry: entry}, nil
}
