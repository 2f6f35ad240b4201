package process

import (
	"fmt"
	"testing"
)

func TestTheOldestKeysAreForgotten(t *testing.T) {
	known := newKeys()
	key := func(number int) []byte { return fmt.Append(nil, "key ", number) }
	for number := range 2*maxKeys + 10 {
		known.add(key(number), "id")
	}
	for number, used := range map[int]bool{0: false, maxKeys + 9: false, maxKeys + 10: true, 2*maxKeys + 9: true} {
		if (known.check(key(number), "another") != nil) != used {
			t.Error(number)
		}
	}
	if len(known.started) != maxKeys || len(known.order) != maxKeys {
		t.Errorf("%d, %d", len(known.started), len(known.order))
	}
	known.remove(key(2*maxKeys + 9))
	if known.check(key(2*maxKeys+9), "another") != nil || known.check(nil, "id") != nil {
		t.Error("a key that started nothing, or none, is refused")
	}
}
