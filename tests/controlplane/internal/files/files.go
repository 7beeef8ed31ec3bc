// Package files writes files that other processes may read at any moment.
package files

import "os"

// Write replaces the file in one step, so that a reader never sees half of it.
func Write(path string, data []byte, mode os.FileMode) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, mode); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
