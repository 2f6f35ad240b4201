// Package daemon serves the helper's contract on a socket that `dial` connects to.
package daemon

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"sandgate/helper/internal/dataconn"
	"sandgate/helper/internal/file"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/helperv1/helperv1connect"
	"sandgate/helper/internal/port"
	"sandgate/helper/internal/process"
	"sandgate/helper/internal/reaper"
	"sandgate/helper/internal/response"
	"sandgate/helper/internal/userdb"
)

const (
	// Grows with every change of the contract.
	version = 8
	// Where `dial` puts the listening socket.
	listenerDescriptor = 3
	threads            = 16
	maxMessage         = 4 << 20
	memoryLimit        = 48 << 20
	maxCalls           = 1000
	callBuffer         = 256 << 10
)

// startThreads makes the threads that file and process calls will need, since the runtime ends the program when it can't make
// one later, for want of pids.
func startThreads() {
	var all, release sync.WaitGroup
	release.Add(1)
	for range threads {
		all.Add(1)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			release.Wait()
		}()
	}
	all.Wait()
	release.Done()
}

type info struct {
	answer       *helperv1.GetInfoResponse
	surroundings process.Surroundings
}

func (info *info) GetInfo(context.Context, *helperv1.GetInfoRequest) (*helperv1.GetInfoResponse, error) {
	return info.answer, nil
}

func (info *info) GetUser(_ context.Context, request *helperv1.GetUserRequest) (*helperv1.GetUserResponse, error) {
	user, home, err := info.surroundings.User(request.User, "user")
	if err != nil {
		return nil, err
	}
	answer := &helperv1.GetUserResponse{
		Uid: uint32(info.answer.Uid), Gid: uint32(info.answer.Gid), Home: strings.ToValidUTF8(home, "\uFFFD"),
	}
	if user != nil {
		answer.Uid, answer.Gid = user.UID, user.GID
	}
	return answer, nil
}

func newServer(surroundings process.Surroundings, pool *reaper.Pool, data *dataconn.Waiting) *http.Server {
	mux := http.NewServeMux()
	options := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		// The stream stays on one machine, mostly.
		connect.WithCompression("gzip", nil, nil),
	}
	mux.Handle(helperv1connect.NewHelperServiceHandler(&info{surroundings: surroundings, answer: &helperv1.GetInfoResponse{
		Version: version, Pid: int32(os.Getpid()), InstanceId: rand.Text(),
		Uid: int32(os.Geteuid()), Gid: int32(os.Getegid()), Cwd: surroundings.Cwd,
	}}, options...))
	processes := process.NewService(surroundings, pool)
	path, handler := helperv1connect.NewProcessServiceHandler(processes, options...)
	mux.Handle(path, response.Held(handler))
	path, handler = helperv1connect.NewPortServiceHandler(port.NewService(processes.Reapers), options...)
	mux.Handle(path, response.Held(handler))
	mux.Handle(helperv1connect.NewFileServiceHandler(file.NewService(surroundings.Cwd, surroundings.Users, data), options...))
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:   mux,
		Protocols: protocols,
		HTTP2: &http.HTTP2Config{
			// A call whose data is not taken holds no other: together they may send what each of them may.
			MaxConcurrentStreams:          maxCalls,
			MaxReceiveBufferPerConnection: maxCalls * callBuffer,
			MaxReceiveBufferPerStream:     callBuffer,
			SendPingTimeout:               30 * time.Second,
			PingTimeout:                   15 * time.Second,
		},
	}
}

// Run serves until it is killed. The container's environment comes on stdin, so that none of its variables changes how this
// program runs.
func Run() error {
	runtime.GOMAXPROCS(min(runtime.NumCPU(), 4))
	debug.SetMemoryLimit(memoryLimit)
	startThreads()
	socket := os.NewFile(listenerDescriptor, "listener")
	listener, err := net.FileListener(socket)
	if err != nil {
		return err
	}
	socket.Close()
	given, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	pool, err := reaper.NewPool()
	if err != nil {
		return err
	}
	go pool.Warm()
	surroundings := process.Surroundings{Env: environment(given), Cwd: "/", Users: userdb.Open("/etc")}
	if cwd, err := os.Getwd(); err == nil {
		surroundings.Cwd = cwd
	}
	data := dataconn.New()
	return newServer(surroundings, pool, data).Serve(newListener(listener.(*net.UnixListener), data))
}

func environment(given []byte) []string {
	var env []string
	for entry := range bytes.SplitSeq(given, []byte{0}) {
		if bytes.IndexByte(entry, '=') > 0 {
			env = append(env, string(entry))
		}
	}
	return env
}
