package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	pb "sandgate/helper/internal/helperv1"
)

func TestPorts(t *testing.T) {
	h := dialHelper(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			server, err := net.Listen("tcp", address)
			if err != nil {
				t.Skip(err)
			}
			defer server.Close()
			go func() {
				accepted, err := server.Accept()
				if err != nil {
					return
				}
				defer accepted.Close()
				// Answers only after the end of what it is sent.
				all, _ := io.ReadAll(accepted)
				_, _ = accepted.Write([]byte(strings.ToUpper(string(all))))
			}()
			_, text, _ := net.SplitHostPort(server.Addr().String())
			port, _ := strconv.Atoi(text)
			stream, err := h.ports.Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = stream.Send(&pb.ConnectRequest{Part: &pb.ConnectRequest_Port{Port: int32(port)}})
			if first, err := stream.Receive(); err != nil || !first.GetConnected() {
				t.Fatal(first, err)
			}
			want := strings.Repeat("question ", 100_000)
			go func() {
				for rest := want; rest != ""; {
					count := min(len(rest), 50_000)
					_ = stream.Send(&pb.ConnectRequest{Part: &pb.ConnectRequest_Data{Data: []byte(rest[:count])}})
					rest = rest[count:]
				}
				_ = stream.Send(&pb.ConnectRequest{Part: &pb.ConnectRequest_Eof{Eof: true}})
				_ = stream.CloseRequest()
			}()
			var got []byte
			ended := false
			for {
				message, err := stream.Receive()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, message.GetData()...)
				ended = ended || message.GetEof()
			}
			if string(got) != strings.ToUpper(want) || !ended {
				t.Errorf("%d bytes, %v", len(got), ended)
			}
		})
	}
	t.Run("nothing listens", func(t *testing.T) {
		stream, err := h.ports.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&pb.ConnectRequest{Part: &pb.ConnectRequest_Port{Port: 1}})
		_, err = stream.Receive()
		wantReason(t, err, pb.Reason_REASON_NOT_LISTENING)
		_ = stream.CloseRequest()
		_ = stream.CloseResponse()
	})
	t.Run("the list", func(t *testing.T) {
		if _, err := os.Stat("/usr/bin/python3"); err != nil {
			t.Skip(err)
		}
		ready := filepath.Join(t.TempDir(), "ready")
		id := h.start(t, shell("python3 -c 'import socket,time,sys\ns=socket.create_server((\"127.0.0.1\",8123))\nopen(sys.argv[1],\"w\")\ntime.sleep(1000)' "+ready))
		until(t, "it listens", func() bool { _, err := os.Stat(ready); return err == nil })
		answer, err := h.ports.ListListening(t.Context(), &pb.ListListeningRequest{})
		if err != nil || len(answer.Listeners) != 1 {
			t.Fatal(answer, err)
		}
		if row := answer.Listeners[0]; row.Port != 8123 || row.Address != "127.0.0.1" || row.ProcessId != id {
			t.Error(row)
		}
		_, _ = h.Signal(t.Context(), &pb.SignalRequest{Id: id, Signal: 9})
	})
}

const (
	frameConnect = iota
	frameConnected
	frameData
	frameEOF
	frameNotListening
	frameAborted
)

// As the kernel numbers it.
const tcpEstablished = 1

// portConnection is what the sandbox service has of one.
type portConnection struct{ net.Conn }

func openPorts(t *testing.T) portConnection {
	t.Helper()
	connection := portConnection{openWith(t, []byte{1})}
	_ = connection.SetDeadline(time.Now().Add(time.Minute))
	return connection
}

func (connection portConnection) send(kind byte, payload []byte) error {
	frame := binary.BigEndian.AppendUint32(nil, uint32(kind)<<24|uint32(len(payload)))
	_, err := connection.Write(append(frame, payload...))
	return err
}

func (connection portConnection) connect(t *testing.T, server net.Listener) {
	t.Helper()
	port := server.Addr().(*net.TCPAddr).Port
	if err := connection.send(frameConnect, binary.BigEndian.AppendUint16(nil, uint16(port))); err != nil {
		t.Fatal(err)
	}
}

