package daemon

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/dataconn"
	"sandgate/helper/internal/port"
)

const (
	// Of a dial that has connected.
	handOverTimeout = 2 * time.Second
	// After a dial that could not be accepted.
	acceptPause = 10 * time.Millisecond
)

// SocketName is an abstract one, so that it needs no file system; each user of a sandbox has another.
func SocketName(uid int) string { return "@sandgate-helper-" + strconv.Itoa(uid) }

var ErrForeignPeer = errors.New("the other end of the helper's socket belongs to another user")

// CheckPeer refuses a connection to a process of another user than this one.
func CheckPeer(connection *net.UnixConn, uid int) error {
	raw, err := connection.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(descriptor uintptr) {
		peer, failed = unix.GetsockoptUcred(int(descriptor), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if int(peer.Uid) != uid {
		return ErrForeignPeer
	}
	return nil
}

// HandOver gives the daemon these descriptors, so that nothing that passes through them has to be copied here. The daemon ends
// the connection when it is done with them.
func HandOver(daemon *net.UnixConn, input, output int) error {
	_, _, err := daemon.WriteMsgUnix([]byte{0}, unix.UnixRights(input, output), nil)
	return err
}

// handedOver is a connection by an input and an output of whoever dials. It ends with the dial, and the dial with it.
type handedOver struct {
	*net.UnixConn
	input, output *os.File
	// What was read to see what it is.
	read []byte
}

func takeOver(dial *net.UnixConn) (*handedOver, error) {
	if err := CheckPeer(dial, os.Geteuid()); err != nil {
		return nil, err
	}
	if err := dial.SetReadDeadline(time.Now().Add(handOverTimeout)); err != nil {
		return nil, err
	}
	control := make([]byte, unix.CmsgSpace(2*4))
	_, length, _, _, err := dial.ReadMsgUnix(make([]byte, 1), control)
	if err != nil {
		return nil, err
	}
	files, err := filesIn(control[:length])
	if err != nil {
		return nil, err
	}
	if len(files) != 2 {
		for _, file := range files {
			file.Close()
		}
		return nil, errors.New("two files were to be handed over")
	}
	// So that whoever dialled knows that they have come: a security module may refuse them.
	if _, err := dial.Write([]byte{0}); err != nil {
		return nil, errors.Join(err, files[0].Close(), files[1].Close())
	}
	connection := &handedOver{UnixConn: dial, input: files[0], output: files[1]}
	go func() {
		_ = dial.SetReadDeadline(time.Time{})
		_, _ = io.Copy(io.Discard, dial)
		connection.Close()
	}()
	return connection, nil
}

func filesIn(control []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, message := range messages {
		descriptors, err := unix.ParseUnixRights(&message)
		if err != nil {
			return files, err
		}
		for _, descriptor := range descriptors {
			// So that a read or write doesn't hold a thread, and ends when the file is closed.
			_ = unix.SetNonblock(descriptor, true)
			files = append(files, os.NewFile(uintptr(descriptor), "dial"))
		}
	}
	return files, nil
}

func (connection *handedOver) Read(into []byte) (int, error) {
	if len(connection.read) > 0 {
		count := copy(into, connection.read)
		connection.read = connection.read[count:]
		return count, nil
	}
	return connection.input.Read(into)
}

func (connection *handedOver) Write(from []byte) (int, error) { return connection.output.Write(from) }

func (connection *handedOver) Close() error {
	return errors.Join(connection.input.Close(), connection.output.Close(), connection.UnixConn.Close())
}

// HungUp tells, without reading, whether the other end is gone.
func (connection *handedOver) HungUp() bool {
	raw, err := connection.input.SyscallConn()
	if err != nil {
		return true
	}
	hungUp := true
	_ = raw.Control(func(descriptor uintptr) {
		polled := []unix.PollFd{{Fd: int32(descriptor)}}
		_, err := unix.Poll(polled, 0)
		hungUp = err == nil && polled[0].Revents&unix.POLLHUP != 0
	})
	return hungUp
}

func (connection *handedOver) SetDeadline(at time.Time) error {
	return errors.Join(connection.SetReadDeadline(at), connection.SetWriteDeadline(at))
}

func (connection *handedOver) SetReadDeadline(at time.Time) error {
	return connection.input.SetReadDeadline(at)
}

func (connection *handedOver) SetWriteDeadline(at time.Time) error {
	return connection.output.SetWriteDeadline(at)
}

// ownListener accepts connections of the helper's own user alone, and gives those that carry no calls away.
type ownListener struct {
	*net.UnixListener
	data     *dataconn.Waiting
	accepted chan net.Conn
}

func newListener(dials *net.UnixListener, data *dataconn.Waiting) *ownListener {
	listener := &ownListener{dials, data, make(chan net.Conn)}
	go func() {
		for {
			dial, err := dials.AcceptUnix()
			if err != nil {
				// For want of descriptors, which ends no other connection.
				time.Sleep(acceptPause)
				continue
			}
			go listener.receive(dial)
		}
	}()
	return listener
}

func (listener *ownListener) receive(dial *net.UnixConn) {
	connection, err := takeOver(dial)
	if err != nil {
		dial.Close()
		return
	}
	first := make([]byte, 1)
	if _, err := connection.Read(first); err != nil {
		connection.Close()
		return
	}
	switch first[0] {
	case dataconn.Mark:
		listener.data.Offer(connection)
		return
	case port.Mark:
		port.Serve(connection)
		return
	}
	connection.read = first
	listener.accepted <- connection
}

func (listener *ownListener) Accept() (net.Conn, error) { return <-listener.accepted, nil }
