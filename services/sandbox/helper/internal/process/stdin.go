package process

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
)

// input is a process's stdin, addressed by the bytes taken so far, so that a repeated write is not doubled.
type input struct {
	// Held by the one that writes.
	turn   chan struct{}
	file   *os.File
	taken  atomic.Int64
	closed atomic.Bool
	// Shared with the output of a terminal: its end is a character, and it is closed with the process.
	terminal bool
}

// newInput takes a file that can be waited for; nil is an input without any bytes.
func newInput(file *os.File, terminal bool) *input {
	in := &input{turn: make(chan struct{}, 1), file: file, terminal: terminal}
	in.closed.Store(file == nil)
	return in
}

// close ends a write that waits.
func (in *input) close() {
	if in.closed.Swap(true) || in.terminal {
		return
	}
	in.file.Close()
}

// write takes `data` after `offset` bytes, -1 for after all there were. It answers with the offset reached when the pipe is
// full for `timeout`.
func (in *input) write(offset int64, data []byte, eof bool, timeout time.Duration) (reached int64, closed bool, err error) {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	until := time.Now().Add(timeout)
	select {
	case in.turn <- struct{}{}:
		defer func() { <-in.turn }()
	case <-deadline.C:
		return in.taken.Load(), in.closed.Load(), nil
	}
	taken := in.taken.Load()
	if offset < 0 {
		offset = taken
	}
	if offset > taken {
		return taken, in.closed.Load(), failure.New(helperv1.Reason_REASON_STDIN_GAP, "input before the offset is missing")
	}
	data = data[min(taken-offset, int64(len(data))):]
	if in.closed.Load() {
		if len(data) == 0 {
			return taken, true, nil
		}
		return taken, true, failure.New(helperv1.Reason_REASON_STDIN_CLOSED, "the input is closed")
	}
	_ = in.file.SetWriteDeadline(until)
	count, err := in.file.Write(data)
	taken = in.taken.Add(int64(count))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return taken, false, nil
	case errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EIO) || errors.Is(err, os.ErrClosed):
		in.close()
		return taken, true, failure.New(helperv1.Reason_REASON_STDIN_CLOSED, "the process closed its input")
	case err != nil:
		return taken, false, failure.FromSystem(err)
	}
	if eof && in.terminal {
		_, err = in.file.Write([]byte{4})
	} else if eof {
		in.close()
	}
	return taken, in.closed.Load(), err
}

// feed writes the input that a command brings along, however long its reader takes.
func (in *input) feed(data []byte, eof bool) {
	_, _, _ = in.write(0, data, eof, 1<<62)
}
