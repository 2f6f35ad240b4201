package main

import (
	"net"
	"strconv"
	"testing"

	pb "sandgate/helper/internal/helperv1"
)

func TestAServerThatReadsNothingHoldsNoOtherCall(t *testing.T) {
	h := dialHelper(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	_, text, _ := net.SplitHostPort(server.Addr().String())
	port, _ := strconv.Atoi(text)
	for range 40 {
		stream, err := h.ports.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&pb.ConnectRequest{Part: &pb.ConnectRequest_Port{Port: int32(port)}})
		if _, err := stream.Receive(); err != nil {
			t.Fatal(err)
		}
		go func() {
			for stream.Send(&pb.ConnectRequest{Part: &pb.ConnectRequest_Data{Data: make([]byte, 256<<10)}}) == nil {
			}
		}()
	}
	// While they send all that is taken of them.
	for range 50 {
		h.run(t, &pb.Command{Argv: []string{"cat"}, Stdin: make([]byte, 512<<10)})
	}
}
