package port

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"sandgate/helper/internal/response"
)

// Mark is the first byte of a port connection.
const Mark = 1

// What frames say, see PortService.
const (
	frameConnect = iota
	frameConnected
	frameData
	frameEOF
	frameNotListening
	frameAborted
)

const (
	// A kind, and the length of what follows.
	headerBytes = 4
	portBytes   = 2
	// How often a write that stands still looks for its caller.
	stillThere = 5 * time.Second
	// How long the first data of a server waits for its end.
	maxFollow = 500 * time.Microsecond
)

// Caller is the other end of a port connection.
type Caller interface {
	net.Conn
	// HungUp tells, without reading, whether it is gone.
	HungUp() bool
}

// Serve reaches one server after another for a caller whose mark was read.
func Serve(caller Caller) {
	defer caller.Close()
	frames := bufio.NewReaderSize(caller, headerBytes+chunkBytes)
	answers := make([]byte, 2*(headerBytes+chunkBytes)+headerBytes)
	var server *net.TCPConn
	answered := make(chan struct{})
	close(answered)
	for {
		kind, payload, err := readFrame(frames)
		if err != nil {
			break
		}
		switch kind {
		case frameConnect:
			// The caller knows that the server before has ended.
			<-answered
			if server, err = dial(context.Background(), strconv.Itoa(int(binary.BigEndian.Uint16(payload)))); err != nil {
				server = nil
				_, _ = caller.Write(appendFrame(nil, frameNotListening))
				break
			}
			answered = make(chan struct{})
			go func(server *net.TCPConn, answered chan struct{}) {
				defer close(answered)
				answer(caller, server, answers)
			}(server, answered)
		case frameData:
			if server != nil && write(server, payload, caller) != nil {
				// Its answers can't be taken any more either. It is reset, since it may never take what it was sent.
				_ = server.SetLinger(0)
				server.Close()
			}
		case frameEOF:
			if server != nil {
				_ = server.CloseWrite()
			}
		}
		_, _ = frames.Discard(len(payload))
	}
	if server != nil {
		server.Close()
	}
}

// readFrame returns a frame whose payload is in the reader still.
func readFrame(frames *bufio.Reader) (kind byte, payload []byte, err error) {
	header, err := frames.Peek(headerBytes)
	if err != nil {
		return 0, nil, err
	}
	kind, length := header[0], int(binary.BigEndian.Uint32(header)&0xFFFFFF)
	if kind == frameConnect && length != portBytes {
		return 0, nil, io.ErrUnexpectedEOF
	}
	_, _ = frames.Discard(headerBytes)
	payload, err = frames.Peek(length)
	return kind, payload, err
}

func appendFrame(to []byte, kind byte) []byte { return append(to, kind, 0, 0, 0) }

// write ends, too, once the caller is gone, which no read tells while this stands still.
func write(server *net.TCPConn, data []byte, caller Caller) error {
	for {
		_ = server.SetWriteDeadline(time.Now().Add(stillThere))
		count, err := server.Write(data)
		data = data[count:]
		if !errors.Is(err, os.ErrDeadlineExceeded) || caller.HungUp() {
			return err
		}
	}
}

// answer passes on what the server sends until it ends, in this buffer. What comes first is held for a moment: servers that close each
// connection end it with their answer, and all of that goes at once.
func answer(caller io.Writer, server *net.TCPConn, buffer []byte) {
	defer server.Close()
	held := len(appendFrame(buffer[:0], frameConnected))
	for hold := response.MaxHold; ; {
		_ = server.SetReadDeadline(deadlineIn(hold))
		start := held + headerBytes
		count, err := server.Read(buffer[start : start+chunkBytes])
		if count > 0 {
			binary.BigEndian.PutUint32(buffer[held:], frameData<<24|uint32(count))
			held = start + count
		}
		if err == nil && hold == response.MaxHold && held < chunkBytes {
			hold = maxFollow
			continue
		}
		hasEnded := err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
		if errors.Is(err, io.EOF) {
			held = len(appendFrame(buffer[:held], frameEOF))
		} else if hasEnded {
			held = len(appendFrame(buffer[:held], frameAborted))
		}
		if _, err := caller.Write(buffer[:held]); err != nil || hasEnded {
			return
		}
		hold, held = 0, 0
	}
}

// deadlineIn returns none for 0.
func deadlineIn(hold time.Duration) time.Time {
	if hold == 0 {
		return time.Time{}
	}
	return time.Now().Add(hold)
}
