package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "sandgate/helper/internal/helperv1"
)

func newDataID() []byte {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	return id
}

// openData opens a data connection as the runtime does.
func openData(t testing.TB, id []byte) net.Conn {
	t.Helper()
	return openWith(t, append([]byte{0}, id...))
}

// openWith opens a connection whose first bytes say what it is.
func openWith(t testing.TB, first []byte) net.Conn {
	t.Helper()
	connection, _, _ := dialStream(t, exec.Command("/proc/self/exe", "dial"))
	if _, err := connection.Write(first); err != nil {
		t.Fatal(err)
	}
	return connection
}

func TestAContentByADataConnection(t *testing.T) {
	h := dialHelper(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	content := make([]byte, 5<<20+1)
	_, _ = rand.Read(content)

	// write sends the first byte in a message and the others by a connection, of which it calls end in the end.
	write := func(t *testing.T, limit int64, end func(net.Conn), commit bool) error {
		t.Helper()
		id := newDataID()
		stream, err := h.files.Write(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&pb.WriteRequest{Part: &pb.WriteRequest_Start_{Start: &pb.WriteRequest_Start{Path: []byte(path), MaxBytes: limit}}})
		_ = stream.Send(&pb.WriteRequest{Part: &pb.WriteRequest_Data{Data: content[:1]}})
		_ = stream.Send(&pb.WriteRequest{Part: &pb.WriteRequest_DataConnection{DataConnection: id}})
		connection := openData(t, id)
		_, _ = connection.Write(content[1:])
		end(connection)
		if commit {
			_ = stream.Send(&pb.WriteRequest{Part: &pb.WriteRequest_Commit{Commit: true}})
		}
		_, err = stream.CloseAndReceive()
		return err
	}
	closeWrite := func(connection net.Conn) { _ = connection.(*net.UnixConn).CloseWrite() }

	t.Run("is written whole", func(t *testing.T) {
		if err := write(t, int64(len(content)), closeWrite, true); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); !bytes.Equal(got, content) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
	t.Run("takes a large file's place", func(t *testing.T) {
		small := content
		defer func() { content = small }()
		content = bytes.Repeat(small, 9)
		for range 2 {
			content[len(content)-1]++
			if err := write(t, 0, closeWrite, true); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); !bytes.Equal(got, content) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}
		if err := os.WriteFile(path, small, 0o644); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("is read whole, and a small one by messages", func(t *testing.T) {
		for _, row := range []struct {
			wanted *pb.ByteRange
			want   []byte
		}{{nil, content}, {&pb.ByteRange{Start: ptr(int64(3))}, content[3:]}, {&pb.ByteRange{Length: ptr(int64(1000))}, content[len(content)-1000:]}} {
			id := newDataID()
			stream, err := h.files.Read(t.Context(), &pb.ReadRequest{Path: []byte(path), Range: row.wanted, DataConnection: id})
			if err != nil || !stream.Receive() {
				t.Fatal(err)
			}
			start, got := stream.Msg().GetStart(), []byte(nil)
			if start.ByDataConnection != (len(row.want) >= 1<<20) {
				t.Error(start)
			}
			if start.ByDataConnection {
				if got, err = io.ReadAll(openData(t, id)); err != nil {
					t.Error(err)
				}
			}
			for stream.Receive() {
				got = append(got, stream.Msg().GetData()...)
			}
			if stream.Err() != nil || !bytes.Equal(got, row.want) {
				t.Errorf("%d of %d bytes, %v", len(got), len(row.want), stream.Err())
			}
		}
	})
	t.Run("changes nothing without a commit, or beyond the limit", func(t *testing.T) {
		if err := write(t, 0, func(connection net.Conn) { connection.Close() }, false); connect.CodeOf(err) != connect.CodeAborted {
			t.Error(err)
		}
		// It is refused while the caller still sends.
		wantReason(t, write(t, 4<<20, func(net.Conn) {}, false), pb.Reason_REASON_TOO_LARGE)
		if got, _ := os.ReadFile(path); !bytes.Equal(got, content) || len(namesIn(t, folder)) != 1 {
			t.Errorf("%d bytes, %v", len(got), namesIn(t, folder))
		}
	})
	t.Run("ends with a caller that leaves", func(t *testing.T) {
		id := newDataID()
		leaving := dialHelper(t)
		stream, err := leaving.files.Read(t.Context(), &pb.ReadRequest{Path: []byte(path), DataConnection: id})
		if err != nil || !stream.Receive() {
			t.Fatal(err)
		}
		connection := openData(t, id)
		_, _ = io.ReadFull(connection, make([]byte, 1))
		leaving.hangUp()
		_ = connection.SetReadDeadline(time.Now().Add(time.Minute))
		if rest, err := io.ReadAll(connection); errors.Is(err, os.ErrDeadlineExceeded) || len(rest) == len(content)-1 {
			t.Error(len(rest), err)
		}
	})
	t.Run("is refused with an id of another length", func(t *testing.T) {
		stream, err := h.files.Read(t.Context(), &pb.ReadRequest{Path: []byte(path), DataConnection: []byte("short")})
		if err != nil {
			t.Fatal(err)
		}
		for stream.Receive() {
		}
		wantReason(t, stream.Err(), pb.Reason_REASON_INVALID)
	})
}

func TestDataConnectionsThatNoCallNamesAreClosed(t *testing.T) {
	h := dialHelper(t)
	var open []net.Conn
	// More than may wait.
	for range 70 {
		open = append(open, openData(t, newDataID()))
	}
	for _, connection := range open {
		_ = connection.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := connection.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	// None of them holds a call.
	h.run(t, argv("true"))
}
