package install

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestIntoReplacesWhatIsThere(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "helper")
	if err := os.WriteFile(path, []byte("an earlier one"), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := Into(folder); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes were copied, of %d", len(got), len(want))
	}
	found, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if found.Mode().Perm() != 0o555 {
		t.Errorf("its mode is %o", found.Mode().Perm())
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 1 {
		t.Errorf("the folder has %d entries", len(entries))
	}
}

func TestIntoNeedsAFolder(t *testing.T) {
	if err := Into(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("it answers %v", err)
	}
}