// receive returns what comes until a server has ended, and the frame that says so.
func (connection portConnection) receive(t *testing.T) (data []byte, end byte) {
	t.Helper()
	for isFirst := true; ; isFirst = false {
		header := make([]byte, 4)
		if _, err := io.ReadFull(connection, header); err != nil {
			t.Fatal(err)
		}
		payload := make([]byte, binary.BigEndian.Uint32(header)&0xFFFFFF)
		if _, err := io.ReadFull(connection, payload); err != nil {
			t.Fatal(err)
		}
		switch kind := header[0]; {
		case kind == frameData && !isFirst:
			data = append(data, payload...)
		case kind == frameConnected && isFirst:
		case kind == frameNotListening && isFirst, kind == frameEOF, kind == frameAborted:
			return data, kind
		default:
			t.Fatal(kind, len(payload))
		}
	}
}

// listen has each connection to a server served.
func listen(t *testing.T, serve func(*net.TCPConn)) net.Listener {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			accepted, err := server.Accept()
			if err != nil {
				return
			}
			go serve(accepted.(*net.TCPConn))
		}
	}()
	return server
}

func TestAPortConnection(t *testing.T) {
	dialHelper(t)
	greeting := listen(t, func(client *net.TCPConn) {
		_, _ = client.Write([]byte("hello"))
		client.Close()
	})
	reading := listen(t, func(client *net.TCPConn) {
		all, _ := io.ReadAll(client)
		_, _ = client.Write(bytes.ToUpper(all))
		client.Close()
	})
	resetting := listen(t, func(client *net.TCPConn) {
		_, _ = client.Write([]byte("hel"))
		_, _ = client.Read(make([]byte, 1))
		_ = client.SetLinger(0)
		client.Close()
	})
	gone := listen(t, func(*net.TCPConn) {})
	gone.Close()

	t.Run("reaches one server after another", func(t *testing.T) {
		connection := openPorts(t)
		connection.connect(t, greeting)
		if data, end := connection.receive(t); string(data) != "hello" || end != frameEOF {
			t.Error(string(data), end)
		}
		connection.connect(t, gone)
		if _, end := connection.receive(t); end != frameNotListening {
			t.Error(end)
		}
		// To no server.
		_ = connection.send(frameData, []byte("lost"))
		_ = connection.send(frameEOF, nil)
		sent := bytes.Repeat([]byte("question "), 100_000)
		connection.connect(t, reading)
		go func() {
			for rest := sent; len(rest) > 0; {
				count := min(len(rest), 64<<10)
				_ = connection.send(frameData, rest[:count])
				rest = rest[count:]
			}
			_ = connection.send(frameEOF, nil)
		}()
		if data, end := connection.receive(t); !bytes.Equal(data, bytes.ToUpper(sent)) || end != frameEOF {
			t.Error(len(data), end)
		}
		connection.connect(t, resetting)
		_ = connection.send(frameData, []byte("x"))
		if data, end := connection.receive(t); string(data) != "hel" || end != frameAborted {
			t.Error(string(data), end)
		}
		// What the server took nothing of is not in the way of the next.
		connection.connect(t, greeting)
		_ = connection.send(frameData, bytes.Repeat([]byte("x"), 64<<10))
		if _, end := connection.receive(t); end != frameEOF && end != frameAborted {
			t.Error(end)
		}
		connection.connect(t, reading)
		_ = connection.send(frameData, []byte("again"))
		_ = connection.send(frameEOF, nil)
		if data, end := connection.receive(t); string(data) != "AGAIN" || end != frameEOF {
			t.Error(string(data), end)
		}
	})
	t.Run("ends with a caller whose data the server doesn't take", func(t *testing.T) {
		ended := make(chan struct{})
		stuck := listen(t, func(client *net.TCPConn) {
			// It reads nothing, and sees the other end go nevertheless.
			raw, _ := client.SyscallConn()
			for open := true; open; time.Sleep(50 * time.Millisecond) {
				_ = raw.Control(func(descriptor uintptr) {
					info, err := unix.GetsockoptTCPInfo(int(descriptor), unix.IPPROTO_TCP, unix.TCP_INFO)
					open = err == nil && info.State == tcpEstablished
				})
			}
			client.Close()
			close(ended)
		})
		connection := openPorts(t)
		connection.connect(t, stuck)
		_ = connection.SetWriteDeadline(time.Now().Add(time.Second))
		for connection.send(frameData, bytes.Repeat([]byte("x"), 64<<10)) == nil {
		}
		connection.Close()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the connection to the server stays")
		}
	})
	t.Run("is closed for a port that is none", func(t *testing.T) {
		connection := openPorts(t)
		_ = connection.send(frameConnect, []byte("far too long"))
		if _, err := connection.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}
