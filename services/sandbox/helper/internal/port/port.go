// Package port reaches servers in the sandbox for the sandbox service.
package port

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/helperv1/helperv1connect"
	"sandgate/helper/internal/proctree"
	"sandgate/helper/internal/response"
)

const (
	dialTimeout = time.Second
	chunkBytes  = 64 << 10
)

// Service answers the calls of PortService.
type Service struct {
	// The running processes' ids by the pids of their reapers, below which all is theirs.
	reapers func() map[int]string
}

var _ helperv1connect.PortServiceHandler = (*Service)(nil)

func NewService(reapers func() map[int]string) *Service { return &Service{reapers: reapers} }

func (service *Service) Connect(ctx context.Context, stream *connect.BidiStream[helperv1.ConnectRequest, helperv1.ConnectResponse]) error {
	first, err := stream.Receive()
	if err != nil {
		return err
	}
	port := first.GetPort()
	if port < 1 || port > 65535 {
		return failure.Invalid("port", "must be 1 to 65,535 and come first")
	}
	server, err := dial(ctx, strconv.Itoa(int(port)))
	if err != nil {
		return failure.New(helperv1.Reason_REASON_NOT_LISTENING, "nothing listens on the port")
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := stream.Send(&helperv1.ConnectResponse{Part: &helperv1.ConnectResponse_Connected{Connected: true}}); err != nil {
		return err
	}
	go func() {
		if toServer(stream, server) != nil {
			// Its answers can't be taken any more either.
			server.Close()
		}
	}()
	flush := response.ControlOf(ctx).Flush
	_ = server.SetReadDeadline(time.Now().Add(response.MaxHold))
	buffer := make([]byte, chunkBytes)
	for {
		count, err := server.Read(buffer)
		_ = server.SetReadDeadline(time.Time{})
		if count > 0 {
			if err := stream.Send(&helperv1.ConnectResponse{Part: &helperv1.ConnectResponse_Data{Data: buffer[:count]}}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return stream.Send(&helperv1.ConnectResponse{Part: &helperv1.ConnectResponse_Eof{Eof: true}})
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return connect.NewError(connect.CodeAborted, errors.New("the connection was broken off"))
		}
		if err := flush(); err != nil {
			return err
		}
	}
}

// toServer ends well after the caller's `eof`, or when the caller has ended its side of the call.
func toServer(stream *connect.BidiStream[helperv1.ConnectRequest, helperv1.ConnectResponse], server *net.TCPConn) error {
	for {
		message, err := stream.Receive()
		if errors.Is(err, io.EOF) || message.GetEof() {
			return server.CloseWrite()
		}
		if err != nil {
			return err
		}
		if _, err := server.Write(message.GetData()); err != nil {
			return connect.NewError(connect.CodeAborted, errors.New("the connection was broken off"))
		}
	}
}

func dial(ctx context.Context, port string) (*net.TCPConn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	var failed error
	for _, host := range []string{"127.0.0.1", "::1"} {
		server, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		if err == nil {
			return server.(*net.TCPConn), nil
		}
		failed = err
	}
	return nil, failed
}

type listener struct {
	address netip.AddrPort
	inode   string
}

const tcpListen = "0A"

// address reads what /proc/net/tcp has: words of four bytes in the machine's order, and the port.
func address(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	bytes, err := hex.DecodeString(host)
	number, failed := strconv.ParseUint(port, 16, 16)
	if err != nil || failed != nil || len(bytes)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := 0; word < len(bytes); word += 4 {
		// Both architectures are little-endian.
		slices.Reverse(bytes[word : word+4])
	}
	ip, valid := netip.AddrFromSlice(bytes)
	return netip.AddrPortFrom(ip, uint16(number)), valid
}

func listening(path string) []listener {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	var found []listener
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != tcpListen {
			continue
		}
		if address, valid := address(fields[1]); valid {
			found = append(found, listener{address, fields[9]})
		}
	}
	return found
}

func (service *Service) ListListening(context.Context, *helperv1.ListListeningRequest) (*helperv1.ListListeningResponse, error) {
	found := append(listening("/proc/net/tcp"), listening("/proc/net/tcp6")...)
	owners := map[string]int{}
	if links, err := filepath.Glob("/proc/[0-9]*/fd/*"); err == nil && len(found) > 0 {
		for _, link := range links {
			if leads, err := os.Readlink(link); err == nil && strings.HasPrefix(leads, "socket:[") {
				owners[strings.Trim(leads[len("socket:"):], "[]")], _ = strconv.Atoi(strings.Split(link, "/")[2])
			}
		}
	}
	parents, reapers := proctree.Parents(), service.reapers()
	response := &helperv1.ListListeningResponse{}
	for _, listener := range found {
		row := &helperv1.ListListeningResponse_Listener{Port: int32(listener.address.Port()), Address: listener.address.Addr().String()}
		for reaper, id := range reapers {
			if owner, known := owners[listener.inode]; known && proctree.Within(parents, owner, reaper) {
				row.ProcessId = id
			}
		}
		response.Listeners = append(response.Listeners, row)
	}
	slices.SortFunc(response.Listeners, func(a, b *helperv1.ListListeningResponse_Listener) int {
		if a.Port != b.Port {
			return int(a.Port - b.Port)
		}
		return strings.Compare(a.Address, b.Address)
	})
	return response, nil
}
