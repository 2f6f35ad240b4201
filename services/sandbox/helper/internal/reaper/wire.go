// Package reaper is the process between the helper and a command. As its subreaper it is the ancestor of all that the
// command starts, sessions of their own included, so that all can be found and reaped. It is used for one command after
// another as long as none leaves something behind.
package reaper

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Request is what the helper sends: a command, with its stdin, stdout and stderr as descriptors, or the order to go.
type Request struct {
	// Candidates for the program, tried in turn.
	Paths []string
	Argv  []string
	Env   []string
	Cwd   string
	// Unset: the reaper's own user.
	User     *Credential `json:",omitempty"`
	Terminal bool        `json:",omitempty"`
	// Ends the reaper. What the last command left behind lives on as the helper's child.
	Release bool `json:",omitempty"`
}

type Credential struct {
	UID, GID uint32
	Groups   []uint32
}

// Step names what failed at a start.
type Step string

const (
	StepFork  Step = "fork"
	StepChdir Step = "chdir"
	StepExec  Step = "exec"
	// The ids of the user could not be taken.
	StepUser Step = "user"
)

// Report is what the reaper sends. Each request has a `Started` or a `Failed`; one that started has `Exited`, and `Idle`
// with it or later, when nothing of the command is left.
type Report struct {
	Started int  `json:",omitempty"`
	Failed  Step `json:",omitempty"`
	Errno   int  `json:",omitempty"`
	Exited  bool `json:",omitempty"`
	Status  int  `json:",omitempty"`
	Idle    bool `json:",omitempty"`
}

const (
	maxMessage = 4 << 20
	// stdin, stdout, stderr.
	stdio = 3
)

func send(connection *net.UnixConn, message any, descriptors ...int) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	frame := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...)
	var rights []byte
	if len(descriptors) > 0 {
		rights = unix.UnixRights(descriptors...)
	}
	written, _, err := connection.WriteMsgUnix(frame, rights, nil)
	if err == nil && written < len(frame) {
		_, err = connection.Write(frame[written:])
	}
	return err
}

func receive(connection *net.UnixConn, message any) (descriptors []int, err error) {
	header, rights := make([]byte, 4), make([]byte, unix.CmsgSpace(4*stdio))
	count, rightsCount, _, _, err := connection.ReadMsgUnix(header, rights)
	if err != nil {
		return nil, err
	}
	if controls, err := unix.ParseSocketControlMessage(rights[:rightsCount]); err == nil {
		for _, control := range controls {
			if received, err := unix.ParseUnixRights(&control); err == nil {
				descriptors = append(descriptors, received...)
			}
		}
	}
	readAll := func(into []byte) error {
		for len(into) > 0 {
			count, err := connection.Read(into)
			if err != nil {
				return err
			}
			into = into[count:]
		}
		return nil
	}
	if err := readAll(header[count:]); err != nil {
		return descriptors, err
	}
	length := binary.BigEndian.Uint32(header)
	if length > maxMessage {
		return descriptors, fmt.Errorf("a message of %d bytes", length)
	}
	body := make([]byte, length)
	if err := readAll(body); err != nil {
		return descriptors, err
	}
	return descriptors, json.Unmarshal(body, message)
}

func connectionOf(descriptor uintptr) (*net.UnixConn, error) {
	file := os.NewFile(descriptor, "reaper")
	defer file.Close()
	connection, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return connection.(*net.UnixConn), nil
}
