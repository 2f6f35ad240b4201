package process

import (
	"bytes"
	"sync/atomic"
	"testing"

	"sandgate/helper/internal/helperv1"
)

const stdout = helperv1.OutputStream_OUTPUT_STREAM_STDOUT

// drain reads all that is there, and answers what was gone of it.
func (reading *reader) drain() (data []byte, gap int64) {
	for {
		next, there, _, _ := reading.peek()
		if !there {
			return data, gap
		}
		data, gap = append(data, next.data...), gap+next.gap
		reading.took(next.offset)
	}
}

func TestWhatAReaderNeedsStays(t *testing.T) {
	var retained atomic.Int64
	out := newOutput(&retained)
	reading := out.read(0, true)
	defer reading.close()
	written := bytes.Repeat([]byte("0123456789abcdef"), retainedPerProcess/16)
	out.write(stdout, written[:len(written)-1])
	// Others retain the rest of what may be.
	retained.Store(retainedPerSandbox)
	out.write(stdout, written[len(written)-1:])
	if got, gap := reading.drain(); gap != 0 || !bytes.Equal(got, written) {
		t.Errorf("%d of %d bytes, %d are gone", len(got), len(written), gap)
	}
}

func TestClearedOutputIsReadToItsEnd(t *testing.T) {
	var retained atomic.Int64
	out := newOutput(&retained)
	written := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	out.write(stdout, written[:100_000])
	fastest, slow := out.read(0, true), out.read(0, true)
	out.write(stdout, written[100_000:])
	first, _, _, _ := fastest.peek()
	fastest.took(first.offset)
	out.close()
	out.clear()
	if left := retained.Load(); left != int64(len(written)-len(first.data)) {
		t.Errorf("%d bytes are retained", left)
	}
	rest, gap := fastest.drain()
	if got := append(bytes.Clone(first.data), rest...); gap != 0 || !bytes.Equal(got, written) {
		t.Errorf("%d of %d bytes, %d are gone", len(got), len(written), gap)
	}
	if left := retained.Load(); left != 0 {
		t.Errorf("%d bytes are retained though all was read", left)
	}
	if _, gap := slow.drain(); gap != int64(len(written)) {
		t.Errorf("of a slower one %d are gone", gap)
	}
	slow.close()
	fastest.close()

	left := newOutput(&retained)
	leaving := left.read(0, true)
	left.write(stdout, written)
	left.clear()
	leaving.close()
	if left := retained.Load(); left != 0 {
		t.Errorf("%d bytes are retained though the reader has left", left)
	}
}
