package process

import (
	"bytes"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// How long what a test waits for may take.
const endLimit = 30 * time.Second

func TestWritersOfOnePipeKnowWhatWasTakenOfTheirs(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in := newInput(writer, false)
	inputs := [][]byte{bytes.Repeat([]byte("abcdefg"), 1<<15), bytes.Repeat([]byte("0123456789"), 1<<15)}
	var writing sync.WaitGroup
	for _, rest := range inputs {
		writing.Go(func() {
			for len(rest) > 0 {
				answer, err := in.write(-1, rest, false, 5*time.Millisecond)
				if err != nil {
					t.Error(err)
					return
				}
				rest = rest[answer.GetTaken():]
			}
		})
	}
	go func() {
		writing.Wait()
		in.close()
	}()
	read := make([][]byte, len(inputs))
	for chunk := make([]byte, 10_000); ; time.Sleep(2 * time.Millisecond) {
		count, err := reader.Read(chunk)
		for _, each := range chunk[:count] {
			if each >= 'a' {
				read[0] = append(read[0], each)
			} else {
				read[1] = append(read[1], each)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, input := range inputs {
		if !bytes.Equal(read[i], input) {
			t.Errorf("%d bytes of input %d came as %d", len(input), i, len(read[i]))
		}
	}
}

func TestAnEndBehindAFullPipeFollowsWhatFillsIt(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in := newInput(writer, false)
	input := bytes.Repeat([]byte("x"), 1<<20)
	go in.feed(input, false)
	waitFor(t, func() bool { return len(in.turn) == 1 })
	for range 3 {
		if answer, err := in.write(-1, nil, true, time.Millisecond); err != nil || answer.Closed || answer.GetTaken() != 0 {
			t.Error(answer, err)
		}
	}
	_ = reader.SetReadDeadline(time.Now().Add(endLimit))
	if read, err := io.ReadAll(reader); err != nil || !bytes.Equal(read, input) {
		t.Errorf("%d bytes, %v", len(read), err)
	}
	if !in.closed.Load() {
		t.Error("it is open")
	}
}

func TestAnEndBehindInputThatIsMissingIsNotGiven(t *testing.T) {
	_, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in := newInput(writer, false)
	in.turn <- struct{}{}
	for _, offset := range []int64{-1, 0, 9} {
		if _, err := in.write(offset, []byte("x"), true, time.Millisecond); err != nil {
			t.Error(err)
		}
	}
	if in.ending.Load() {
		t.Error("it is to end")
	}
}

func TestAnEndOfAFullTerminalFollowsWhatFillsIt(t *testing.T) {
	ours, theirs, err := openTerminal(80, 24, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	in := newInput(ours, true)
	// Behind a line that isn't whole the character would end that alone.
	filled, err := in.write(-1, bytes.Repeat([]byte("\n"), 1<<16), false, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := in.write(-1, nil, true, time.Millisecond); err != nil {
			t.Error(err)
		}
	}
	go io.Copy(io.Discard, ours)
	if err := unix.SetNonblock(theirs, true); err != nil {
		t.Fatal(err)
	}
	program := os.NewFile(uintptr(theirs), "program")
	defer program.Close()
	_ = program.SetReadDeadline(time.Now().Add(endLimit))
	// A read of nothing is the end.
	read, err := io.ReadAll(program)
	if err != nil || int64(len(read)) != filled.Offset {
		t.Errorf("%d of %d bytes, %v", len(read), filled.Offset, err)
	}
}

func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	for until := time.Now().Add(endLimit); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("it did not come")
		}
	}
}
