// Package install copies the helper into a folder, for the init container of a pod: its image needs no shell for it.
package install

import (
	"io"
	"os"
	"path/filepath"
)

// Into replaces the folder's `helper` at once by this program.
func Into(folder string) error {
	source, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer source.Close()
	copied, err := os.CreateTemp(folder, "helper-")
	if err != nil {
		return err
	}
	defer os.Remove(copied.Name())
	defer copied.Close()
	if _, err := io.Copy(copied, source); err != nil {
		return err
	}
	if err := copied.Chmod(0o555); err != nil {
		return err
	}
	// Nobody can run a file that is open for writing.
	if err := copied.Close(); err != nil {
		return err
	}
	return os.Rename(copied.Name(), filepath.Join(folder, "helper"))
}
