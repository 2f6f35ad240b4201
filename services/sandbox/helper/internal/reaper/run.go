package reaper

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/proctree"
)

// The descriptor at which a reaper finds its socket.
const socketDescriptor = 3

// Run is the reaper's program. It ends with the helper, and everything below it then ends too: nobody could see or end it
// any more.
func Run() error {
	debug.SetGCPercent(20)
	// Go leaves these two ignored where whoever started the engine ignored them, as nohup does, and commands would inherit that.
	for _, number := range []unix.Signal{unix.SIGHUP, unix.SIGINT} {
		takeDefault(number)
	}
	// Waiting for children blocks this thread; the other thread is there before the limit of pids can be used up.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	connection, err := connectionOf(socketDescriptor)
	if err != nil {
		return err
	}
	type order struct {
		request     Request
		descriptors []int
	}
	orders := make(chan order)
	go func() {
		for {
			var next order
			var err error
			next.descriptors, err = receive(connection, &next.request)
			if err != nil {
				endWithHelper()
			}
			if next.request.Release {
				os.Exit(0)
			}
			orders <- next
		}
	}()
	for next := range orders {
		pid, step, errno := start(next.request, next.descriptors)
		for _, descriptor := range next.descriptors {
			unix.Close(descriptor)
		}
		if step != "" {
			err = send(connection, Report{Failed: step, Errno: int(errno)})
		} else if err = send(connection, Report{Started: pid}); err == nil {
			err = watch(pid, func(report Report) error { return send(connection, report) })
		}
		if err != nil {
			endWithHelper()
		}
	}
	return nil
}

// takeDefault is for signals that were ignored when the program began, which os/signal leaves so.
func takeDefault(number unix.Signal) {
	// The kernel's sigaction: no handler, no flags and no mask.
	var action [4]uint64
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(number), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

func endWithHelper() {
	proctree.Kill(os.Getpid(), 5*time.Second)
	os.Exit(0)
}

// watch reaps all that the command leaves until nothing is left.
func watch(leader int, report func(Report) error) error {
	exited, options, status := false, 0, 0
	for {
		var state unix.WaitStatus
		pid, err := unix.Wait4(-1, &state, options, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD):
			return report(Report{Exited: options == unix.WNOHANG, Status: status, Idle: true})
		case err != nil:
			return err
		case pid == 0:
			// The leader has ended and others have not.
			if err := report(Report{Exited: true, Status: status}); err != nil {
				return err
			}
			options = 0
		case pid == leader && !exited:
			exited, options, status = true, unix.WNOHANG, int(state)
		}
	}
}

func start(request Request, descriptors []int) (pid int, failed Step, errno syscall.Errno) {
	attributes := &syscall.ProcAttr{Dir: request.Cwd, Env: request.Env, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: request.Terminal}}
	if user := request.User; user != nil {
		attributes.Sys.Credential = &syscall.Credential{Uid: user.UID, Gid: user.GID, Groups: user.Groups}
	}
	for _, descriptor := range descriptors {
		attributes.Files = append(attributes.Files, uintptr(descriptor))
	}
	errno = syscall.ENOENT
	for _, path := range request.Paths {
		pid, err := syscall.ForkExec(path, request.Argv, attributes)
		if err == nil {
			return pid, "", 0
		}
		var found syscall.Errno
		if !errors.As(err, &found) {
			found = syscall.EINVAL
		}
		if found == syscall.EAGAIN || found == syscall.ENOMEM {
			return 0, StepFork, found
		}
		// As execvp: a later folder may have the program, but the first one that could not be run is told.
		if errno == syscall.ENOENT {
			errno = found
		}
		if found != syscall.ENOENT && found != syscall.EACCES && found != syscall.ENOTDIR {
			break
		}
	}
	// fork, chdir and exec fail alike. A program that is known to be there tells them apart.
	probe, err := syscall.ForkExec("/proc/self/exe", []string{"helper", "true"}, attributes)
	if err == nil {
		_, _ = unix.Wait4(probe, nil, 0, nil)
		return 0, StepExec, errno
	}
	var found syscall.Errno
	if errors.As(err, &found) {
		errno = found
	}
	if request.User != nil && (errno == syscall.EINVAL || errno == syscall.EPERM) {
		// The first where the user namespace has no such user or group.
		return 0, StepUser, errno
	}
	if request.Cwd == "" || errno == syscall.EAGAIN || errno == syscall.ENOMEM || errno == syscall.EPERM {
		return 0, StepFork, errno
	}
	return 0, StepChdir, errno
}
