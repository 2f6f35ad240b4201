package process

import (
	"bytes"
	"io"
	"os"
	"sync"
	"testing"
	"time"
)

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
