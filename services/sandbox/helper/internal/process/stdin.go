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
	// Its end waits for room.
	ending atomic.Bool
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

// write takes `data` after `offset` bytes, -1 for after all there were. It answers with what was taken when the pipe is full
// for `timeout`. An end that only waits for room by then follows by itself.
func (in *input) write(offset int64, data []byte, eof bool, timeout time.Duration) (*helperv1.WriteStdinResponse, error) {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	until := time.Now().Add(timeout)
	select {
	case in.turn <- struct{}{}:
		defer func() { <-in.turn }()
	case <-deadline.C:
		if rest, err := in.rest(offset, data); eof && err == nil && len(rest) == 0 {
			in.endLater()
		}
		return in.answer(0), nil
	}
	data, err := in.rest(offset, data)
	if err != nil {
		return nil, err
	}
	if in.closed.Load() {
		if len(data) == 0 {
			return in.answer(0), nil
		}
		return nil, failure.New(helperv1.Reason_REASON_STDIN_CLOSED, "the input is closed")
	}
	_ = in.file.SetWriteDeadline(until)
	count, err := in.file.Write(data)
	in.taken.Add(int64(count))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return in.answer(count), nil
	case errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EIO) || errors.Is(err, os.ErrClosed):
		in.close()
		return nil, failure.New(helperv1.Reason_REASON_STDIN_CLOSED, "the process closed its input")
	case err != nil:
		return nil, failure.FromSystem(err)
	}
	if eof && in.terminal {
		_, err := in.file.Write([]byte{4})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			in.endLater()
		} else if err != nil {
			return nil, err
		}
	} else if eof {
		in.close()
	}
	return in.answer(count), nil
}

// rest is what of `data` was not taken before.
func (in *input) rest(offset int64, data []byte) ([]byte, error) {
	if offset < 0 {
		return data, nil
	}
	reached := in.taken.Load()
	if offset > reached {
		return nil, failure.New(helperv1.Reason_REASON_STDIN_GAP, "input before the offset is missing")
	}
	return data[min(reached-offset, int64(len(data))):], nil
}

// endLater ends the input once there is room for that, however long its reader takes. What asks for it meanwhile means the
// same end.
func (in *input) endLater() {
	if in.ending.Swap(true) {
		return
	}
	go func() {
		defer in.ending.Store(false)
		_, _ = in.write(-1, nil, true, 1<<62)
	}()
}

// answer tells of a write that took `count` bytes.
func (in *input) answer(count int) *helperv1.WriteStdinResponse {
	taken := int64(count)
	return &helperv1.WriteStdinResponse{Offset: in.taken.Load(), Closed: in.closed.Load(), Taken: &taken}
}

// feed writes the input that a command brings along, however long its reader takes.
func (in *input) feed(data []byte, eof bool) {
	_, _ = in.write(0, data, eof, 1<<62)
}
