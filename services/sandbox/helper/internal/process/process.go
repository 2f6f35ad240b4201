package process

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/proctree"
	"sandgate/helper/internal/reaper"
)

const (
	// Between SIGTERM and SIGKILL when the time of a command is up, and when its caller has left.
	timeoutGrace    = 2 * time.Second
	disconnectGrace = time.Second
	// How long a tree is killed that keeps forking.
	killLimit = 10 * time.Second
	// How often a terminal that nobody has open is looked at again.
	reopenInterval = 20 * time.Millisecond
	// More than the kernel holds of what was written to a terminal: 8 KiB on its way, and 4 KiB to be read.
	terminalBytes = 16 << 10
)

// process is one that was started here.
type process struct {
	out *output
	in  *input
	// Closed once it runs, or `failed` tells why it doesn't.
	launched chan struct{}
	failed   error
	ended    chan struct{}

	mutex sync.Mutex
	// What is told of it, without what `record` adds. Once it has ended, it is only cut.
	told   *helperv1.Process
	reaper *reaper.Reaper
	// nil without a terminal.
	terminal *os.File
	// All its descendants are to end with it.
	ending bool
	killed bool
	timers []*time.Timer
	hangup *time.Timer
	// Calls that follow the output of a terminal.
	followers int
	// Calls of Run.
	callers int

	// What is told takes so many, once it has ended; of the table.
	commandBytes int
}

func (p *process) record() *helperv1.Process {
	from, end := p.out.bounds()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	told := p.told
	record := &helperv1.Process{
		Id: told.Id, Pid: told.Pid, Argv: told.Argv, Shell: told.Shell, Cwd: told.Cwd, User: told.User, Tag: told.Tag,
		State: told.State, ExitCode: told.ExitCode, Signal: told.Signal, TimedOut: told.TimedOut,
		StdinOpen: !p.in.closed.Load(), OutputBytes: end, RetainedFrom: from, StartedAt: told.StartedAt, EndedAt: told.EndedAt,
	}
	if size := told.Terminal; size != nil {
		record.Terminal = &helperv1.Terminal{Cols: size.Cols, Rows: size.Rows, HangupAfterMs: size.HangupAfterMs}
	}
	return record
}

// shorten cuts the command of a process that has ended.
func (p *process) shorten() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	shorten(p.told)
	p.commandBytes = commandBytes(p.told)
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// pump moves what a process writes to its output, until the stream ends or `drain` is closed: then what was written by that
// time is moved, and `drained` is told. What its children write after that is read and dropped, so that they live on.
func (p *process) pump(stream helperv1.OutputStream, source *os.File, drain <-chan struct{}, drained *sync.WaitGroup) {
	done := sync.OnceFunc(drained.Done)
	defer source.Close()
	defer done()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-drain:
			_ = source.SetReadDeadline(time.Unix(1, 0))
		case <-stop:
		}
	}()
	buffer := make([]byte, 4<<10)
	for {
		count, err := source.Read(buffer)
		if count > 0 {
			p.out.write(stream, buffer[:count])
			if count == len(buffer) && count < segmentBytes {
				buffer = make([]byte, segmentBytes)
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if errors.Is(err, unix.EIO) {
			// Nobody has the terminal open. Programs close it before they exit, or open it again, and a close here would end
			// them with SIGHUP.
			select {
			case <-drain:
			case <-time.After(reopenInterval):
			}
			continue
		}
		if err != nil {
			return
		}
	}
	_ = source.SetReadDeadline(time.Time{})
	raw, err := source.SyscallConn()
	if err != nil {
		return
	}
	p.moveRest(stream, raw, buffer)
	done()
	if stream != helperv1.OutputStream_OUTPUT_STREAM_TERMINAL {
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{source}, buffer[:min(len(buffer), 4<<10)])
	}
}

// moveRest moves what was written to a stream by now. Of a terminal the kernel counts only what has reached this end: the rest
// follows once that is read.
func (p *process) moveRest(stream helperv1.OutputStream, raw syscall.RawConn, buffer []byte) {
	for moved, left := 0, waiting(raw); left > 0; {
		count := 0
		err := raw.Read(func(descriptor uintptr) bool {
			count, _ = unix.Read(int(descriptor), buffer[:min(len(buffer), left)])
			return true
		})
		if err != nil || count <= 0 {
			return
		}
		p.out.write(stream, buffer[:count])
		moved += count
		left -= count
		if left == 0 && stream == helperv1.OutputStream_OUTPUT_STREAM_TERMINAL && moved < terminalBytes {
			left = waiting(raw)
		}
	}
}

// waiting is how many bytes can be read.
func waiting(raw syscall.RawConn) (count int) {
	_ = raw.Control(func(descriptor uintptr) {
		// With nothing at this end of a terminal, a poll waits for what is on its way (n_tty_poll).
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}, 0)
		count, _ = unix.IoctlGetInt(int(descriptor), unix.TIOCINQ)
	})
	return count
}

