package main

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

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
