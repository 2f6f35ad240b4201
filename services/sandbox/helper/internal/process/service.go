package process

import (
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/helperv1/helperv1connect"
	"sandgate/helper/internal/reaper"
	"sandgate/helper/internal/response"
)

const (
	maxStdinWait = 30 * time.Second
	// A reader that takes nothing for so long is cut off.
	maxStall = 30 * time.Second
)

// Service answers the calls of ProcessService.
type Service struct {
	table *table
}

var _ helperv1connect.ProcessServiceHandler = (*Service)(nil)

func NewService(surroundings Surroundings, pool *reaper.Pool) *Service {
	return &Service{table: newTable(surroundings, pool)}
}

// eventStream sends events, each call within maxStall. The server sends what is not flushed when the handler returns.
type eventStream struct {
	control *http.ResponseController
	stalled *time.Timer
	write   func(*helperv1.OutputEvent) error
}

func openStream(ctx context.Context, write func(*helperv1.OutputEvent) error) *eventStream {
	control := response.ControlOf(ctx)
	stalled := time.AfterFunc(maxStall, func() { _ = control.SetWriteDeadline(time.Unix(1, 0)) })
	stalled.Stop()
	return &eventStream{control: control, stalled: stalled, write: write}
}

func (stream *eventStream) limited(work func() error) error {
	stream.stalled.Reset(maxStall)
	defer stream.stalled.Stop()
	return work()
}

func (stream *eventStream) send(event *helperv1.OutputEvent) error {
	return stream.limited(func() error { return stream.write(event) })
}

func (stream *eventStream) flush() error { return stream.limited(stream.control.Flush) }

// close limits what the server does by itself.
func (stream *eventStream) close() {
	_ = stream.control.SetWriteDeadline(time.Now().Add(maxStall))
}

func (service *Service) Start(_ context.Context, request *helperv1.StartRequest) (*helperv1.StartResponse, error) {
	p, err := service.table.start(request.Id, request.Key, request.Command)
	if err != nil {
		return nil, err
	}
	return &helperv1.StartResponse{Process: p.record()}, nil
}

func (service *Service) GetProcess(_ context.Context, request *helperv1.GetProcessRequest) (*helperv1.GetProcessResponse, error) {
	p, err := service.table.find(request.Id)
	if err != nil {
		return nil, err
	}
	return &helperv1.GetProcessResponse{Process: p.record()}, nil
}

func (service *Service) ListProcesses(context.Context, *helperv1.ListProcessesRequest) (*helperv1.ListProcessesResponse, error) {
	return &helperv1.ListProcessesResponse{Processes: service.table.list()}, nil
}

