// Package process runs commands and terminals for the sandbox service.
package process

import (
	"errors"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/identity"
	"sandgate/helper/internal/reaper"
)

const (
	maxRunning = 64
	maxEnded   = 1000
	// How long after the last process ended memory is given back.
	tidyAfter = time.Second
	// Of all records of a list before they are cut, and of a command and a folder then.
	maxListBytes = 2 << 20
	listedBytes  = 1 << 10
	// Of all commands and folders of the ended ones before the oldest are cut.
	maxCommandBytes = 4 << 20
	// Of a word, beside its own.
	wordBytes = 16
)

// table holds the running processes and the last that ended.
type table struct {
	surroundings Surroundings
	pool         *reaper.Pool
	retained     atomic.Int64
	tidy         *time.Timer

	mutex sync.Mutex
	byID  map[string]*process
	// In the order of their start, those that are being started left out.
	order   []string
	running int
	// In the order of their end.
	ended []*process
	// Of those, by their `commandBytes`.
	commandBytes int
	keys         keys
}

func newTable(surroundings Surroundings, pool *reaper.Pool) *table {
	table := &table{surroundings: surroundings, pool: pool, byID: map[string]*process{}, keys: newKeys()}
	table.tidy = time.AfterFunc(tidyAfter, debug.FreeOSMemory)
	return table
}

func (t *table) find(id string) (*process, error) {
	t.mutex.Lock()
	found := t.byID[id]
	t.mutex.Unlock()
	if found != nil {
		if <-found.launched; found.failed == nil {
			return found, nil
		}
	}
	return nil, failure.New(helperv1.Reason_REASON_PROCESS_NOT_FOUND, "no process has that id")
}

func (t *table) list() []*helperv1.Process {
	t.mutex.Lock()
	found := make([]*process, 0, len(t.order))
	for _, id := range t.order {
		found = append(found, t.byID[id])
	}
	t.mutex.Unlock()
	records := make([]*helperv1.Process, 0, len(found))
	size := 0
	for _, p := range found {
		record := p.record()
		size += proto.Size(record)
		records = append(records, record)
	}
	if size > maxListBytes {
		for _, record := range records {
			shorten(record)
		}
	}
	return records
}

func shorten(record *helperv1.Process) {
	record.Shell, record.Cwd = firstOf(record.Shell, listedBytes), firstOf(record.Cwd, listedBytes)
	left := listedBytes
	for index, word := range record.Argv {
		if len(word) > left {
			record.Argv = append(slices.Clone(record.Argv[:index]), firstOf(word, max(left, 0)))
			break
		}
		// With the space between two, so that empty ones count too.
		left -= len(word) + 1
	}
}

// commandBytes is what a command and a folder take in memory.
func commandBytes(record *helperv1.Process) int {
	size := len(record.Shell) + len(record.Cwd) + len(record.Argv)*wordBytes
	for _, word := range record.Argv {
		size += len(word)
	}
	return size
}

// firstOf cuts no character, and keeps nothing of the rest.
func firstOf(text string, length int) string {
	if len(text) <= length {
		return text
	}
	for length > 0 && !utf8.RuneStart(text[length]) {
		length--
	}
	return strings.Clone(text[:length])
}

// start answers the process that has the id already, if one has. key: as in the contract.
func (t *table) start(id string, key []byte, command *helperv1.Command) (p *process, err error) {
	if id == "" || len(id) > 64 {
		return nil, failure.Invalid("id", "must have 1 to 64 characters")
	}
	if len(key) > 64 {
		return nil, failure.Invalid("key", "must have at most 64 bytes")
	}
	request, err := t.surroundings.request(command)
	if err != nil {
		return nil, err
	}
	t.mutex.Lock()
	if found := t.byID[id]; found != nil {
		t.mutex.Unlock()
		<-found.launched
		return found, found.failed
	}
	if err := t.keys.check(key, id); err != nil {
		t.mutex.Unlock()
		return nil, err
	}
	if t.running >= maxRunning {
		t.mutex.Unlock()
		return nil, failure.New(helperv1.Reason_REASON_TOO_MANY_PROCESSES, "64 processes are running already")
	}
	p = &process{
		out: newOutput(&t.retained), launched: make(chan struct{}), ended: make(chan struct{}),
		told: &helperv1.Process{
			Id: id, Argv: command.Argv, Shell: command.Shell, Cwd: request.Cwd, User: command.User, Tag: command.Tag,
			Terminal: command.Terminal, State: helperv1.ProcessState_PROCESS_STATE_RUNNING, StartedAt: timestamppb.Now(),
		},
	}
	t.byID[id] = p
	t.keys.add(key, id)
	t.running++
	t.mutex.Unlock()
	p.failed = t.launch(p, command, request)
	close(p.launched)
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if p.failed != nil {
		delete(t.byID, id)
		t.keys.remove(key)
		t.running--
		return nil, p.failed
	}
	t.order = append(t.order, id)
	go t.retire(p)
	return p, nil
}

// retire forgets the oldest of the ended ones.
func (t *table) retire(p *process) {
	<-p.ended
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.running--
	t.ended = append(t.ended, p)
	p.commandBytes = commandBytes(p.told)
	t.commandBytes += p.commandBytes
	if len(t.ended) > maxEnded {
		oldest := t.ended[0]
		t.ended = t.ended[1:]
		oldest.out.clear()
		t.commandBytes -= oldest.commandBytes
		delete(t.byID, oldest.told.Id)
		t.order = slices.DeleteFunc(t.order, func(id string) bool { return id == oldest.told.Id })
	}
	for _, old := range t.ended {
		if t.commandBytes <= maxCommandBytes {
			break
		}
		t.commandBytes -= old.commandBytes
		old.shorten()
		t.commandBytes += old.commandBytes
	}
	for _, old := range t.ended {
		if t.retained.Load() <= retainedPerSandbox {
			break
		}
		if old != p {
			old.out.clear()
		}
	}
	t.tidy.Reset(tidyAfter)
}

