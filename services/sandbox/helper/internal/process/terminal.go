package process

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
)

// openTerminal makes a pair of which the program gets the second. owner: -1 leaves it to the helper's user.
func openTerminal(cols, rows int32, owner int) (ours *os.File, theirs int, err error) {
	main, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, -1, err
	}
	ours = os.NewFile(uintptr(main), "terminal")
	defer func() {
		if err != nil {
			ours.Close()
		}
	}()
	if err = unix.IoctlSetPointerInt(main, unix.TIOCSPTLCK, 0); err != nil {
		return nil, -1, err
	}
	if err = setSize(main, cols, rows); err != nil {
		return nil, -1, err
	}
	number, err := unix.IoctlGetInt(main, unix.TIOCGPTN)
	if err != nil {
		return nil, -1, err
	}
	theirs, err = unix.Open("/dev/pts/"+strconv.Itoa(number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	if owner >= 0 {
		if err = unix.Fchown(theirs, owner, -1); err != nil {
			unix.Close(theirs)
			return nil, -1, err
		}
	}
	return ours, theirs, nil
}

func setSize(descriptor int, cols, rows int32) error {
	return unix.IoctlSetWinsize(descriptor, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(cols), Row: uint16(rows)})
}

func checkSize(cols, rows int32) error {
	for field, value := range map[string]int32{"cols": cols, "rows": rows} {
		if value < 1 || value > 1000 {
			return failure.Invalid(field, "must be 1 to 1,000")
		}
	}
	return nil
}

func notATerminal() error {
	return failure.New(helperv1.Reason_REASON_NOT_A_TERMINAL, "the process has no terminal")
}