func (service *Service) Wait(ctx context.Context, request *helperv1.WaitRequest) (*helperv1.WaitResponse, error) {
	p, err := service.table.find(request.Id)
	if err != nil {
		return nil, err
	}
	timeout := time.NewTimer(time.Duration(request.TimeoutMs) * time.Millisecond)
	defer timeout.Stop()
	select {
	case <-p.ended:
	case <-timeout.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &helperv1.WaitResponse{Process: p.record()}, nil
}

// follow sends the output after an offset, and `exit` as the last.
func follow(ctx context.Context, p *process, after int64, stream *eventStream) error {
	defer p.follow()()
	reading := p.out.read(after, true)
	defer reading.close()
	hold := time.NewTimer(response.MaxHold)
	defer hold.Stop()
	isFlushed := true
	for {
		next, there, done, changed := reading.peek()
		if there {
			if err := stream.send(event(next)); err != nil {
				return err
			}
			reading.took(next.offset)
			isFlushed = false
			continue
		}
		if done {
			return sendExit(p, next.offset, stream)
		}
		if !isFlushed {
			if err := stream.flush(); err != nil {
				return err
			}
			isFlushed = true
		}
		select {
		case <-changed:
		case <-hold.C:
			isFlushed = false
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendExit is for a process whose output has ended, as it is about to.
func sendExit(p *process, offset int64, stream *eventStream) error {
	<-p.ended
	return stream.send(&helperv1.OutputEvent{Offset: offset, Event: &helperv1.OutputEvent_Exit{Exit: p.record()}})
}

func event(next piece) *helperv1.OutputEvent {
	if next.gap > 0 {
		return &helperv1.OutputEvent{Offset: next.offset, Event: &helperv1.OutputEvent_GapBytes{GapBytes: next.gap}}
	}
	output := &helperv1.Output{Stream: next.stream, Data: next.data}
	return &helperv1.OutputEvent{Offset: next.offset, Event: &helperv1.OutputEvent_Output{Output: output}}
}

func (service *Service) Run(ctx context.Context, request *helperv1.RunRequest, stream *connect.ServerStream[helperv1.RunResponse]) error {
	p, err := service.table.start(request.Id, request.Key, request.Command)
	if err != nil {
		return err
	}
	leave := p.call()
	defer func() {
		if leave() && request.EndOnDisconnect && p.running() {
			p.end(disconnectGrace)
		}
	}()
	limit := &firstBytes{limit: request.MaxOutputBytes}
	events := openStream(ctx, func(event *helperv1.OutputEvent) error {
		response := &helperv1.RunResponse{Event: event}
		if request.MaxOutputBytes > 0 && !limit.keep(response) {
			return nil
		}
		return stream.Send(response)
	})
	defer events.close()
	if err := events.send(&helperv1.OutputEvent{Event: &helperv1.OutputEvent_Start{Start: p.record()}}); err != nil {
		return err
	}
	return follow(ctx, p, 0, events)
}

// firstBytes keeps so many of each stream.
type firstBytes struct {
	limit          int64
	stdout, stderr int64
	gone           bool
}

func (kept *firstBytes) keep(response *helperv1.RunResponse) (send bool) {
	switch event := response.Event.Event.(type) {
	case *helperv1.OutputEvent_GapBytes:
		kept.gone = true
	case *helperv1.OutputEvent_Exit:
		response.StdoutTruncated = kept.gone || kept.stdout > kept.limit
		response.StderrTruncated = kept.gone || kept.stderr > kept.limit
	case *helperv1.OutputEvent_Output:
		count := &kept.stdout
		if event.Output.Stream == helperv1.OutputStream_OUTPUT_STREAM_STDERR {
			count = &kept.stderr
		}
		left := max(kept.limit-*count, 0)
		*count += int64(len(event.Output.Data))
		event.Output.Data = event.Output.Data[:min(left, int64(len(event.Output.Data)))]
		return len(event.Output.Data) > 0
	}
	return true
}

func (service *Service) ReadOutput(ctx context.Context, request *helperv1.ReadOutputRequest, stream *connect.ServerStream[helperv1.ReadOutputResponse]) error {
	p, err := service.table.find(request.Id)
	if err != nil {
		return err
	}
	events := openStream(ctx, func(event *helperv1.OutputEvent) error {
		return stream.Send(&helperv1.ReadOutputResponse{Event: event})
	})
	defer events.close()
	if request.Follow {
		return follow(ctx, p, request.After, events)
	}
	return page(ctx, p, request, events)
}

// page sends what there is after an offset.
func page(ctx context.Context, p *process, request *helperv1.ReadOutputRequest, stream *eventStream) error {
	reading := p.out.read(request.After, false)
	defer reading.close()
	waiting, stop := context.WithTimeout(ctx, time.Duration(request.WaitMs)*time.Millisecond)
	defer stop()
	next, there, err := reading.next(waiting)
	if err != nil && !(errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil) {
		return err
	}
	for sent := int64(0); there; next, there, _, _ = reading.peek() {
		if request.MaxBytes > 0 && next.gap == 0 {
			if sent == request.MaxBytes {
				return nil
			}
			if over := sent + int64(len(next.data)) - request.MaxBytes; over > 0 {
				next.data = next.data[:int64(len(next.data))-over]
				next.offset -= over
			}
		}
		if err := stream.send(event(next)); err != nil {
			return err
		}
		sent += int64(len(next.data))
		reading.took(next.offset)
	}
	if _, _, done, _ := reading.peek(); done {
		return sendExit(p, reading.offset, stream)
	}
	return nil
}

func (service *Service) WriteStdin(_ context.Context, request *helperv1.WriteStdinRequest) (*helperv1.WriteStdinResponse, error) {
	p, err := service.table.find(request.Id)
	if err != nil {
		return nil, err
	}
	offset := int64(-1)
	if request.Offset != nil {
		if offset = *request.Offset; offset < 0 {
			return nil, failure.Invalid("offset", "is negative")
		}
	}
	timeout := time.Duration(request.TimeoutMs) * time.Millisecond
	if timeout <= 0 || timeout > maxStdinWait {
		timeout = maxStdinWait
	}
	return p.in.write(offset, request.Data, request.Eof, timeout)
}

func (service *Service) Signal(_ context.Context, request *helperv1.SignalRequest) (*helperv1.SignalResponse, error) {
	p, err := service.table.find(request.Id)
	if err != nil {
		return nil, err
	}
	if request.Signal < 1 || request.Signal > 64 {
		return nil, failure.Invalid("signal", "must be 1 to 64")
	}
	if err := p.signal(unix.Signal(request.Signal)); err != nil {
		return nil, err
	}
	return &helperv1.SignalResponse{}, nil
}

func (service *Service) Resize(_ context.Context, request *helperv1.ResizeRequest) (*helperv1.ResizeResponse, error) {
	p, err := service.table.find(request.Id)
	if err != nil {
		return nil, err
	}
	if err := p.resize(request.Cols, request.Rows); err != nil {
		return nil, err
	}
	return &helperv1.ResizeResponse{}, nil
}

func (service *Service) End(_ context.Context, request *helperv1.EndRequest) (*helperv1.EndResponse, error) {
	p, err := service.table.find(request.Id)
	if err != nil {
		return nil, err
	}
	p.end(max(time.Duration(request.GraceMs)*time.Millisecond, 0))
	return &helperv1.EndResponse{}, nil
}

// Reapers are the ids of the running processes by the pids of their reapers.
func (service *Service) Reapers() map[int]string {
	t := service.table
	t.mutex.Lock()
	defer t.mutex.Unlock()
	found := map[int]string{}
	for _, id := range t.order {
		p := t.byID[id]
		p.mutex.Lock()
		if pid, any := p.root(); any {
			found[pid] = id
		}
		p.mutex.Unlock()
	}
	return found
}
