package history

import (
	"errors"
	"fmt"
)

var (
	// ErrNotHistory says that the file is something else.
	ErrNotHistory = errors.New("not an eventproof history")
	// ErrNoTrial says that no segment of the folder holds the Trial record that a history begins with.
	ErrNoTrial = errors.New("no Trial record was found")
	// ErrVersion says that the file has a format version that this program does not read; see VersionError.
	ErrVersion = errors.New("history format version not supported")
	// ErrCorrupt says that bytes in the middle of the file are damaged; see CorruptError.
	ErrCorrupt = errors.New("history is damaged")
)

// VersionError says which format versions met. It matches ErrVersion.
type VersionError struct{ Found, Supported uint32 }

// Error implements error.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%v: the file has version %d, this program reads version %d; use the eventproof release that wrote it",
		ErrVersion, e.Found, e.Supported)
}

// Is reports whether target is ErrVersion.
func (*VersionError) Is(target error) bool { return target == ErrVersion }

// CorruptError says where a history is damaged. It matches ErrCorrupt.
type CorruptError struct {
	// Offset of the first byte of the frame that can't be read; in a compressed file it counts the bytes
	// after decompression.
	Offset int64
	Err    error
}

// Error implements error.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v at byte %d: %v", ErrCorrupt, e.Offset, e.Err)
}

// Is reports whether target is ErrCorrupt.
func (*CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns what is wrong there.
func (e *CorruptError) Unwrap() error { return e.Err }
