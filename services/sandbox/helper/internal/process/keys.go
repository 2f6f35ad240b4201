package process

import (
	"crypto/sha256"

	"sandgate/helper/internal/failure"
	"sandgate/helper/internal/helperv1"
)

const maxKeys = 50_000

// keys tells what each key started. Hashes are kept, so that all of them take 4 MiB at most.
type keys struct {
	started map[digest]digest
	// A ring of the last ones; next is where the oldest is.
	order []digest
	next  int
}

type digest [16]byte

func digestOf[Text string | []byte](text Text) digest {
	sum := sha256.Sum256([]byte(text))
	return digest(sum[:16])
}

func newKeys() keys { return keys{started: map[digest]digest{}} }

// check is called for an id that no process has.
func (known *keys) check(key []byte, id string) error {
	started, used := known.started[digestOf(key)]
	switch {
	case len(key) == 0 || !used:
		return nil
	case started == digestOf(id):
		return failure.New(helperv1.Reason_REASON_PROCESS_FORGOTTEN, "the key's process ended long ago")
	default:
		return failure.New(helperv1.Reason_REASON_KEY_USED, "the key started another process")
	}
}

func (known *keys) add(key []byte, id string) {
	if len(key) == 0 {
		return
	}
	hashed := digestOf(key)
	known.started[hashed] = digestOf(id)
	if len(known.order) < maxKeys {
		known.order = append(known.order, hashed)
		return
	}
	delete(known.started, known.order[known.next])
	known.order[known.next] = hashed
	known.next = (known.next + 1) % maxKeys
}

// remove is for a key that started nothing. Its place in the order stays, so one that is used again may go a little early.
func (known *keys) remove(key []byte) { delete(known.started, digestOf(key)) }
