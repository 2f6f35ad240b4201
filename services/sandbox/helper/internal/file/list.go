package file

import (
	"context"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

func (service *Service) List(ctx context.Context, request *helperv1.ListRequest) (*helperv1.ListResponse, error) {
	return asNamed(service, request.User, func() (*helperv1.ListResponse, error) { return service.list(ctx, request) })
}

func (service *Service) list(ctx context.Context, request *helperv1.ListRequest) (*helperv1.ListResponse, error) {
	path, err := checkPath("path", request.Path)
	if err != nil {
		return nil, err
	}
	limit := int(request.Limit)
	if limit == 0 {
		limit = defaultPage
	}
	if limit < 1 || limit > maxPage {
		return nil, failure.Invalid("limit", "must be 1 to 1,000")
	}
	found, err := status(path, true)
	if err != nil {
		return nil, failure.FromSystem(err)
	}
	if !isType(found, unix.S_IFDIR) {
		return nil, failure.New(helperv1.Reason_REASON_NOT_A_DIRECTORY, "it is no folder")
	}
	base := strings.TrimRight(service.absolute(path), "/")
	list := &listing{ctx: ctx, base: base, names: service.names(), long: &service.long, limit: limit + 1}
	var after []string
	if len(request.Cursor) > 0 {
		after = strings.Split(string(request.Cursor), "/")
	}
	if err := list.folder("", max(int(request.Depth), 1), after); err != nil {
		return nil, failure.FromSystem(err)
	}
	response := &helperv1.ListResponse{Entries: list.entries}
	if len(list.entries) > limit {
		response.Entries = list.entries[:limit]
		response.NextCursor = response.Entries[limit-1].Path[len(base)+1:]
	}
	return response, nil
}

type listing struct {
	ctx     context.Context
	base    string
	names   names
	long    *longFolder
	limit   int
	entries []*helperv1.Entry
}

// folder lists what comes after the names of a cursor, which lead to the last entry of the page before.
func (list *listing) folder(below string, depth int, after []string) error {
	if err := list.ctx.Err(); err != nil {
		return err
	}
	folder, err := os.Open(list.base + "/" + below)
	if err != nil {
		if below == "" {
			return err
		}
		// Gone since, or not this user's to read.
		return nil
	}
	names, err := list.long.sortedNames(folder, len(after) > 0)
	folder.Close()
	if err != nil && below == "" {
		return err
	}
	if len(after) > 0 {
		first, _ := slices.BinarySearch(names, after[0])
		names = names[first:]
	}
	for _, name := range names {
		if len(list.entries) >= list.limit {
			return nil
		}
		relative := name
		if below != "" {
			relative = below + "/" + name
		}
		found, err := status(list.base+"/"+relative, false)
		if err != nil {
			continue
		}
		var rest []string
		if len(after) > 0 && after[0] == name {
			// Listed already.
			rest = after[1:]
		} else {
			list.entries = append(list.entries, list.names.entry(list.base+"/"+relative, found))
		}
		if depth > 1 && isType(found, unix.S_IFDIR) {
			if err := list.folder(relative, depth-1, rest); err != nil {
				return err
			}
		}
	}
	return nil
}
