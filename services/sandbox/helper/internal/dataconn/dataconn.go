// Package dataconn has data connections, each of which takes the content of one file past the calls' HTTP/2.
package dataconn

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"connectrpc.com/connect"

	"sandgate/helper/internal/failure"
)

const (
	// Mark is the first byte of a data connection.
	Mark = 0
	// IDBytes is the length of the id that follows.
	IDBytes = 16
	// Of a connection until its call has come, and of a call until its connection has.
	timeout = 10 * time.Second
	// Ids that one of the two waits for.
	maxWaiting = 64
)

// Waiting has the connections and calls that wait for each other.
type Waiting struct {
	mutex sync.Mutex
	// A channel has room for the connection.
	meetings map[string]chan net.Conn
}

// New returns what no connection and no call has come to.
func New() *Waiting { return &Waiting{meetings: map[string]chan net.Conn{}} }

// meeting returns where the two with the id meet; nil: too many wait.
func (waiting *Waiting) meeting(id string) chan net.Conn {
	waiting.mutex.Lock()
	defer waiting.mutex.Unlock()
	meeting := waiting.meetings[id]
	if meeting == nil && len(waiting.meetings) < maxWaiting {
		meeting = make(chan net.Conn, 1)
		waiting.meetings[id] = meeting
		time.AfterFunc(timeout, func() { waiting.end(id, meeting) })
	}
	return meeting
}

// end closes a connection that no call has taken.
func (waiting *Waiting) end(id string, meeting chan net.Conn) {
	waiting.mutex.Lock()
	defer waiting.mutex.Unlock()
	if waiting.meetings[id] == meeting {
		delete(waiting.meetings, id)
	}
	select {
	case connection := <-meeting:
		connection.Close()
	default:
	}
}

// Offer reads the id of a connection whose mark was read, and keeps it for the call that names it, or closes it.
func (waiting *Waiting) Offer(connection net.Conn) {
	id := make([]byte, IDBytes)
	_ = connection.SetReadDeadline(time.Now().Add(timeout))
	_, err := io.ReadFull(connection, id)
	_ = connection.SetReadDeadline(time.Time{})
	if err == nil {
		select {
		case waiting.meeting(string(id)) <- connection:
			return
		default:
		}
	}
	connection.Close()
}

// Take returns the connection with the id, which closes once the call has ended.
func (waiting *Waiting) Take(ctx context.Context, id []byte) (net.Conn, error) {
	if len(id) != IDBytes {
		return nil, failure.Invalid("data_connection", "must have 16 bytes")
	}
	meeting := waiting.meeting(string(id))
	if meeting == nil {
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("too many data connections are waited for"))
	}
	late := time.NewTimer(timeout)
	defer late.Stop()
	select {
	case connection := <-meeting:
		context.AfterFunc(ctx, func() { connection.Close() })
		return connection, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late.C:
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the data connection did not come"))
	}
}
