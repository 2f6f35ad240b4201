package process

import (
	"bytes"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/helperv1"
)

func TestWhatATerminalHoldsWhenItsProcessEndsIsMoved(t *testing.T) {
	for range 100 {
		ours, theirs, err := openTerminal(80, 24, -1)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.SetNonblock(theirs, true); err != nil {
			t.Fatal(err)
		}
		program := os.NewFile(uintptr(theirs), "program")
		_ = program.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		written, _ := program.Write(bytes.Repeat([]byte("x"), 10_000))
		program.Close()
		raw, err := ours.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		p := &process{out: newOutput(&atomic.Int64{})}
		p.moveRest(helperv1.OutputStream_OUTPUT_STREAM_TERMINAL, raw, make([]byte, 4<<10))
		ours.Close()
		if _, moved := p.out.bounds(); written == 0 || moved != int64(written) {
			t.Fatalf("%d of %d bytes", moved, written)
		}
	}
}
