package daemon

import (
	"errors"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SocketName is an abstract one, so that it needs no file system; each user of a sandbox has another.
func SocketName() string { return "@sandgate-helper-" + strconv.Itoa(os.Geteuid()) }

var ErrForeignPeer = errors.New("the other end of the helper's socket belongs to another user")

// CheckPeer refuses a connection to a process of another user.
func CheckPeer(connection *net.UnixConn) error {
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
	if int(peer.Uid) != os.Geteuid() {
		return ErrForeignPeer
	}
	return nil
}

// ownListener accepts connections of the helper's own user alone.
type ownListener struct{ *net.UnixListener }

func (listener ownListener) Accept() (net.Conn, error) {
	for {
		connection, err := listener.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if CheckPeer(connection) == nil {
			return connection, nil
		}
		connection.Close()
	}
}