// pipe answers the helper's end as a file that can be waited for.
func pipe(helperReads bool) (ours *os.File, theirs int, err error) {
	ends := make([]int, 2)
	if err := unix.Pipe2(ends, unix.O_CLOEXEC); err != nil {
		return nil, -1, err
	}
	own, other := ends[0], ends[1]
	if !helperReads {
		own, other = other, own
	}
	if err := unix.SetNonblock(own, true); err != nil {
		unix.Close(own)
		unix.Close(other)
		return nil, -1, err
	}
	return os.NewFile(uintptr(own), "pipe"), other, nil
}

// emptyInput is at its end at once, also where /dev has no null.
func emptyInput() (int, error) {
	if null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		return null, nil
	}
	ours, theirs, err := pipe(false)
	if err == nil {
		ours.Close()
	}
	return theirs, err
}

// launch starts the program, or ends the process as one that could not be run.
func (t *table) launch(p *process, command *helperv1.Command, request reaper.Request) (err error) {
	var ours []*os.File
	var theirs []int
	defer func() {
		for _, descriptor := range theirs {
			unix.Close(descriptor)
		}
		if err != nil {
			for _, file := range ours {
				file.Close()
			}
			var errno syscall.Errno
			if errors.As(err, &errno) {
				err = failure.WithErrno(helperv1.Reason_REASON_START_FAILED, "no process could be made", errno)
			}
		}
	}()
	type source struct {
		stream helperv1.OutputStream
		file   *os.File
	}
	var sources []source
	var stdin *os.File
	if terminal := command.Terminal; terminal != nil {
		owner := -1
		if request.User != nil {
			owner = int(request.User.UID)
		}
		file, descriptor, err := openTerminal(terminal.Cols, terminal.Rows, owner)
		if err != nil {
			return err
		}
		ours, theirs = []*os.File{file}, []int{descriptor}
		stdin, p.terminal = file, file
		sources = []source{{helperv1.OutputStream_OUTPUT_STREAM_TERMINAL, file}}
	} else {
		if len(command.Stdin) > 0 || command.StdinOpen {
			file, descriptor, err := pipe(false)
			if err != nil {
				return err
			}
			ours, theirs, stdin = append(ours, file), append(theirs, descriptor), file
		} else {
			descriptor, err := emptyInput()
			if err != nil {
				return err
			}
			theirs = append(theirs, descriptor)
		}
		for _, stream := range []helperv1.OutputStream{helperv1.OutputStream_OUTPUT_STREAM_STDOUT, helperv1.OutputStream_OUTPUT_STREAM_STDERR} {
			file, descriptor, err := pipe(true)
			if err != nil {
				return err
			}
			ours, theirs, sources = append(ours, file), append(theirs, descriptor), append(sources, source{stream, file})
		}
	}
	p.in = newInput(stdin, command.Terminal != nil)
	descriptors := theirs
	if command.Terminal != nil {
		descriptors = []int{theirs[0], theirs[0], theirs[0]}
	}
	if len(request.Paths) == 0 {
		// Only to have the folder looked at.
		request.Paths = []string{"/proc/self/exe/" + request.Argv[0]}
	}
	below, pid, err := t.pool.Start(request, descriptors...)
	var failed *reaper.Failure
	if errors.As(err, &failed) {
		switch failed.Step {
		case reaper.StepChdir:
			return failure.WithErrno(helperv1.Reason_REASON_CWD_NOT_A_DIRECTORY, "the folder can't be entered", failed.Errno)
		case reaper.StepUser:
			return identity.CannotBecome(failed.Errno, "")
		case reaper.StepExec:
			for _, file := range ours {
				file.Close()
			}
			p.notRun(request, failed.Errno)
			return nil
		default:
			return failed.Errno
		}
	}
	p.reaper, p.told.Pid = below, int32(pid)
	drain, drained := make(chan struct{}), &sync.WaitGroup{}
	for _, source := range sources {
		drained.Add(1)
		go p.pump(source.stream, source.file, drain, drained)
	}
	if len(command.Stdin) > 0 {
		go p.in.feed(command.Stdin, !command.StdinOpen && command.Terminal == nil)
	}
	if command.TimeoutMs > 0 {
		p.timers = append(p.timers, time.AfterFunc(time.Duration(command.TimeoutMs)*time.Millisecond, p.timeOut))
	}
	p.waitForFollower()
	go p.watch(t.pool, drain, drained)
	return nil
}

// notRun ends a process whose program is missing or can't be run, as a shell would.
func (p *process) notRun(request reaper.Request, errno syscall.Errno) {
	if errno == syscall.ENOTDIR && len(request.Paths) == 1 && request.Paths[0] != request.Argv[0] {
		errno = syscall.ENOENT
	}
	code, text := notRun(request.Argv[0], errno)
	stream := helperv1.OutputStream_OUTPUT_STREAM_STDERR
	if request.Terminal {
		stream = helperv1.OutputStream_OUTPUT_STREAM_TERMINAL
	}
	p.in.close()
	p.terminal = nil
	p.out.write(stream, []byte(text))
	p.out.close()
	p.told.State, p.told.ExitCode, p.told.EndedAt = helperv1.ProcessState_PROCESS_STATE_EXITED, &code, timestamppb.Now()
	close(p.ended)
}
