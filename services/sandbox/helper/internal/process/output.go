package process

import (
	"context"
	"sync"
	"sync/atomic"

	"sandgate/helper/internal/helperv1"
)

const (
	retainedPerProcess = 1 << 20
	retainedPerSandbox = 32 << 20
	// What each of the most processes may retain when all do.
	retainedWhenFull = retainedPerSandbox / maxRunning
	segmentBytes     = 32 << 10
	chunkBytes       = 64 << 10
)

// segment is output of one stream; its data only grows, so parts of it are handed out without a copy.
type segment struct {
	stream helperv1.OutputStream
	offset int64
	data   []byte
}

func (piece *segment) end() int64 { return piece.offset + int64(len(piece.data)) }

// output retains the newest bytes that a process wrote, and makes it wait for its fastest reader, as a pipe would.
type output struct {
	mutex    sync.Mutex
	changed  chan struct{}
	segments []*segment
	end      int64
	from     int64
	readers  map[*reader]struct{}
	// No more waiting for readers: the process has ended.
	unpaced bool
	closed  bool
	// Nothing is retained but what a reader is about to read.
	cleared bool
	// Of all processes.
	retained *atomic.Int64
}

func newOutput(retained *atomic.Int64) *output {
	return &output{changed: make(chan struct{}), readers: map[*reader]struct{}{}, retained: retained}
}

// wake is called with the mutex held.
func (out *output) wake() {
	close(out.changed)
	out.changed = make(chan struct{})
}

func (out *output) limit() int64 {
	if out.retained.Load() > retainedPerSandbox {
		return retainedWhenFull
	}
	return retainedPerProcess
}

// fastest is the offset of the reader that is furthest, or false when there is none.
func (out *output) fastest() (offset int64, any bool) {
	for reader := range out.readers {
		if !any || reader.offset > offset {
			offset, any = reader.offset, true
		}
	}
	return offset, any
}

// write blocks while the fastest reader is as far behind as is retained.
func (out *output) write(stream helperv1.OutputStream, data []byte) {
	out.mutex.Lock()
	defer out.mutex.Unlock()
	for {
		offset, any := out.fastest()
		if !any || out.unpaced || out.end+int64(len(data))-offset <= max(out.limit(), int64(len(data))) {
			break
		}
		changed := out.changed
		out.mutex.Unlock()
		<-changed
		out.mutex.Lock()
	}
	out.append(stream, data)
	limit := out.limit()
	if offset, any := out.fastest(); any {
		// What a reader still needs stays, though less is to be retained now: it was waited for, or the process has ended, and
		// these are its last bytes, a full pipe of them at most.
		limit = max(limit, out.end-offset)
	}
	out.forget(out.end - limit)
	out.wake()
}

func (out *output) append(stream helperv1.OutputStream, data []byte) {
	out.end += int64(len(data))
	out.retained.Add(int64(len(data)))
	if count := len(out.segments); count > 0 {
		if last := out.segments[count-1]; last.stream == stream && len(last.data)+len(data) <= segmentBytes {
			last.data = append(last.data, data...)
			return
		}
	}
	copied := make([]byte, len(data))
	copy(copied, data)
	out.segments = append(out.segments, &segment{stream: stream, offset: out.end - int64(len(data)), data: copied})
}

// forget drops what is before an offset.
func (out *output) forget(before int64) {
	if before <= out.from {
		return
	}
	out.retained.Add(out.from - before)
	out.from = before
	drop := 0
	for drop < len(out.segments) && out.segments[drop].end() <= before {
		out.segments[drop] = nil
		drop++
	}
	out.segments = out.segments[drop:]
	if len(out.segments) > 0 && out.segments[0].offset < before {
		first := out.segments[0]
		out.segments[0] = &segment{stream: first.stream, offset: before, data: first.data[before-first.offset:]}
	}
}

// clear drops all that is retained of an ended process: what its fastest reader needs, once that has read it.
func (out *output) clear() {
	out.mutex.Lock()
	defer out.mutex.Unlock()
	out.cleared = true
	out.forgetRead()
}

// forgetRead is called with the mutex held, whenever a reader has moved on.
func (out *output) forgetRead() {
	if !out.cleared {
		return
	}
	needed := out.end
	if offset, any := out.fastest(); any {
		needed = offset
	}
	out.forget(needed)
}

func (out *output) stopPacing() {
	out.mutex.Lock()
	defer out.mutex.Unlock()
	out.unpaced = true
	out.wake()
}

// close tells readers that nothing follows.
func (out *output) close() {
	out.mutex.Lock()
	defer out.mutex.Unlock()
	out.closed = true
	out.wake()
}

func (out *output) bounds() (from, end int64) {
	out.mutex.Lock()
	defer out.mutex.Unlock()
	return out.from, out.end
}

// reader is a place in the output. One that paces is attached until it is closed.
type reader struct {
	out    *output
	offset int64
}

// piece is what a reader takes at once: bytes of one stream, or so many that are gone. Neither: the end.
type piece struct {
	stream helperv1.OutputStream
	data   []byte
	gap    int64
	// After this piece.
	offset int64
}

// read starts after an offset; beyond the end means at the end.
func (out *output) read(after int64, pacing bool) *reader {
	out.mutex.Lock()
	defer out.mutex.Unlock()
	reading := &reader{out: out, offset: min(max(after, 0), out.end)}
	if pacing {
		out.readers[reading] = struct{}{}
	}
	return reading
}

func (reading *reader) close() {
	out := reading.out
	out.mutex.Lock()
	defer out.mutex.Unlock()
	delete(out.readers, reading)
	out.forgetRead()
	out.wake()
}

// peek answers false when nothing is there yet. done: nothing will be.
func (reading *reader) peek() (next piece, there, done bool, changed <-chan struct{}) {
	out := reading.out
	out.mutex.Lock()
	defer out.mutex.Unlock()
	switch {
	case reading.offset < out.from:
		return piece{gap: out.from - reading.offset, offset: out.from}, true, false, nil
	case reading.offset == out.end:
		return piece{offset: out.end}, false, out.closed, out.changed
	}
	low, high := 0, len(out.segments)
	for low+1 < high {
		if middle := (low + high) / 2; out.segments[middle].offset <= reading.offset {
			low = middle
		} else {
			high = middle
		}
	}
	found := out.segments[low]
	data := found.data[reading.offset-found.offset:]
	data = data[:min(len(data), chunkBytes):min(len(data), chunkBytes)]
	return piece{stream: found.stream, data: data, offset: reading.offset + int64(len(data))}, true, false, nil
}

// next waits for a piece; false at the end. The piece counts as read once the next one is asked for.
func (reading *reader) next(ctx context.Context) (piece, bool, error) {
	for {
		next, there, done, changed := reading.peek()
		if there {
			return next, true, nil
		}
		if done {
			return next, false, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return next, false, ctx.Err()
		}
	}
}

// took moves the reader on.
func (reading *reader) took(offset int64) {
	out := reading.out
	out.mutex.Lock()
	defer out.mutex.Unlock()
	reading.offset = offset
	out.forgetRead()
	out.wake()
}
