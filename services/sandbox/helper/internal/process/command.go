package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/reaper"
	"sandgate/helper/internal/userdb"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Surroundings are what commands start with unless they say otherwise.
type Surroundings struct {
	// The container's own environment.
	Env []string
	// The image's folder.
	Cwd   string
	Users userdb.Database
}

func check(command *helperv1.Command) error {
	if command == nil || (len(command.Argv) == 0 && command.Shell == "") {
		return failure.Invalid("command", "is empty")
	}
	for field, values := range map[string][]string{"command": append(slices.Clone(command.Argv), command.Shell), "cwd": {command.Cwd}} {
		if slices.ContainsFunc(values, func(value string) bool { return strings.ContainsRune(value, 0) }) {
			return failure.Invalid(field, "holds a NUL")
		}
	}
	if len(command.Argv) > 0 && command.Argv[0] == "" {
		return failure.Invalid("command", "names no program")
	}
	for name, value := range command.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return failure.Invalid("env", "has a bad name or a NUL")
		}
	}
	if terminal := command.Terminal; terminal != nil {
		return checkSize(terminal.Cols, terminal.Rows)
	}
	return nil
}

func lookup(env []string, name string) (string, bool) {
	for _, entry := range slices.Backward(env) {
		if value, found := strings.CutPrefix(entry, name+"="); found {
			return value, true
		}
	}
	return "", false
}

func with(env []string, name, value string) []string {
	kept := slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
	return append(kept, name+"="+value)
}

// candidates are the files that a program's name may mean, as execvp looks for them.
func candidates(program string, env []string) []string {
	if strings.Contains(program, "/") {
		return []string{program}
	}
	path, set := lookup(env, "PATH")
	if !set || path == "" {
		path = defaultPath
	}
	var found []string
	for _, folder := range filepath.SplitList(path) {
		if !strings.HasPrefix(folder, "/") {
			continue
		}
		file := folder + "/" + program
		// What the helper can't see, the command's user may see.
		if _, err := os.Stat(file); err == nil || !os.IsNotExist(err) {
			found = append(found, file)
		}
	}
	return found
}

func (surroundings *Surroundings) credential(name string) (*reaper.Credential, string, error) {
	own := os.Geteuid()
	if name == "" {
		return nil, "", nil
	}
	user, err := surroundings.Users.Find(name)
	if err != nil {
		return nil, "", failure.New(helperv1.Reason_REASON_USER_UNKNOWN, "the sandbox has no such user or group")
	}
	if own != 0 {
		if int(user.UID) != own || int(user.GID) != os.Getegid() {
			return nil, "", failure.New(helperv1.Reason_REASON_USER_NOT_PERMITTED, "only root can become another user")
		}
		return nil, "", nil
	}
	home := user.Home
	if home == "" {
		home = "/"
	}
	return &reaper.Credential{UID: user.UID, GID: user.GID, Groups: user.Groups}, home, nil
}

// request is what the reaper is told; its errors are of the contract.
func (surroundings *Surroundings) request(command *helperv1.Command) (reaper.Request, error) {
	if err := check(command); err != nil {
		return reaper.Request{}, err
	}
	credential, home, err := surroundings.credential(command.User)
	if err != nil {
		return reaper.Request{}, err
	}
	env := surroundings.Env
	if credential != nil {
		env = with(env, "HOME", home)
	} else if _, set := lookup(env, "HOME"); !set {
		home := "/"
		if user, err := surroundings.Users.Find(strconv.Itoa(os.Geteuid())); err == nil && user.Home != "" {
			home = user.Home
		}
		env = with(env, "HOME", home)
	}
	if command.Terminal != nil {
		env = with(env, "TERM", "xterm-256color")
	}
	for name, value := range command.Env {
		env = with(env, name, value)
	}
	argv := command.Argv
	if len(argv) == 0 {
		argv = []string{"/bin/sh", "-c", command.Shell}
	}
	cwd := surroundings.cwd(command.Cwd)
	return reaper.Request{Paths: candidates(argv[0], env), Argv: argv, Env: env, Cwd: cwd, User: credential, Terminal: command.Terminal != nil}, nil
}

func (surroundings *Surroundings) cwd(asked string) string {
	switch {
	case asked == "":
		return surroundings.Cwd
	case strings.HasPrefix(asked, "/"):
		return asked
	default:
		return strings.TrimSuffix(surroundings.Cwd, "/") + "/" + asked
	}
}

// exitCode and text of a program that was not run, as a shell has them.
func notRun(program string, errno syscall.Errno) (code int32, text string) {
	code = 126
	if errno == unix.ENOENT {
		code = 127
		return code, program + ": not found\n"
	}
	return code, program + ": " + errno.Error() + "\n"
}
