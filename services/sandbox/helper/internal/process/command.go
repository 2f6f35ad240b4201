package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
	"sandgate/helper/internal/identity"
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

// User answers the user of a command, nil for the image's own, and its home folder.
func (surroundings *Surroundings) User(name, field string) (user *userdb.User, home string, err error) {
	user, err = identity.Find(surroundings.Users, name, field)
	if err != nil {
		return nil, "", err
	}
	if home, set := lookup(surroundings.Env, "HOME"); set && user == nil {
		return nil, home, nil
	}
	return user, identity.Entry(surroundings.Users, user).Home, nil
}

// withName adds the user's name as a login does. The image's own user keeps what the image says.
func (surroundings *Surroundings) withName(env []string, user *userdb.User) []string {
	name := identity.Entry(surroundings.Users, user).Name
	for _, variable := range []string{"USER", "LOGNAME"} {
		if _, set := lookup(env, variable); name != "" && (user != nil || !set) {
			env = with(env, variable, name)
		}
	}
	return env
}

// request is what the reaper is told; its errors are of the contract.
func (surroundings *Surroundings) request(command *helperv1.Command) (reaper.Request, error) {
	if err := check(command); err != nil {
		return reaper.Request{}, err
	}
	user, home, err := surroundings.User(command.User, "")
	if err != nil {
		return reaper.Request{}, err
	}
	var credential *reaper.Credential
	if user != nil {
		credential = &reaper.Credential{UID: user.UID, GID: user.GID, Groups: user.Groups}
	}
	env := surroundings.withName(with(surroundings.Env, "HOME", home), user)
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