// watch follows the reaper until the process has ended.
func (p *process) watch(pool *reaper.Pool, drain chan<- struct{}, drained *sync.WaitGroup) {
	used := p.reaper
	report, err := used.Next()
	idle := report.Idle
	status := unix.WaitStatus(report.Status)
	for err == nil && !idle {
		p.mutex.Lock()
		ending := p.ending
		if !ending {
			// From here on nothing below it is signalled any more.
			p.reaper = nil
		}
		p.mutex.Unlock()
		if !ending {
			used.Release()
			break
		}
		// Until all have ended that are to end with it.
		var next reaper.Report
		next, err = used.Next()
		idle = next.Idle
	}
	lost := err != nil && !report.Exited
	p.mutex.Lock()
	p.reaper = nil
	for _, timer := range p.timers {
		timer.Stop()
	}
	if p.hangup != nil {
		p.hangup.Stop()
	}
	p.mutex.Unlock()
	if err == nil && idle {
		pool.Return(used)
	} else if err != nil {
		used.Close()
		p.abandon()
	}
	p.out.stopPacing()
	close(drain)
	drained.Wait()
	p.in.close()

	p.mutex.Lock()
	p.terminal = nil
	p.told.EndedAt = timestamppb.Now()
	if lost {
		p.told.State = helperv1.ProcessState_PROCESS_STATE_LOST
	} else {
		code := int32(status.ExitStatus())
		if status.Signaled() {
			p.told.Signal = int32(status.Signal())
			code = 128 + p.told.Signal
		}
		p.told.State, p.told.ExitCode = helperv1.ProcessState_PROCESS_STATE_EXITED, &code
	}
	p.mutex.Unlock()
	p.out.close()
	close(p.ended)
}

// abandon kills what can still be found after somebody killed the reaper: the command, now the helper's child, and what is
// below it.
func (p *process) abandon() {
	pid := int(p.told.Pid)
	if parent := proctree.Parents()[pid]; parent == os.Getpid() {
		proctree.Kill(pid, time.Second)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// root is the reaper below which all its descendants are, or false when there is nothing to signal any more.
func (p *process) root() (pid int, any bool) {
	if p.reaper == nil {
		return 0, false
	}
	return p.reaper.PID, true
}

// kill ends all descendants at once.
func (p *process) kill() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if _, any := p.root(); !any || p.killed {
		return
	}
	p.ending, p.killed = true, true
	go func() {
		// Some may have been started while the others were looked at, so until the reaper has none left.
		for until := time.Now().Add(killLimit); time.Now().Before(until); time.Sleep(time.Millisecond) {
			p.mutex.Lock()
			root, any := p.root()
			if any {
				proctree.Signal(root, unix.SIGKILL)
			}
			p.mutex.Unlock()
			if !any {
				return
			}
		}
	}()
}

// end asks all descendants to end, and kills them after the grace.
func (p *process) end(grace time.Duration) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	root, any := p.root()
	if !any {
		return
	}
	p.ending = true
	proctree.Signal(root, unix.SIGTERM)
	p.timers = append(p.timers, time.AfterFunc(grace, p.kill))
}

func (p *process) timeOut() {
	p.mutex.Lock()
	_, any := p.root()
	if any {
		p.told.TimedOut = true
	}
	p.mutex.Unlock()
	if any {
		p.end(timeoutGrace)
	}
}

func hasEnded() error {
	return failure.New(helperv1.Reason_REASON_PROCESS_ENDED, "the process has ended")
}

func (p *process) signal(number unix.Signal) error {
	if number == unix.SIGKILL {
		if !p.running() {
			return hasEnded()
		}
		p.kill()
		return nil
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if _, any := p.root(); !any {
		return hasEnded()
	}
	return failure.FromSystem(unix.Kill(-int(p.told.Pid), number))
}

func (p *process) resize(cols, rows int32) error {
	if err := checkSize(cols, rows); err != nil {
		return err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.told.Terminal == nil {
		return notATerminal()
	}
	if p.terminal == nil {
		return hasEnded()
	}
	raw, err := p.terminal.SyscallConn()
	if err != nil {
		return hasEnded()
	}
	var failed error
	if err := raw.Control(func(descriptor uintptr) { failed = setSize(int(descriptor), cols, rows) }); err != nil {
		return hasEnded()
	}
	if failed == nil {
		p.told.Terminal.Cols, p.told.Terminal.Rows = cols, rows
	}
	return failure.FromSystem(failed)
}

// call counts a call of Run until the returned function is called, which tells whether the last one has left.
func (p *process) call() (leave func() bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.callers++
	return func() bool {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.callers--
		return p.callers == 0
	}
}

// follow keeps a terminal from being hung up until the returned function is called.
func (p *process) follow() (leave func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.followers++
	if p.hangup != nil {
		p.hangup.Stop()
	}
	return func() {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.followers--
		p.waitForFollower()
	}
}

// waitForFollower is called with the mutex held.
func (p *process) waitForFollower() {
	if p.followers > 0 || p.reaper == nil || p.told.Terminal.GetHangupAfterMs() <= 0 {
		return
	}
	after := time.Duration(p.told.Terminal.HangupAfterMs) * time.Millisecond
	p.hangup = time.AfterFunc(after, func() {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if p.followers == 0 && p.reaper != nil {
			_ = unix.Kill(-int(p.told.Pid), unix.SIGHUP)
		}
	})
}
