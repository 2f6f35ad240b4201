// Package failure makes the errors of the helper's contract.
package failure

import (
	"errors"
	"syscall"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"sandgate/helper/internal/helperv1"
)

func make(code connect.Code, text string, detail *helperv1.ErrorDetail) error {
	failure := connect.NewError(code, errors.New(text))
	if wrapped, err := connect.NewErrorDetail(detail); err == nil {
		failure.AddDetail(wrapped)
	}
	return failure
}

var codes = map[helperv1.Reason]connect.Code{
	helperv1.Reason_REASON_PROCESS_NOT_FOUND:     connect.CodeNotFound,
	helperv1.Reason_REASON_WATCHER_NOT_FOUND:     connect.CodeNotFound,
	helperv1.Reason_REASON_TOO_MANY_WATCHERS:     connect.CodeResourceExhausted,
	helperv1.Reason_REASON_WATCH_LIMIT:           connect.CodeResourceExhausted,
	helperv1.Reason_REASON_TOO_MANY_PROCESSES:    connect.CodeResourceExhausted,
	helperv1.Reason_REASON_CWD_NOT_A_DIRECTORY:   connect.CodeInvalidArgument,
	helperv1.Reason_REASON_USER_UNKNOWN:          connect.CodeInvalidArgument,
	helperv1.Reason_REASON_BAD_ARCHIVE:           connect.CodeInvalidArgument,
	helperv1.Reason_REASON_RANGE_NOT_SATISFIABLE: connect.CodeOutOfRange,
	helperv1.Reason_REASON_NOT_LISTENING:         connect.CodeUnavailable,
}

// New is an error with a reason of the contract; its code is FAILED_PRECONDITION unless the reason has another.
func New(reason helperv1.Reason, text string) error { return WithField(reason, "", text) }

// WithField is the same, about a field of the request.
func WithField(reason helperv1.Reason, field, text string) error {
	code, known := codes[reason]
	if !known {
		code = connect.CodeFailedPrecondition
	}
	return make(code, text, &helperv1.ErrorDetail{Reason: reason, Field: field})
}

// Invalid is REASON_INVALID for a field of the request.
func Invalid(field, text string) error {
	detail := &helperv1.ErrorDetail{Reason: helperv1.Reason_REASON_INVALID, Field: field}
	return make(connect.CodeInvalidArgument, field+" "+text, detail)
}

// WithErrno is an error with a reason that names the system call's error beside it.
func WithErrno(reason helperv1.Reason, text string, errno syscall.Errno) error {
	code, known := codes[reason]
	if !known {
		code = connect.CodeFailedPrecondition
	}
	detail := &helperv1.ErrorDetail{Reason: reason, Errno: unix.ErrnoName(errno)}
	return make(code, text+": "+errno.Error(), detail)
}

// FromSystem turns what a system call answered into REASON_ERRNO, with NOT_FOUND for ENOENT; other errors stay as they are.
func FromSystem(err error) error {
	var errno syscall.Errno
	if err == nil || !errors.As(err, &errno) {
		return err
	}
	code := connect.CodeFailedPrecondition
	if errno == unix.ENOENT {
		code = connect.CodeNotFound
	}
	detail := &helperv1.ErrorDetail{Reason: helperv1.Reason_REASON_ERRNO, Errno: unix.ErrnoName(errno)}
	return make(code, errno.Error(), detail)
}
